"""Drops before the parse and by value behind it, together, on a real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.network import Builder, Network
from tests.spark.helpers import delivered, in_force
from tests.spark.test_network import ROWS, put

pytestmark = pytest.mark.spark


def tickets(*, stateful: bool = False) -> Network:
    builder = Builder("tickets", capacity=1.0).source(
        "s",
        "id LONG, v DOUBLE, kind STRING, at TIMESTAMP",
        rate=1000,
        arrived="at",
        watermark="1 day",
        parse={"format": "json", "cost": 1e-5},
        values={"v": (0, 100)},
    )
    if stateful:
        builder.aggregate("w", "s", "1000 days", {"n": "count(*)", "least": "min(v)"}, cost=1e-5)
        return builder.output("counts", "w", write={"mode": "update"}).build()
    builder.map("scored", "s", {"id": "id", "v": "v"}, cost=1e-5)
    builder.output("alarms", "scored", value=("v", [[0, 50, 0.1], [50, 100, 1.0]]))
    builder.map("named", "s", {"id": "id", "kind": "kind"}, cost=1e-5)
    return builder.output("trend", "named").build()


def run(spark: SparkSession, network: Network, folder: Path, drops: list[ss.Drop]) -> ss.RunningNetwork:
    (folder / "in").mkdir()
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    running = ss.run(
        spark,
        network,
        sources={"s": lines.selectExpr("value", "current_timestamp() AS at")},
        sinks={output.name: "memory" for output in network.outputs},
        latency="1 hour",
        state=str(folder / "state"),
    )
    running.pin(drops)
    in_force(running)
    put(folder / "in")
    running.process_all_available()
    running.stop()
    return running


def test_thinned_before_the_parse_and_dropped_by_value_behind(spark: SparkSession, tmp_path: Path) -> None:
    network = tickets()
    drops = [ss.Drop("s->scored", 0.0, "v < 50"), ss.Drop("s->scored", 0.6), ss.Drop("s->named", 0.3)]
    running = run(spark, network, tmp_path, drops)
    parsed = sum(sample.flows.parsed["s"] for sample in running.samples if sample.flows and sample.finished)
    assert parsed == pytest.approx(0.6 * 3 * ROWS, rel=0.05)  # some five standard deviations
    alarms, trend = running.rows("alarms"), running.rows("trend")
    assert min(row.v for row in alarms) >= 50
    assert len(alarms) == pytest.approx(0.3 * 3 * ROWS, rel=0.1)
    assert len(trend) == pytest.approx(0.3 * 3 * ROWS, rel=0.1)
    report = running.report()
    assert report.arrived == 3 * ROWS
    assert delivered(report) == {"alarms": len(alarms), "trend": len(trend)}
    for rows in report.by_arc.values():
        assert rows.arrived == rows.passed + rows.shed
    assert report.by_arc["s->scored"].passed == len(alarms)
    # Whoever goes by value goes by value alone: of the rows that were parsed, all high ones came.
    assert {row.id for row in trend if row.id in {each.id for each in alarms}} != set()


def test_a_query_with_state_too(spark: SparkSession, tmp_path: Path) -> None:
    network = tickets(stateful=True)
    running = run(spark, network, tmp_path, [ss.Drop("s->w", 0.5)])
    report = running.report()
    counted = max(row.n for row in running.rows("counts"))
    assert report.by_arc["s->w"].passed == counted
    parsed = sum(sample.flows.parsed["s"] for sample in running.samples if sample.flows and sample.finished)
    assert parsed == counted == pytest.approx(0.5 * 3 * ROWS, rel=0.08)
