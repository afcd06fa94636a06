"""The monitor must keep up with batches that are over in milliseconds, and hold little when it cannot."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.spark.watch import session_monitor
from streamshed.spark.watch.plan_counts import ARRIVED, KEPT, PlanReader, mark, next_serial
from streamshed.spark.watch.session_monitor import SessionMonitor
from tests.spark.helpers import wait_for

pytestmark = pytest.mark.spark

ROWS = 20


def small_batches(spark: SparkSession) -> DataFrame:
    """As many rows in every batch, and batches as fast as they go."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1)
    return source.load()


def test_a_plan_of_any_shape_is_read_with_one_call(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk node by node was dozens of calls whenever the shape changed, and took longer than a small batch."""
    first, second = next_serial(), next_serial()
    rows = spark.range(100)
    plain = rows.where("id % 2 = 0")
    one = rows.where(mark(first, ARRIVED)).where("id < 40").where(mark(first, KEPT))
    both = one.unionAll(rows.where(mark(second, ARRIVED))).groupBy((F.col("id") % 3).alias("g")).count()
    joined = one.alias("a").join(one.alias("b"), "id")
    reader = PlanReader(spark)
    calls: list[str] = []
    sent = GatewayClient.send_command

    def counting(self: Any, command: str, *more: Any, **options: Any) -> Any:
        if command.startswith("c\n"):  # a method is called; what Python lets go of is another matter
            calls.append(command)
        return sent(self, command, *more, **options)

    expected = {plain: {}, one: {first: (100, 40)}, both: {first: (100, 40), second: (100, 100)}}
    for adaptive in ("true", "false"):
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
        try:
            for frame, counts in expected.items():
                made = frame.where("true")  # an execution of its own, by the setting of now
                made.collect()
                plan = made._jdf.queryExecution().executedPlan()
                with monkeypatch.context() as patch:
                    patch.setattr(GatewayClient, "send_command", counting)
                    calls.clear()
                    found = reader.read(plan, [first, second])
                assert len(calls) == 1, calls
                assert {serial: (c.arrived, c.kept) for serial, c in found.items() if c.arrived} == counts
            made = joined.where("true")
            made.collect()
            # Read twice in a plan, or once and used again: either way all that was read is counted.
            found = reader.read(made._jdf.queryExecution().executedPlan(), [first])
            assert (found[first].arrived, found[first].kept) in {(100, 40), (200, 80)}
        finally:
            spark.conf.unset("spark.sql.adaptive.enabled")


@pytest.mark.complains
def test_a_monitor_that_is_behind_holds_few_plans_and_says_what_it_has_not_seen(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each execution that waits holds a batch's plans in the JVM: without a limit its heap grew for hours."""
    few = 12
    monkeypatch.setattr(session_monitor, "_MOST_WAITING", few)
    kept = ss.shed(small_batches(spark), "1 hour", salt="s")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    gate = threading.Event()
    held = threading.Event()
    handled = SessionMonitor._handle

    def waits(self: SessionMonitor, *event: Any) -> None:
        if handle.report().batches >= 2 and not gate.is_set():
            held.set()
            gate.wait()
        handled(self, *event)

    monkeypatch.setattr(SessionMonitor, "_handle", waits)
    waiting: list[str] = []
    enqueued = SessionMonitor.enqueue

    def noting(self: SessionMonitor, kind: str, *more: Any) -> None:
        if held.is_set() and not gate.is_set():
            waiting.append(kind)
        enqueued(self, kind, *more)

    monkeypatch.setattr(SessionMonitor, "enqueue", noting)
    query = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "s")).start()

    def last() -> int:
        return int((query.lastProgress or {"batchId": 0})["batchId"])

    try:
        assert held.wait(60)
        behind = last()
        wait_for(lambda: last() >= behind + 3 * few)
        assert waiting.count("progress") >= 2 * few, "this test is about a monitor that is behind"
        assert waiting.count("executed") <= few
        gate.set()
        caught_up = last() + 2
        wait_for(lambda: last() >= caught_up)
    finally:
        gate.set()
        query.stop()
    wait_for(lambda: handle.report().batches + handle.report().unseen >= caught_up)
    report = handle.report()
    assert report.unseen > 0
    assert report.arrived == ROWS * report.batches
    assert report.arrived == report.kept + report.shed
    handle.close()
