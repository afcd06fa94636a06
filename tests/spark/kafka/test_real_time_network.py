"""A network in real-time mode, from Kafka to Kafka: the road map on the age ladder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.errors import InvalidArgument
from streamshed.lab.bench.kafka import Broker
from streamshed.network import Builder, Network
from streamshed.spark.network.real_time_network import RealTimeNetwork
from tests.spark.helpers import wait_for
from tests.spark.kafka.helpers import numbers, put_numbers, read, topic

pytestmark = pytest.mark.spark
ROWS = 20_000


def network(*, by_value: bool = False) -> Network:
    """Even numbers go one way, all of them doubled another; numbers that end in 9 are protected."""
    worth: dict[str, Any] = (
        {"value": ("n", [[0, 10_000, 0.1], [10_000, 10_000_000, 1.0]])}
        if by_value
        else {"loss": [(100, 1.0), (0, 0.0)]}
    )
    values = {"n": (0, ROWS)} if by_value else {}
    return (
        Builder("sorted")
        .source("events", "n INT, at TIMESTAMP", arrived="at", rate=1000, protect="n % 10 = 9", protected=0.1,
                values=values)
        .filter("even", "events", "n % 2 = 0", cost=0.001, selectivity=0.5)
        .map("twice", "events", {"n": "n", "double": "n * 2"}, cost=0.002)
        .output("evens", "even", **worth)
        .output("all", "twice", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )  # fmt: skip


def events(spark: SparkSession, broker: Broker, into: str) -> DataFrame:
    return numbers(read(spark, broker, into)).select("n", F.col("timestamp").alias("at"))


def sinks(broker: Broker, evens: str, everything: str) -> dict[str, Any]:
    return {
        "evens": {"format": "kafka", "options": broker.sink(evens)},
        "all": {"format": "kafka", "options": broker.sink(everything)},
    }


def came(broker: Broker, out: str) -> list[int]:
    return [json.loads(message.value())["n"] for message in broker.messages(out, quiet=0.5)]


def wait_for_books(running: RealTimeNetwork, rows: int) -> None:
    """Wait until the batches with these rows are over; batches on a busy machine may take a while to end."""
    try:
        wait_for(lambda: running.report().arrived == rows, seconds=200)
    except AssertionError:
        reports = (
            []
            if running.query is None
            else [(each.batchId, each.numInputRows) for each in running.query.recentProgress]
        )
        raise AssertionError(f"books: {running.report().by_source}; Spark's reports: {reports}") from None


def wait_for_last(broker: Broker, out: str, wanted: int, running: RealTimeNetwork) -> None:
    consumer, seen = broker.consumer(out), set[int]()

    def there() -> bool:
        assert running.failure() is None
        messages = consumer.consume(10_000, timeout=0.1)
        seen.update(json.loads(message.value())["n"] for message in messages if message.error() is None)
        return wanted in seen

    try:
        wait_for(there)
    finally:
        consumer.close()


def test_young_rows_come_to_every_output_and_are_counted(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    into, evens, everything = topic(broker), topic(broker), topic(broker)
    with ss.run(
        spark,
        network(),
        sources={"events": events(spark, broker, into)},
        sinks=sinks(broker, evens, everything),
        policy="lsrm-random",
        latency="1 hour",
        state=str(tmp_path),
        trigger={"realTime": "5 seconds"},
    ) as running:
        assert isinstance(running, RealTimeNetwork)
        assert ss.handle("sorted") is running
        put_numbers(broker, into, 0, 1000)
        wait_for_last(broker, everything, 999, running)
        wait_for_books(running, 1000)
    report = running.report()
    assert (report.kept, report.shed, report.unseen) == (1000, 0, 0)
    assert sorted(came(broker, evens)) == list(range(0, 1000, 2))
    assert sorted(came(broker, everything)) == list(range(1000))
    assert report.by_output["evens"].delivered == 500
    assert report.by_output["all"].delivered == 1000
    assert report.by_arc["events->even"].arrived == 1000
    assert sum(running.by_row.shed) == 0


@pytest.mark.complains  # of a batch of old rows alone
@pytest.mark.parametrize("policy", ["lsrm-random", "lsrm-semantic"])
def test_old_rows_go_by_the_road_map_and_protected_ones_stay(
    spark: SparkSession, broker: Broker, tmp_path: Path, policy: str
) -> None:
    """Rows that seem a minute old meet the last row of the road map, which spares what is protected."""
    into, evens, everything = topic(broker), topic(broker), topic(broker)
    with ss.run(
        spark,
        network(by_value=policy == "lsrm-semantic"),
        sources={"events": events(spark, broker, into)},
        sinks=sinks(broker, evens, everything),
        policy=policy,
        latency="200 ms",
        state=str(tmp_path),
        trigger={"realTime": "8 seconds"},
    ) as running:
        assert isinstance(running, RealTimeNetwork)
        put_numbers(broker, into, 0, ROWS, age=60.0)
        put_numbers(broker, into, ROWS + 9, 1)  # protected
        wait_for_last(broker, everything, ROWS + 9, running)
        wait_for_books(running, ROWS + 1)
        report = running.report()
    all_of_them, some = came(broker, everything), came(broker, evens)
    protected = set(range(9, ROWS, 10))
    assert protected <= set(all_of_them)
    assert len(all_of_them) == report.by_output["all"].delivered < ROWS
    assert len(some) == report.by_output["evens"].delivered < ROWS // 2
    assert report.shed > 0
    assert report.by_arc["events->twice"].shed == ROWS + 1 - len(all_of_them)
    assert running.by_row.shed[-1] > 0  # the last row of the road map was in force
    assert 0.0 <= (report.by_output["all"].utility or 0.0) < 1.0


def test_settings_change_in_a_running_batch(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    into, evens, everything = topic(broker), topic(broker), topic(broker)
    with ss.run(
        spark,
        network(),
        sources={"events": events(spark, broker, into)},
        sinks=sinks(broker, evens, everything),
        policy="lsrm-random",
        latency="200 ms",
        mode="dry-run",
        state=str(tmp_path),
        trigger="real-time",
    ) as running:

        def send(first: int) -> int:
            """How many of some rows that seem a minute old came through."""
            put_numbers(broker, into, first, ROWS, age=60.0)
            put_numbers(broker, into, first + ROWS + 9, 1)  # protected
            wait_for_last(broker, everything, first + ROWS + 9, running)
            return sum(first <= n < first + ROWS for n in came(broker, everything))

        assert send(0) == ROWS  # dry-run
        running.mode = "enforce"
        for number in range(5):
            put_numbers(broker, into, 900_009 + 10 * number, 1)
            wait_for_last(broker, everything, 900_009 + 10 * number, running)
            time.sleep(0.11)
        assert send(100_000) < ROWS
        assert running.query is not None
        assert running.query.lastProgress is None


def test_raw_sources_that_meet_in_a_union_are_parsed_and_counted(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    left, right, evens, everything = (topic(broker) for _ in range(4))
    builder = Builder("united")
    for name in ("left", "right"):
        builder.source(
            name, "n INT, at TIMESTAMP", arrived="at", rate=100, parse={"format": "json", "column": "value"}
        )
    made = (
        builder.filter("even", "left", "n % 2 = 0", selectivity=0.5).union("both", ["even", "right"])
        .filter("small", "both", "n < 700", selectivity=0.7)
        .output("evens", "small").output("all", "both").build()
    )  # fmt: skip
    sources = {
        name: read(spark, broker, into).select("value", F.col("timestamp").alias("at"))
        for name, into in (("left", left), ("right", right))
    }
    with ss.run(
        spark,
        made,
        sources=sources,
        sinks=sinks(broker, evens, everything),
        policy="lsrm-random",
        latency="1 hour",
        state=str(tmp_path),
        trigger={"realTime": "5 seconds"},
    ) as running:
        assert isinstance(running, RealTimeNetwork)
        put_numbers(broker, left, 0, 500)
        put_numbers(broker, right, 500, 500)
        wait_for_last(broker, everything, 498, running)
        wait_for_last(broker, everything, 999, running)
        wait_for_books(running, 1000)
    report = running.report()
    assert sorted(came(broker, everything)) == [*range(0, 500, 2), *range(500, 1000)]
    assert sorted(came(broker, evens)) == [*range(0, 500, 2), *range(500, 700)]
    assert {name: rows.arrived for name, rows in report.by_source.items()} == {"left": 500, "right": 500}
    assert report.by_arc["even->both"].arrived == 250
    assert report.by_arc["both->small"].arrived == 750
    assert report.by_output["evens"].delivered == 450


def test_what_real_time_mode_does_not_run_is_named_before_anything_starts(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    into = topic(broker)
    rows = events(spark, broker, into)
    out = sinks(broker, "a", "b")
    stateful = (
        Builder("w").source("events", "n INT, at TIMESTAMP", arrived="at", watermark="1 second")
        .top_k("best", "events", 3, "n", "1 second").output("evens", "best").build()
    )  # fmt: skip
    cases: list[tuple[Network, dict[str, Any], dict[str, Any], str]] = [
        (stateful, {"evens": out["evens"]}, {}, "boxes.best"),
        (network(), {**out, "all": "memory"}, {}, "outputs.all.write"),
        (network(), {**out, "all": {"format": "kafka", "options": {"topic": "b"}}}, {}, "same options"),
        (
            network(),
            {**out, "all": {"format": "kafka", "options": {"kafka.bootstrap.servers": "x:1"}}},
            {},
            "no topic",
        ),
        (network(), out, {"policy": "random"}, "road map"),
        (network(), out, {"budget": False}, "budget"),
        (network(), out, {"max_shed": 0.5}, "max_shed"),
        (network(), out, {"trigger": {"realTime": "soon"}}, "realTime"),
    ]
    for made, where, others, words in cases:
        before = len(spark.streams.active)
        with pytest.raises(InvalidArgument, match=words):
            ss.run(
                spark,
                made,
                sources={"events": rows},
                sinks=where,
                latency="200 ms",
                **({"trigger": "real-time", "policy": "lsrm-random"} | others),
            )
        assert len(spark.streams.active) == before
    undated = Builder("u").source("events", "n INT").output("evens", "events").build()
    with pytest.raises(InvalidArgument, match="sheds by the age of rows"):
        ss.run(spark, undated, sources={"events": rows}, sinks={"evens": out["evens"]}, trigger="real-time")
    twice = (
        Builder("t")
        .source("a", "n INT, at TIMESTAMP", arrived="at").source("b", "n INT, at TIMESTAMP", arrived="at")
        .union("both", ["a", "b"], cost=0.001).output("evens", "both").build()
    )  # fmt: skip
    with pytest.raises(InvalidArgument, match="unites a stream with itself"):
        ss.run(
            spark,
            twice,
            sources={"a": rows, "b": rows},
            sinks={"evens": out["evens"]},
            policy="lsrm-random",
            latency="200 ms",
            trigger="real-time",
        )
    assert not spark.streams.active
