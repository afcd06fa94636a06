"""Plays a schedule of arrivals to a network, and measures what each output got of it, and how late.

Rows come in files at known times (`feeder`); every output must hand on the arrival time, as `at`. What a row is
worth to an output is what its value graph says, and what the latency graph makes of the time from its arrival to
the commit of the batch that delivered it, with its wait in the source. Of an output with a loss graph only, a row
that comes late counts for so much of a row, and the graph says what the share that came is worth. Rows that never
came are worth nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
import streamshed.lab.bench.play as playing
from streamshed.lab.bench import jobs
from streamshed.lab.bench.capacity import fastest
from streamshed.lab.bench.feeder import Feeder, Lines, Rate, put
from streamshed.lab.bench.jobs import Run, weighted_quantile
from streamshed.lab.bench.play import Say, Workplace
from streamshed.network import Network
from streamshed.network.graph import Output
from streamshed.network.qos import ValueGraph
from streamshed.quality import Report
from streamshed.records import Sample
from streamshed.spark.network.calibrate import Measured, calibrate, with_costs
from streamshed.spark.network.run import RunningNetwork

Numbers = npt.NDArray[np.float64]


def worth(graph: ValueGraph | None) -> Column:
    """What a value graph says of a row; 1 without one."""
    if graph is None:
        return F.lit(1.0)
    value, found = F.col(graph.field), F.lit(0.0)
    for one in graph.intervals:
        along = (value - one.low) / (one.high - one.low)
        here = F.lit(one.utility) + (one.end - one.utility) * along
        found = F.when((value >= one.low) & (value <= one.high), here).otherwise(found)
    return found


class Received:
    """A sink that counts: rows and their worth, by batch and time of arrival."""

    def __init__(self, output: Output) -> None:
        self._worth = worth(output.qos.value)
        self.entries: list[tuple[int, float, int, float]] = []

    def __call__(self, rows: DataFrame, batch: int) -> None:
        found = rows.groupBy("at").agg(F.count("*"), F.sum(self._worth)).collect()
        self.entries.extend((batch, row[0].timestamp(), int(row[1]), float(row[2])) for row in found)

    @property
    def rows(self) -> int:
        return sum(rows for _, _, rows, _ in list(self.entries))


@dataclass(frozen=True)
class Able:
    """What a network can do here, and what its rows are worth."""

    rate: float
    """Rows per second that it just processes."""
    rows: Mapping[str, float]
    """Rows that each output gets for each that arrives, if all are kept."""
    worth: Mapping[str, float]
    """What they are worth, in time."""


@dataclass(frozen=True)
class Heard:
    """What one output got: groups of rows that arrived and came together. Times since the feeder started."""

    arrivals: Numbers
    latencies: Numbers
    rows: Numbers
    worth: Numbers


@dataclass(frozen=True)
class Played:
    """What a network did with a schedule, under one policy."""

    policy: str
    network: Network
    run: Run
    heard: Mapping[str, Heard]
    report: Report
    plans: list[tuple[float, str]] = field(default_factory=list)
    """Each change of plan: when, and why."""
    samples: list[Sample] = field(default_factory=list)
    """What each batch counted; times since the feeder started."""

    def arrived(self, after: float = 0.0, until: float = float("inf")) -> float:
        """Rows that arrived in a span of time."""
        when = [*(b.arrivals for b in self.run.batches), self.run.ended - self.run.waiting]
        rows = [*(b.rows for b in self.run.batches), self.run.waiting_rows]
        at, count = np.concatenate(when), np.concatenate(rows)
        return float(count[(at >= after) & (at < until)].sum())

    def utility(self, output: Output, able: Able, after: float = 0.0, until: float = float("inf")) -> float:
        """What an output got of the arrivals in a span of time, of what all of them in time are worth to it."""
        heard, graph = self.heard[output.name], output.qos.latency
        inside = (heard.arrivals >= after) & (heard.arrivals < until)
        late = np.ones(int(inside.sum())) if graph is None else graph.many(heard.latencies[inside])
        whole = self.arrived(after, until)
        if output.qos.loss is None or output.qos.value is not None:
            return float((heard.worth[inside] * late).sum()) / (whole * able.worth[output.name])
        share = float((heard.rows[inside] * late).sum()) / (whole * able.rows[output.name])
        return output.qos.loss(min(100.0, 100.0 * share))

    def utilities(self, able: Able, after: float = 0.0, until: float = float("inf")) -> dict[str, float]:
        return {output.name: self.utility(output, able, after, until) for output in self.network.outputs}

    def delivered(self, name: str, able: Able, after: float = 0.0, until: float = float("inf")) -> float:
        """Share of its rows that an output got, however late."""
        heard = self.heard[name]
        inside = (heard.arrivals >= after) & (heard.arrivals < until)
        return float(heard.rows[inside].sum()) / (self.arrived(after, until) * able.rows[name])

    def in_time(self, bound: float, able: Able, after: float = 0.0, until: float = float("inf")) -> float:
        """Share of all that the outputs should get that they got within the bound."""
        got = sum(
            float(h.rows[(h.arrivals >= after) & (h.arrivals < until) & (h.latencies <= bound)].sum())
            for h in self.heard.values()
        )
        return got / (self.arrived(after, until) * sum(able.rows.values()))

    def latency(self, quantile: float, able: Able, after: float = 0.0, until: float = float("inf")) -> float:
        """Quantile over all delivered rows; those still waiting at the end count with the age they have then."""
        late, weight = [], []
        for heard in self.heard.values():
            inside = (heard.arrivals >= after) & (heard.arrivals < until)
            late.append(heard.latencies[inside])
            weight.append(heard.rows[inside])
        at = self.run.ended - self.run.waiting
        inside = (at >= after) & (at < until)
        late.append(self.run.waiting[inside])
        weight.append(self.run.waiting_rows[inside] * sum(able.rows.values()))
        ages, rows = np.concatenate(late), np.concatenate(weight)
        return weighted_quantile(ages, rows, quantile) if rows.sum() > 0 else 0.0


@dataclass(frozen=True)
class Look:
    """What can be seen of a run while it plays."""

    policy: str
    second: float
    arriving: float
    """Rows per second, by the schedule."""
    batch: int
    took: float
    """Seconds that the last batch took."""
    behind: float
    """Age of the oldest row that is not committed yet, seconds."""
    arrived: int
    delivered: Mapping[str, int]
    running: RunningNetwork


def session(name: str) -> SparkSession:
    """A Spark with few tasks a job: a batch of a network is a job for what is shared and one for each output."""
    few = {"spark.sql.files.minPartitionNum": "4", "spark.sql.shuffle.partitions": "1"}
    return playing.session(name, **few)


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """Raw lines with their arrival time."""
    lines = spark.readStream.format("text").load(str(folder))
    return lines.select("value", F.col("_metadata.file_modification_time").alias("at"))


def start(
    spark: SparkSession, place: Workplace, network: Network, source: Path, policy: str, latency: float
) -> tuple[RunningNetwork, Path]:
    """A network on a folder of lines; with the policy `none` it is off: what plain Spark does.

    Of several sources, each has the lines in which its name comes first: `{"g": "NAME", …`.
    """
    state = place.fresh(policy)
    names = [each.name for each in network.sources]
    rows = {name: read(spark, source) for name in names}
    if len(names) > 1:
        rows = {name: lines.where(F.col("value").startswith(f'{{"g": "{name}"')) for name, lines in rows.items()}
    running = ss.run(
        spark,
        network,
        sources=rows,
        sinks={output.name: Received(output) for output in network.outputs},
        policy=policy,
        mode="off" if policy == "none" else "enforce",
        latency=latency,
        state=str(state),
    )
    (query,) = running.queries  # outputs with state would be queries of their own, each with batches of its own
    return running, state / query


def calibrated(
    spark: SparkSession, place: Workplace, network: Network, lines: Lines, say: Say, *, sample: int = 20_000
) -> Network:
    """The network with the costs of this machine, as `streamshed calibrate` measures them on so many rows."""
    folder = place.fresh("sample")
    lines.rewind()
    for part in range(4):
        put(folder, f"{part}.json", lines.take(sample // 4))
    rows = spark.read.text(str(folder)).withColumn("at", F.current_timestamp())
    found: dict[str, Measured] = {}
    for one in calibrate(spark, network, {source.name: rows for source in network.sources}):
        found[one.box] = one
        say(f"calibrating: {one.box} {one.cost * 1e6:.1f} µs a row")
    return with_costs(network, found)


def capacity(
    spark: SparkSession,
    place: Workplace,
    network: Network,
    lines: Lines,
    say: Say,
    *,
    seconds: float = 2.0,
    first: int = 8_000,
    most: float = 45.0,
) -> Able:
    """What a network can do in batches of about `seconds`, and what all of its rows are worth."""
    source = place.fresh("calibrate-in")
    lines.rewind()
    running, _ = start(spark, place, network, source, "none", 3600.0)
    try:
        fed = fastest(
            place.fresh("chunk"),
            source,
            lines,
            running.process_all_available,
            say,
            seconds=seconds,
            first=first,
            least=min(30.0, most),
            most=most,
        )
    finally:
        running.stop()
        shutil.rmtree(source, ignore_errors=True)
    failed = running.failure()
    if failed is not None:
        raise failed
    tallies = {name: sink.entries for name, sink in running.sinks.items()}
    return Able(
        fed.rate,
        {name: sum(entry[2] for entry in entries) / fed.rows for name, entries in tallies.items()},
        {name: sum(entry[3] for entry in entries) / fed.rows for name, entries in tallies.items()},
    )


def play(
    spark: SparkSession,
    place: Workplace,
    network: Network,
    policy: str,
    rate: Rate,
    seconds: float,
    *,
    lines: Lines,
    latency: float,
    settle: float = 0.0,
    watch: Callable[[Look], None] | None = None,
    tick: float = 0.1,
) -> Played:
    """Play a schedule to a network; the same rows each time."""
    source = place.fresh(f"{policy}-in")
    lines.rewind()
    running, state = start(spark, place, network, source, policy, latency)
    (query,) = running.queries.values()
    plans: list[tuple[float, str]] = []
    running.on_plan(lambda plan: plans.append((time.time(), plan.reason)))
    feeder = Feeder(source, rate, seconds, rows=lines, tick=tick)

    def show(begin: float, second: float) -> None:
        if watch is not None:
            watch(_look(policy, rate, begin, feeder, running))

    measured_at = playing.feed_while_running(feeder, query, seconds + settle, show, running.stop)
    run = jobs.measure(state, query, feeder.files, feeder.started_at, None, measured_at)
    shutil.rmtree(source, ignore_errors=True)
    committed = {batch.number: batch.committed for batch in run.batches}
    heard = {name: _heard(sink.entries, committed, feeder.started_at) for name, sink in running.sinks.items()}
    told = [(at - feeder.started_at, why) for at, why in plans]
    samples = [
        replace(each, at=each.at - feeder.started_at, started=each.started - feeder.started_at)
        for each in running.samples
        if each.finished
    ]
    return Played(policy, network, run, heard, running.report(), told, samples)


def _heard(
    entries: Iterable[tuple[int, float, int, float]], committed: Mapping[int, float], origin: float
) -> Heard:
    found = [
        (at - origin, committed[batch] - (at - origin), rows, worth)
        for batch, at, rows, worth in entries
        if batch in committed
    ]
    arrivals, latencies, rows, worths = np.array(found, dtype=float).reshape(-1, 4).T
    return Heard(arrivals, latencies, rows, worths)


def _look(policy: str, rate: Rate, begin: float, feeder: Feeder, running: RunningNetwork) -> Look:
    (query,) = running.queries.values()
    last, taken, took = playing.last_batch(query, begin)
    second = time.time() - begin
    return Look(
        policy,
        second,
        rate(second),
        last.get("batchId", -1),
        took,
        # A source that is empty has nothing waiting, whenever the last batch was.
        time.time() - taken if query.status["isDataAvailable"] else 0.0,
        sum(rows for _, rows in list(feeder.files.values())),
        {name: sink.rows for name, sink in running.sinks.items()},
        running,
    )


def draw_latency(axes: Any, played: Played, colour: str, label: str, style: str = "-") -> None:
    """The latency of delivered rows by their arrival; dotted what was never delivered, by its age at the end."""
    # One line through all batches: it falls within a batch, row by row, and jumps to the next.
    at = [np.sort(b.arrivals) for b in played.run.batches]
    late = [b.committed - arrivals for b, arrivals in zip(played.run.batches, at, strict=True)]
    nothing = np.array([])
    axes.plot(
        np.concatenate([nothing, *at]), np.concatenate([nothing, *late]),
        color=colour, linestyle=style, linewidth=1.8, label=label,
    )  # fmt: skip
    if len(played.run.waiting):
        ages = np.sort(played.run.waiting)[::-1]
        axes.plot(played.run.ended - ages, ages, color=colour, linestyle=":", linewidth=1.8)
