"""The benchmark's form; its figures are for a quiet machine."""

from __future__ import annotations

from streamshed.lab.experiments import bench_simulator


def test_it_reports_every_model_and_all_ratios() -> None:
    told: list[str] = []
    report = bench_simulator.run(lambda done, total, what: told.append(what), seconds=0.1, repeats=1)
    assert set(report["rows_per_second"]) == {"network", "single", "simpy_network", "simpy_single"}
    assert report["boxes"] == 47
    assert report["rows"] > 1000
    assert report["services_per_row"] > 1
    assert min(report[name] for name in report if name.startswith("ratio")) > 0
    assert told[-1] == "done"
