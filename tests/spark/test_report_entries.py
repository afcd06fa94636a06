"""The same words from every entry: a shed stream, a load-aware operator, a network, a simulation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.network import Builder, Network
from streamshed.policies.registry import network_policy
from streamshed.sim.scenario import Scenario
from streamshed.sim.simulate import simulate
from tests.spark.helpers import fill, run_all, stream

pytestmark = pytest.mark.spark
ROWS, FILES = 400, 4


def network() -> Network:
    return (
        Builder("same_words", capacity=1.0)
        .source("s", "id LONG", rate=ROWS)
        .filter("odd", "s", "id % 2 = 1", selectivity=0.5, cost=1e-3)
        .output("rows", "odd", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )


def shed(spark: SparkSession, source: Path, mode: str) -> ss.Report:
    kept = ss.shed(stream(spark, source), "1 hour", mode=mode, name=f"words-{mode}")
    with ss.handle(kept) as handle:
        handle.pin(0.5)
        run_all(kept, source.parent / "state", f"words_{mode.replace('-', '_')}")
        handle.settle()
        return handle.report()


def load_aware(spark: SparkSession, source: Path, mode: str) -> ss.Report:
    # 1,900 s each, by the estimate, and at most 7,200 s to wait: the fifth of a queue would wait 7,600 s.
    out = ss.load_aware(
        stream(spark, source), lambda row: (row["id"],), cost_key="user", target="max 2 hours", cost="1900",
        schema="id LONG", arrived="at", mode=mode,
    )  # fmt: skip
    with ss.load_shedder(out) as handle:
        run_all(out, source.parent / "state", f"words_las_{mode.replace('-', '_')}")
        handle.settle()
        return handle.report()


def running_network(spark: SparkSession, source: Path, mode: str) -> ss.Report:
    rows = stream(spark, source).select("id")
    with ss.run(
        spark, network(), sources={"s": rows}, sinks={"rows": "noop"}, latency="1 hour", mode=mode,
        state=str(source.parent / "state"), trigger={"availableNow": True}, pin=[ss.Drop("s->odd", 0.5)],
    ) as running:  # fmt: skip
        running.await_termination()
        return running.report()


Entry = Callable[[SparkSession, Path, str], ss.Report]


@pytest.mark.parametrize("entry", [shed, load_aware, running_network])
@pytest.mark.parametrize("mode", ["enforce", "dry-run"])
def test_on_spark(spark: SparkSession, source: Path, entry: Entry, mode: str) -> None:
    fill(source, FILES, ROWS)
    report = entry(spark, source, mode)
    assert isinstance(report, ss.Report)
    assert json.loads(report.to_json()).keys() == ss.Report().as_dict().keys()
    assert report.arrived == report.kept + report.shed + report.failed == ROWS
    assert (report.batches, report.unseen, report.over_bound) == (FILES, 0, 0)
    # Half of the rows by plan, and for a load-aware operator all but four of each of its queues.
    lost, spared = (report.shed, report.would_shed) if mode == "enforce" else (report.would_shed, report.shed)
    assert 0.35 * ROWS < lost < ROWS
    assert spared == 0
    assert 0 < report.latency_p50 <= report.latency_p99 <= report.latency_worst
    assert 0 < report.latency_mean <= report.latency_worst
    assert report.latencies.rows == pytest.approx(report.kept)
    assert len(report.by_query) == 1
    assert "<table>" in report._repr_html_()


def test_of_a_network_by_place(spark: SparkSession, source: Path) -> None:
    fill(source, FILES, ROWS)
    report = running_network(spark, source, "dry-run")
    assert report.by_source["s"].would_shed == pytest.approx(0.5 * ROWS)
    assert report.by_arc["s->odd"].would_shed == pytest.approx(0.5 * ROWS)
    assert (report.by_arc["odd->rows"].arrived, report.by_arc["odd->rows"].would_shed) == (ROWS // 2, 0)
    assert report.by_output["rows"].delivered == ROWS // 2
    assert report.by_output["rows"].utility == 1.0
    (part,) = report.by_query.values()
    assert part.by_arc == report.by_arc


def test_in_the_simulator() -> None:
    outcome = simulate(Scenario.of(network(), seconds=10.0, overload=5.0), network_policy("lsrm-random"))
    report = outcome.report()
    assert json.loads(report.to_json()).keys() == ss.Report().as_dict().keys()
    assert report.arrived == report.kept + report.shed
    assert report.shed == outcome.dropped > 0
    assert 0 < report.latency_p50 <= report.latency_p99 <= report.latency_worst
