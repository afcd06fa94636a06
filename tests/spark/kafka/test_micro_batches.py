"""Micro-batches from a real Kafka: what is there, what is null, what goes away and comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.lab.bench.kafka import Broker
from tests.spark.helpers import run_all, wait_for
from tests.spark.kafka.helpers import numbers, put_numbers, read, running, topic, wait_for_numbers

pytestmark = pytest.mark.spark


def test_a_backlog_of_several_topics_with_nulls_and_headers_is_shed_by_place(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    one, two = topic(broker, 2), topic(broker, cleanup_policy="compact")
    rows = 600
    broker.put(
        one,
        (
            {
                "key": None if n % 3 else str(n).encode(),
                "value": None if n % 5 == 0 else json.dumps({"n": n}).encode(),
                "headers": [("h", None if n % 2 else b"x")],
            }
            for n in range(rows)
        ),
    )
    broker.put(two, ({"key": str(n % 50).encode(), "value": json.dumps({"n": n}).encode()} for n in range(rows)))
    limits = {"maxOffsetsPerTrigger": "400", "includeHeaders": "true"}
    events = read(spark, broker, f"{one},{two}", **limits)
    everything = spark.read.format("kafka").options(**broker.source(f"{one},{two}")).load().count()
    kept = ss.shed(events, "1 hour", key="key", salt="kafka", name="backlog")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    found = run_all(kept.select("topic", "partition", "offset", "key", "headers"), tmp_path, "backlog")
    report = handle.report()
    assert report.arrived == everything
    assert report.kept == len(found)
    assert 0.3 < report.kept_share < 0.7
    # Rows without a key stand for themselves: some of them pass, and some do not.
    bare = [row for row in found if row["key"] is None]
    assert 0.3 < len(bare) / 400 < 0.7
    # Rows of one key share their fate.
    keyed = {row["key"] for row in found if row["topic"] == two}
    assert 0 < len(keyed) < 50
    handle.close()


def test_a_broker_that_goes_and_comes_and_a_topic_that_gets_partitions(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    with Broker() as passing:
        into, out = topic(passing), topic(broker)
        options = {"kafka.metadata.max.age.ms": "500"}
        kept = ss.shed(numbers(read(spark, passing, into, **options)), "1 hour", name="gone")
        handle = ss.shedder(kept)
        with running(kept.select("value"), broker, out, tmp_path, processingTime="0 seconds") as query:
            put_numbers(passing, into, 0, 100)
            wait_for_numbers(broker, out, 99, query)
            passing.stop()
            passing.start()
            put_numbers(passing, into, 100, 100)
            wait_for_numbers(broker, out, 199, query)
            passing.grow(into, 3)
            put_numbers(passing, into, 200, 100)
            wait_for(lambda: handle.report().arrived >= 300)
        assert handle.report().arrived == handle.report().kept == 300
        assert handle.report().shed == 0
        handle.close()


@pytest.mark.complains
def test_a_look_at_a_running_batch_knows_its_rows_by_their_offsets(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    into, out = topic(broker, 2), topic(broker)
    put_numbers(broker, into, 0, 400)
    kept = ss.shed(numbers(read(spark, broker, into)), "8 seconds", budget=False, mode="dry-run", name="offsets")
    asleep = kept.where("reflect('java.lang.Thread', 'sleep', 10L) IS NULL")
    handle = ss.shedder(kept)
    with running(asleep.select("value"), broker, out, tmp_path, processingTime="0 seconds"):
        wait_for(lambda: handle.report().arrived == 400)
    assert {sample.arrived for sample in handle.samples if not sample.finished} == {400}
    handle.close()


def test_a_batch_of_few_offsets_has_no_clock(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Kafka's offsets say how many rows a batch has before it is planned. If nobody knew, it had its clock."""
    into = topic(broker, 2)
    kept = ss.shed(read(spark, broker, into), "1 hour", name="few")
    handle = ss.shedder(kept)
    handle.pin(1.0, budget="2 minutes")
    query = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state")).start()

    def has_clock() -> bool:
        plan = query._jsq.streamingQuery().lastExecution().executedPlan()  # type: ignore[attr-defined]
        return "decrementAndGet" in plan.toString()

    rows = 0
    try:
        # The first batch is slow, and its pace fades from batch to batch.
        while rows == 0 or (has_clock() and rows < 400):
            put_numbers(broker, into, rows, 10)
            rows += 10
            wait_for(lambda rows=rows: handle.report().arrived == rows)  # type: ignore[misc]
        assert not has_clock()
        assert handle.report().kept == rows
    finally:
        query.stop()
        handle.close()
