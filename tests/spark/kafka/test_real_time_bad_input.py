"""What cannot be shed in real-time mode is said before anything starts; what goes wrong later keeps rows."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.lab.bench.kafka import Broker
from streamshed.spark.real_time.refusals import check_real_time
from tests.spark.helpers import stream, wait_for
from tests.spark.kafka.helpers import numbers, numbers_in, put_numbers, read, running, topic, wait_for_numbers

pytestmark = pytest.mark.spark


@pytest.fixture
def events(spark: SparkSession, source: Path) -> DataFrame:
    return stream(spark, source)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "needs to know when each arrived"),
        ({"arrived": "id"}, "must be a timestamp"),
        ({"arrived": "at", "classes": {"others": "id = 1"}}, "'others' is there already"),
        ({"arrived": "at", "classes": {"gold": "id"}}, "class 'gold' must be true or false"),
        ({"arrived": "at", "classes": {"gold": ("id = 1", 2.0)}}, "share of class 'gold' must be a share"),
        ({"arrived": "at", "classes": {}}, "between one and 15"),
        ({"arrived": "at", "value": "priority"}, "value must be a number"),
        ({"arrived": "at", "value": "nonsense +"}, "value is not an expression"),
        ({"arrived": "at", "cost": "priority"}, "cost must be a number"),
        ({"arrived": "at", "cost": len}, "calls no Python functions, and ss.load_aware"),
        ({"arrived": "at", "cost_key": "whom"}, "cost_key names a column that the stream does not have"),
        ({"arrived": "at", "cost_key": ["user", "whom"]}, "cost_key names a column that the stream does not have"),
        ({"arrived": "at", "cost_key": []}, "cost_key must name at least one column"),
        ({"arrived": "at", "cost_key": len}, "cost_key must name a column"),
        ({"arrived": "at", "cost_key": "user", "cost": "id"}, "either given or learned"),
        ({"arrived": "at", "weight": "w"}, "weight has no meaning"),
        ({"arrived": "at", "rotate": "1 hour"}, "rotate has no meaning"),
    ],
)
def test_arguments_are_checked_before_anything_starts(
    events: DataFrame, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ss.InvalidArgument, match=problem):
        ss.shed(events, "200 ms", trigger="real-time", **arguments)


def test_other_triggers_and_parameters_of_the_other_mode_are_refused(events: DataFrame) -> None:
    with pytest.raises(ss.InvalidArgument, match="no such trigger"):
        ss.shed(events, "4 seconds", trigger="continuous")
    with pytest.raises(ss.InvalidArgument, match="classes has no meaning without"):
        ss.shed(events, "4 seconds", classes={"gold": "id = 1"})
    with pytest.raises(ss.InvalidArgument, match="cost has no meaning without"):
        ss.shed(events, "4 seconds", cost="id")
    with pytest.raises(ss.InvalidArgument, match=r"cost_key has no meaning without(.|\n)*ss\.load_aware"):
        ss.shed(events, "4 seconds", cost_key="user")


def test_a_cost_key_has_to_be_of_a_kind_that_spark_can_hash(events: DataFrame) -> None:
    labelled = events.withColumn("labels", F.create_map(F.lit("a"), F.col("id")))
    with pytest.raises(ss.InvalidArgument, match=r"of a type that Spark can hash(.|\n)*map<"):
        ss.shed(labelled, "200 ms", arrived="at", trigger="real-time", cost_key=["user", "labels"])


def test_steps_that_real_time_mode_refuses_are_named(spark: SparkSession, events: DataFrame, source: Path) -> None:
    python = F.udf(lambda n: n, "long")
    for argument in ("value", "cost"):
        with pytest.raises(ss.InvalidArgument, match="calls a Python function"):
            ss.shed(events, "200 ms", arrived="at", trigger="real-time", **{argument: python("id")})
    for refused, what in (
        (events.withColumn("x", python("id")), "calls a Python function"),
        (events.mapInPandas(lambda frames: frames, events.schema), "calls a Python function"),
        (events.union(events), "unites a stream with itself"),
        (events.join(stream(spark, source).select("id"), "id"), "joins two streams"),
        (events.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"]), "drops duplicates"),
    ):
        with pytest.raises(ss.InvalidArgument, match=what):
            ss.shed(refused, "200 ms", arrived="at", trigger="real-time")
    table = spark.range(10).toDF("id")
    for allowed in (events.join(table, "id"), events.withWatermark("at", "1 hour").dropDuplicates(["id", "at"])):
        ss.handle(ss.shed(allowed, "200 ms", arrived="at", trigger="real-time")).close()


def test_a_spark_without_real_time_mode_is_refused() -> None:
    with pytest.raises(ss.EnvironmentProblem, match="no real-time mode"):
        check_real_time("4.0.1")
    check_real_time("4.3.0")


@pytest.mark.complains
def test_another_trigger_gets_a_warning_and_all_of_its_rows(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    into, out = topic(broker), topic(broker)
    kept = ss.shed(numbers(read(spark, broker, into)), "50 ms", trigger="real-time", floor=0.0, name="other")
    put_numbers(broker, into, 0, 5000, age=60.0)
    with (
        caplog.at_level(logging.WARNING),
        running(kept.select("value"), broker, out, tmp_path, processingTime="0 seconds") as query,
    ):
        found = wait_for_numbers(broker, out, 4999, query)
    assert sorted(found) == list(range(5000))
    assert "all of its rows are kept" in caplog.text
    ss.handle("other").close()


@pytest.mark.complains
def test_a_stream_that_is_shed_for_micro_batches_keeps_all_rows_in_real_time_mode(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its batches have a time budget, which a batch of real-time mode has used up after a moment."""
    into, out = topic(broker), topic(broker)
    kept = ss.shed(numbers(read(spark, broker, into)), "400 ms", floor=0.0, name="micro")
    with (
        caplog.at_level(logging.WARNING),
        running(kept.select("value"), broker, out, tmp_path, batch="6 seconds") as query,
    ):
        put_numbers(broker, into, 0, 10)
        wait_for_numbers(broker, out, 9, query)
        time.sleep(1.0)
        rows = 20_000
        put_numbers(broker, into, 10, rows)
        wait_for(lambda: ss.handle("micro").report().arrived == 10 + rows)  # the batch is over
        put_numbers(broker, into, 10 + rows, rows)
        wait_for(lambda: ss.handle("micro").report().arrived == 10 + 2 * rows)
    assert sorted(numbers_in(broker, out)) == list(range(10 + 2 * rows))
    assert "shed for micro-batches: all of its rows are kept" in caplog.text
    ss.handle("micro").close()
