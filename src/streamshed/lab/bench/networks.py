"""Networks that the benchmarks run, beside the same thing written by hand; and how one is drained."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.lab.bench import jobs
from streamshed.lab.bench.play import Workplace
from streamshed.lab.bench.standing import FILES
from streamshed.network import Builder, Network
from streamshed.records import Drop


def fan_out(outputs: int) -> Network:
    """One source of JSON, one shared step, and so many outputs of a filter and a map each."""
    builder = Builder(f"fan-out-{outputs}").source(
        "lines", jobs.SCHEMA, parse="json", rate=10_000, values={"v": (0, 100)}
    )
    builder.map("shared", "lines", {"id": "id", "user": "user", "v": "v", "load": "v * work"})
    for number in range(outputs):
        builder.filter(f"f{number}", "shared", f"v > {low(number)} AND v < {low(number) + 40}", selectivity=0.4)
        builder.map(f"m{number}", f"f{number}", {"id": "id", "user": "user", "score": f"load * {number + 1} + v"})
        builder.output(f"o{number}", f"m{number}")
    return builder.build()


def low(number: int) -> int:
    return 3 * (number % 20)


@dataclass(frozen=True)
class Took:
    """How long a backlog took."""

    wall: float
    """Seconds from start to end, with what it takes to start a query."""
    batches: float
    """Seconds of its batches alone."""


def took(begin: float, queries: Iterable[StreamingQuery]) -> Took:
    """For queries that have just ended."""
    wall = time.perf_counter() - begin
    reports = [jobs.as_dict(report) for query in queries for report in query.recentProgress]
    return Took(wall, sum(r["durationMs"]["triggerExecution"] for r in reports if r["numInputRows"]) / 1000)


def lines(spark: SparkSession, source: Path) -> DataFrame:
    return spark.readStream.format("text").option("maxFilesPerTrigger", FILES).load(str(source))


def parsed(rows: DataFrame) -> DataFrame:
    """By hand: the parse and the shared step."""
    fields = rows.select(F.from_json("value", jobs.SCHEMA).alias("r")).select("r.*")
    return fields.select("id", "user", "v", (F.col("v") * F.col("work")).alias("load"))


def branch(rows: DataFrame, number: int) -> DataFrame:
    """By hand: one output."""
    kept = rows.where(f"v > {low(number)} AND v < {low(number) + 40}")
    return kept.select("id", "user", (F.col("load") * (number + 1) + F.col("v")).alias("score"))


def compiled(
    spark: SparkSession, place: Workplace, source: Path, network: Network, drops: Sequence[Drop] | None = None
) -> Took:
    """How long a network takes to drain a backlog."""
    rows = lines(spark, source)
    begin = time.perf_counter()
    running = ss.run(
        spark,
        network,
        sources={"lines": rows},
        sinks={output.name: "noop" for output in network.outputs},
        latency="1 hour",
        state=str(place.fresh("state")),
        trigger={"availableNow": True},
        pin=drops,
    )
    for query in running.queries.values():
        query.awaitTermination()
    time_taken = took(begin, running.queries.values())
    running.await_termination()
    return time_taken


def standing(spark: SparkSession, place: Workplace, source: Path, network: Network) -> StreamingQuery:
    """A network without state, with nothing to shed: its one query."""
    running = ss.run(
        spark,
        network,
        sources={"lines": lines(spark, source)},
        sinks={output.name: "noop" for output in network.outputs},
        latency="1 hour",
        state=str(place.fresh("state")),
    )
    (query,) = running.queries.values()
    return query


def plain(spark: SparkSession, place: Workplace, source: Path, number: int, **trigger: bool) -> StreamingQuery:
    """By hand: a query for one output."""
    made = branch(parsed(lines(spark, source)), number).writeStream.format("noop")
    made = made.option("checkpointLocation", str(place.fresh("state")))
    return (made.trigger(**trigger) if trigger else made).start()


def shared(spark: SparkSession, place: Workplace, source: Path, outputs: int, **trigger: bool) -> StreamingQuery:
    """By hand: `foreachBatch`, with what is shared persisted."""

    def write(rows: DataFrame, _: int) -> None:
        kept = parsed(rows).persist()
        for number in range(outputs):
            branch(kept, number).write.format("noop").mode("append").save()
        kept.unpersist()

    made = lines(spark, source).writeStream.foreachBatch(write)
    made = made.option("checkpointLocation", str(place.fresh("state")))
    return (made.trigger(**trigger) if trigger else made).start()


def separate(spark: SparkSession, place: Workplace, source: Path, outputs: int) -> Took:
    """By hand: a query for every output, all at the same time."""
    begin = time.perf_counter()
    queries = [plain(spark, place, source, number, availableNow=True) for number in range(outputs)]
    for query in queries:
        query.awaitTermination()
    return took(begin, queries)


def by_batch(spark: SparkSession, place: Workplace, source: Path, outputs: int) -> Took:
    """By hand: one query for all of them."""
    begin = time.perf_counter()
    query = shared(spark, place, source, outputs, availableNow=True)
    query.awaitTermination()
    return took(begin, [query])
