"""Windows of a network in real-time mode: what they count, what is kept, and what is refused before the start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.errors import EnvironmentProblem
from streamshed.lab.bench.kafka import Broker
from streamshed.network import Builder, Network
from streamshed.network.graph import InvalidNetwork
from streamshed.spark.network.real_time_network import RealTimeNetwork
from streamshed.spark.network.run_real_time import check_for_real_time
from streamshed.spark.real_time.refusals import check_real_time
from streamshed.spark.real_time.task_slots import SHUFFLE, shuffle_partitions
from tests.spark.helpers import wait_for
from tests.spark.kafka.helpers import numbers, put_numbers, read, topic
from tests.spark.kafka.windows_job import ROWS


@pytest.fixture
def one_shuffle_partition(spark: SparkSession) -> Iterator[None]:
    """Both stages of a real-time query run at once, and the tests have two slots."""
    before = spark.conf.get(SHUFFLE)
    spark.conf.set(SHUFFLE, "1")
    yield
    spark.conf.set(SHUFFLE, before)  # type: ignore[arg-type]


def windows() -> Network:
    """Two ways into one window, a map and a filter behind it."""
    return (
        Builder("counted")
        .source("events", "n INT, at TIMESTAMP", arrived="at", watermark="1 hour", rate=1000)
        .filter("even", "events", "n % 2 = 0", cost=0.001, selectivity=0.5)
        .map("third", "events", {"n": "n", "at": "at", "third": "n % 3"}, cost=0.001)
        .filter("threes", "third", "third = 0", cost=0.001, selectivity=0.34)
        .map("again", "threes", {"n": "n", "at": "at"}, cost=0.001)
        .union("both", ["even", "again"])
        .map("keyed", "both", {"n": "n", "at": "at", "last": "n % 5"})
        .aggregate(
            "counts", "keyed", "1 minute",
            {"rows": "count(*)", "total": "sum(n)", "most": "max(n)", "kinds": "count_distinct(n)"}, by=["last"],
        )
        .filter("some", "counts", "last < 4", cost=0.0001, selectivity=0.8)
        .map("told", "some", {"at": "window_start", "last": "last", "rows": "rows", "total": "total",
                              "most": "most", "kinds": "kinds"})
        .output("counted", "told", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )  # fmt: skip


def events(spark: SparkSession, broker: Broker, into: str) -> DataFrame:
    return numbers(read(spark, broker, into)).select("n", F.col("timestamp").alias("at"))


def newest(broker: Broker, out: str) -> dict[str, dict[str, Any]]:
    """The last result of each window and group, by the key of its messages."""
    found: dict[str, dict[str, Any]] = {}
    for message in broker.messages(out, quiet=0.5):
        found[message.key().decode()] = json.loads(message.value())
    return found


def wait_for_books(running: RealTimeNetwork, rows: int) -> None:
    """Wait until every query's batches with these rows are over."""

    def over() -> bool:
        assert running.failure() is None
        return len(running.report().by_query) == len(running.queries) and all(
            report.arrived == rows for report in running.report().by_query.values()
        )

    wait_for(over, seconds=200)


@pytest.mark.spark
@pytest.mark.usefixtures("one_shuffle_partition")
def test_windows_have_the_rows_of_all_ways(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    into, out = topic(broker), topic(broker)
    with ss.run(
        spark,
        windows(),
        sources={"events": events(spark, broker, into)},
        sinks={"counted": {"format": "kafka", "options": broker.sink(out)}},
        policy="lsrm-random",
        latency="1 hour",
        state=str(tmp_path),
        trigger={"realTime": "6 seconds"},
    ) as running:
        assert isinstance(running, RealTimeNetwork)
        assert list(running.queries) == ["counted-counted"]
        put_numbers(broker, into, 0, 600, age=180.0)
        put_numbers(broker, into, 600, 400, age=60.0)
        wait_for_books(running, 1000)
    report = running.report()
    wanted = []
    for first, last in ((0, 600), (600, 1000)):
        for group in range(4):
            rows = [n for n in range(first, last) for each in (2, 3) if n % each == 0 and n % 5 == group]
            wanted.append((group, len(rows), sum(rows), max(rows), len(set(rows))))
    found = [
        tuple(row[name] for name in ("last", "rows", "total", "most", "kinds"))
        for row in newest(broker, out).values()
    ]
    assert sorted(found) == sorted(wanted)
    assert (report.arrived, report.kept, report.shed, report.unseen) == (1000, 1000, 0, 0)
    assert report.by_arc["keyed->counts"].arrived == 500 + 334
    # Each row that goes in gives a result anew.
    assert report.by_arc["counts->some"].arrived == 500 + 334
    assert report.by_output["counted"].delivered == sum(
        n % 5 < 4 for n in range(1000) for each in (2, 3) if n % each == 0
    )
    assert report.by_output["counted"].sic == 1.0
    # State has as many partitions as it began with, whatever the session says by now.
    spark.conf.set(SHUFFLE, "7")
    assert shuffle_partitions(spark, str(tmp_path / "query-counted")) == 1
    assert shuffle_partitions(spark, str(tmp_path / "nothing")) == 7


@pytest.mark.spark
@pytest.mark.complains  # of a batch of old rows alone
@pytest.mark.usefixtures("one_shuffle_partition")
def test_windows_count_what_the_books_say_was_kept(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    into, out = topic(broker), topic(broker)
    made = (
        Builder("thinned")
        .source("events", "n INT, at TIMESTAMP", arrived="at", watermark="1 hour", rate=1000,
                protect="n % 10 = 9", protected=0.1)
        .filter("even", "events", "n % 20 >= 5", cost=0.001, selectivity=0.75)
        .map("keyed", "even", {"at": "at", "last": "n % 5"})
        .aggregate("counts", "keyed", "1 minute", {"rows": "count(*)"}, by=["last"])
        .output("counted", "counts", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )  # fmt: skip
    # The second run goes on with the state, and with the books, of the first.
    for run in (1, 2):
        put_numbers(broker, into, run * ROWS, ROWS, age=60.0)
        with ss.run(
            spark,
            made,
            sources={"events": events(spark, broker, into)},
            sinks={"counted": {"format": "kafka", "options": broker.sink(out), "mode": "update"}},
            policy="lsrm-random",
            latency="200 ms",
            state=str(tmp_path),
            trigger={"realTime": "6 seconds"},
        ) as running:
            assert isinstance(running, RealTimeNetwork)
            wait_for_books(running, run * ROWS)
    report = running.report()
    counted = sum(row["rows"] for row in newest(broker, out).values())
    assert report.shed > 0
    assert counted == report.by_arc["keyed->counts"].kept == report.by_output["counted"].delivered
    assert counted >= 2 * ROWS // 10  # what is protected
    assert running.by_row.arrived == 2 * ROWS
    part = report.by_output["counted"]
    assert part.windowed
    assert part.sic == pytest.approx(report.by_arc["events->even"].kept / (2 * ROWS))
    assert part.utility == pytest.approx(part.sic)


@pytest.mark.cluster
def test_a_window_runs_beside_outputs_without_one(broker: Broker, tmp_path: Path) -> None:
    """In a Spark of its own: three queries want five slots."""
    into, *outs = (topic(broker) for _ in range(4))
    command = [sys.executable, "-m", "tests.spark.kafka.windows_job", str(tmp_path), broker.address, into, *outs]
    put_numbers(broker, into, 0, ROWS, age=60.0)
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["queries"] == ["beside", "beside-tumbling", "beside-sliding"]
    rows = [json.loads(message.value())["n"] for message in broker.messages(outs[0], quiet=0.5)]
    tumbling, sliding = (sum(row["rows"] for row in newest(broker, out).values()) for out in outs[1:])
    kept = {name: told["kept"][name] for name in told["queries"]}
    assert told["arrived"] == dict.fromkeys(told["queries"], ROWS)
    assert len(rows) == len(set(rows)) == kept["beside"]["even->rows"] < ROWS // 2
    assert tumbling == kept["beside-tumbling"]["events->tumble"] < ROWS
    assert sliding == 2 * kept["beside-sliding"]["even->slide"]
    assert "1 needed (another: 1 to read), 5 there, of which other real-time queries hold 5" in told["slots"]


@pytest.mark.spark
def test_too_few_slots_are_told_before_the_start(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    into, out = topic(broker, partitions=3), topic(broker)
    spark.conf.set(SHUFFLE, "2")
    words = r"5 needed \(counted-counted: 3 to read and 2 behind its shuffle\), 2 there"
    with pytest.raises(EnvironmentProblem, match=words):
        ss.run(
            spark,
            windows(),
            sources={"events": events(spark, broker, into)},
            sinks={"counted": {"format": "kafka", "options": broker.sink(out)}},
            policy="lsrm-random",
            latency="200 ms",
            trigger="real-time",
        )
    assert not spark.streams.active


def boxed() -> Builder:
    return Builder("refused").source("events", "n INT, at TIMESTAMP", arrived="at", watermark="1 second")


KAFKA = {"format": "kafka", "options": {"topic": "a"}}


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (boxed().top_k("best", "events", 3, "n", "1 minute").output("o", "best"), r"boxes\.best.*micro-batches"),
        (
            boxed().count_window("full", "events", 10, {"rows": "count(*)"}).output("o", "full"),
            r"boxes\.full.*micro-batches",
        ),
        (
            boxed()
            .source("others", "n INT, since TIMESTAMP", arrived="since", watermark="1 second")
            .join("pair", ["events", "others"], ["n"], "1 second")
            .output("o", "pair"),
            r"boxes\.pair.*micro-batches",
        ),
        (
            boxed().udf("called", "events", "math:sqrt", ["n"], "root DOUBLE").output("o", "called"),
            r"boxes\.called.*micro-batches",
        ),
        (
            boxed()
            .aggregate("minute", "events", "1 minute", {"rows": "count(*)"})
            .aggregate("hour", "events", "1 hour", {"rows": "count(*)"})
            .union("all", ["minute", "hour"])
            .output("o", "all"),
            r"boxes\.all.*unites no results of windows",
        ),
    ],
)
def test_what_real_time_mode_does_not_run_is_named(network: Builder, words: str) -> None:
    with pytest.raises(InvalidNetwork, match=words):
        check_for_real_time(network.build(), {"o": KAFKA})


def test_a_window_cannot_wait_for_its_end_in_real_time_mode() -> None:
    made = boxed().aggregate("minute", "events", "1 minute", {"rows": "count(*)"}).output("o", "minute").build()
    with pytest.raises(InvalidNetwork, match="mode: append"):
        check_for_real_time(made, {"o": {**KAFKA, "mode": "append"}})
    topics, options = check_for_real_time(made, {"o": KAFKA})
    assert (topics, options) == ({"o": "a"}, {"o": {}})


def test_windows_need_a_newer_spark_than_the_mode() -> None:
    check_real_time("4.1.0")
    with pytest.raises(EnvironmentProblem, match="no windows in real-time mode"):
        check_real_time("4.2.1", windows=True)
    check_real_time("4.3.0", windows=True)
