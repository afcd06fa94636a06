"""The benchmark's form; its figures are for a quiet machine."""

from __future__ import annotations

from streamshed.lab.bench import BENCHES
from streamshed.lab.experiments import bench_las


def test_it_reports_both_loops_and_their_ratio() -> None:
    told: list[str] = []
    report = bench_las.run(lambda done, total, what: told.append(what), rows=3_000, repeats=1)
    assert set(report["decisions_per_second"]) == {"streamshed", "datasketches"}
    assert report["sketch"] == [4, 55]
    assert report["ratio"] == report["ratio_to_datasketches"] > 0
    # Both loops shed: they do the same work.
    assert all(0.1 < share < 0.5 for share in report["dropped"].values())
    assert told[-1] == "done"
    assert "las" in BENCHES
