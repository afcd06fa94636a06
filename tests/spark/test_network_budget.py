"""The time budget of a network on a real Spark: where it cuts, whom it spares, and that the books balance."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.network import Builder, Network
from tests.spark.helpers import delivered, in_force
from tests.spark.test_network import put, stream, triage

pytestmark = pytest.mark.spark
ROWS = 600


def guarded(*, stateful: bool = False) -> Network:
    """A source whose rows of kind k0 are protected."""
    builder = Builder("guarded", capacity=1.0).source(
        "s",
        "id LONG, v DOUBLE, kind STRING, at TIMESTAMP",
        rate=1000,
        arrived="at",
        watermark="10 seconds",
        protect="kind = 'k0'",
    )
    if stateful:
        built = builder.aggregate("w", "s", "1 hour", {"n": "count(*)"}, by=["kind"], cost=1e-5)
        return built.output("counts", "w", write={"mode": "update"}).build()
    return builder.filter("all", "s", "v >= 0", cost=1e-5, selectivity=1.0).output("out", "all").build()


def run(spark: SparkSession, network: Network, folder: Path, **pinned: object) -> ss.RunningNetwork:
    """A network with these drops by hand, on three batches of rows."""
    (folder / "in").mkdir()
    rows = stream(spark, folder / "in")
    if "at" in network.schemas["s"][-1].name:
        rows = rows.selectExpr("*", "timestamp_seconds(1800000000 + id) AS at")
    running = ss.run(
        spark,
        network,
        sources={"s": rows},
        sinks={output.name: "memory" for output in network.outputs},
        latency="1 hour",
        floor=0.0,
        state=str(folder / "state"),
    )
    running.pin([], **pinned)  # type: ignore[arg-type]
    in_force(running)
    put(folder / "in", rows=ROWS)
    running.process_all_available()
    running.stop()
    return running


def test_what_comes_too_late_is_cut_and_counted_by_arc(spark: SparkSession, tmp_path: Path) -> None:
    running = run(spark, triage(), tmp_path, budget="1 ms", grace=100)
    report = running.report()
    assert report.arrived == 3 * ROWS
    assert 0 < report.cut == report.shed < 3 * ROWS
    assert report.kept == 3 * ROWS - report.cut
    for rows in report.by_arc.values():
        assert rows.arrived == rows.passed + rows.shed
        assert rows.shed == rows.cut
    assert delivered(report) == {output.name: len(running.rows(output.name)) for output in triage().outputs}


def test_a_network_with_time_enough_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    running = run(spark, triage(), tmp_path, budget="1 hour")
    report = running.report()
    assert (report.arrived, report.kept, report.cut) == (3 * ROWS, 3 * ROWS, 0)
    assert len(running.rows("all")) == 3 * ROWS


def test_protected_rows_of_a_network_pass_at_any_time(spark: SparkSession, tmp_path: Path) -> None:
    running = run(spark, guarded(), tmp_path, budget="1 ms")
    assert {row.kind for row in running.rows("out")} == {"k0"}
    assert len(running.rows("out")) == ROWS
    report = running.report()
    assert (report.arrived, report.cut, report.kept) == (3 * ROWS, 2 * ROWS, ROWS)


def test_a_query_with_state_is_cut_at_its_source(spark: SparkSession, tmp_path: Path) -> None:
    running = run(spark, guarded(stateful=True), tmp_path, budget="1 ms")
    report = running.report()
    assert (report.arrived, report.cut) == (3 * ROWS, 2 * ROWS)
    assert {row.kind for row in running.rows("counts")} == {"k0"}


def test_budgets_that_make_no_sense_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    for settings, problem in (({"budget": "5 s"}, "longer than the bound"), ({"max_shed": 2}, "max_shed must be")):
        with pytest.raises(ss.InvalidArgument, match=problem):
            ss.run(spark, triage(), sources={"s": stream(spark, tmp_path)}, latency="4 s", **settings)  # type: ignore[arg-type]
