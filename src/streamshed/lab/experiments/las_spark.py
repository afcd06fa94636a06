"""Load-aware shedding on a real Spark: recorded streams, busy work, and a run of one algorithm.

The experiments of LAS V-C with real work on real cores. Rows come from a recorded stream, each at its own moment,
through a Spark source of our own; the work is a loop of digests, calibrated to milliseconds with all cores busy.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import streamshed as ss
from streamshed.extras import need
from streamshed.spark.session import local_session

CORES = 2
SCHEMA = "id LONG, key LONG, ms DOUBLE, at TIMESTAMP"
RESULT = "id LONG, info STRING"
ALGORITHMS = ("straw-man", "las", "full-knowledge")
_BLOCK = b"streamshed" * 200


@dataclass(frozen=True, eq=False)
class Recording:
    """A stream to be played: for each row its arrival (seconds since the start), key, and cost in ms."""

    at: NDArray[np.float64]
    key: NDArray[np.int64]
    ms: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def seconds(self) -> float:
        return float(self.at[-1])

    def then(self, other: Recording) -> Recording:
        """One after the other."""
        return Recording(
            np.concatenate([self.at, other.at + self.seconds]),
            np.concatenate([self.key, other.key]),
            np.concatenate([self.ms, other.ms]),
        )

    def save(self) -> str:
        with tempfile.NamedTemporaryFile(prefix="streamshed-stream-", suffix=".npz", delete=False) as file:
            np.savez(file, at=self.at, key=self.key, ms=self.ms)
            return file.name


def steady(rate: float, seconds: float, key: NDArray[np.int64], ms: NDArray[np.float64]) -> Recording:
    """Rows at an even pace, as many as fit; keys and costs are taken from the front."""
    count = min(int(rate * seconds), len(key))
    return Recording((1 + np.arange(count)) / rate, key[:count], ms[:count])


class RecordedSource(DataSource):
    """Plays a recording. Each partition gets every n-th row, in the order of arrival.

    With `rows_per_batch`, rows are all there from the start, and a batch takes so many.
    """

    @classmethod
    def name(cls) -> str:
        return "streamshed-recording"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Reader(self.options["path"], int(self.options["rows_per_batch"]))


@dataclass
class _Part(InputPartition):
    first: int
    end: int
    number: int
    origin: float


class _Reader(DataSourceStreamReader):
    def __init__(self, path: str, rows_per_batch: int) -> None:
        self.path = path
        self.rows_per_batch = rows_per_batch
        self.at: NDArray[np.float64] = np.load(path)["at"]
        self.origin = 0.0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"row": 0, "origin": 0.0}

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        start = start or self.initialOffset()
        self.origin = start["origin"] or self.origin or time.time()
        if self.rows_per_batch:
            row = min(len(self.at), start["row"] + self.rows_per_batch)
        else:
            row = int(np.searchsorted(self.at, time.time() - self.origin, side="right"))
        if row <= start["row"]:
            return start
        return {"row": row, "origin": self.origin}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [_Part(start["row"], end["row"], number, end["origin"]) for number in range(CORES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        rows = np.arange(partition.first, partition.end)
        rows = rows[rows % CORES == partition.number]
        if len(rows) == 0:
            return
        recorded = np.load(self.path)
        arrived = ((partition.origin + recorded["at"][rows]) * 1e6).astype(np.int64)
        columns = [pa.array(rows), pa.array(recorded["key"][rows]), pa.array(recorded["ms"][rows])]
        columns.append(pa.array(arrived, pa.timestamp("us", "UTC")))
        yield pa.RecordBatch.from_arrays(columns, names=["id", "key", "ms", "at"])


def loops_per_ms(seconds: float = 0.4) -> float:
    """How often this core digests the block in a millisecond."""
    digest, done = hashlib.blake2b, 0
    begin = time.perf_counter()
    while (took := time.perf_counter() - begin) < seconds:
        for _ in range(50):
            digest(_BLOCK)
        done += 50
    return done / took / 1000.0


class Busy:
    """Work of a known length: `ms` milliseconds of digests on a free core."""

    def __init__(self, loops: float) -> None:
        self.loops = loops

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        digest = hashlib.blake2b
        for _ in range(round(row["ms"] * self.loops)):
            digest(_BLOCK)
        return {"id": row["id"], "info": f"about {row['key']}"}


def session(name: str) -> SparkSession:
    spark = local_session(
        name,
        f"local[{CORES}]",
        **{
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
            "spark.log.level": "OFF",
        },
    )
    spark.dataSource.register(RecordedSource)
    return spark


def calibrated(spark: SparkSession) -> Busy:
    """Work calibrated with all cores busy, as they will be.

    The best of several rounds: whatever else runs for a moment, Spark's own start above all, only slows them.
    """
    tasks = spark.sparkContext.parallelize(range(CORES), CORES)
    measured = [tasks.map(lambda _: loops_per_ms()).collect() for _ in range(8)]
    return Busy(max(statistics.mean(each) for each in measured))


def read(spark: SparkSession, path: str, rows_per_batch: int = 0) -> DataFrame:
    reader = spark.readStream.format("streamshed-recording")
    return reader.option("path", path).option("rows_per_batch", rows_per_batch).load()


class _Waits(AccumulatorParam[dict[int, list[float]]]):
    """By batch: rows, and the sum of their waits."""

    def zero(self, value: dict[int, list[float]]) -> dict[int, list[float]]:
        return {}

    def addInPlace(  # noqa: N802
        self, value1: dict[int, list[float]], value2: dict[int, list[float]]
    ) -> dict[int, list[float]]:
        for batch, (rows, waited) in value2.items():
            told = value1.setdefault(batch, [0, 0.0])
            told[0] += rows
            told[1] += waited
        return value1


class Plain:
    """The same function in a plain `mapInArrow`, with its waits noted if an accumulator is given."""

    def __init__(self, function: Callable[[dict[str, Any]], dict[str, Any]], waits: Any = None) -> None:
        self.function = function
        self.waits = waits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([("id", pa.int64()), ("info", pa.string())])
        for batch in batches:
            rows = batch.to_pylist()
            if self.waits is None:
                yield pa.RecordBatch.from_pylist([self.function(row) for row in rows], schema)
                continue
            waited, results = 0.0, []
            for row in rows:
                waited += time.time() - row["at"].timestamp()
                results.append(self.function(row))
            context = TaskContext.get()
            assert context is not None
            number = int(context.getLocalProperty("streaming.sql.batchId") or -1)
            self.waits.add({number: [len(rows), waited]})
            yield pa.RecordBatch.from_pylist(results, schema)


@dataclass(frozen=True, slots=True)
class LivePoint:
    """One micro-batch of a run; times in seconds, `at` since the first arrival."""

    at: float
    took: float
    arrived: int
    kept: int
    wait: float
    """Mean queuing latency of the rows that ran."""
    checked: bool
    cost: float


def operator(
    events: DataFrame, busy: Busy, algorithm: str, latency: str, mean_ms: float, **settings: Any
) -> DataFrame:
    """The operator under one of the algorithms."""
    chosen: dict[str, dict[str, Any]] = {
        "las": {},
        # Knows the mean cost and nothing else, and is never told where the queue is (LAS V-A).
        "straw-man": {"cost": F.lit(mean_ms / 1000.0), "_synchronised": False},
        # The same mean, but synchronised with the clock once a batch, as LAS is.
        "mean": {"cost": F.lit(mean_ms / 1000.0)},
        "full-knowledge": {"cost": F.col("ms") / 1000.0},
        "clock": {"check": "clock"},
    }
    arguments = (
        {"cost_key": "key", "target": latency, "schema": RESULT, "arrived": "at"} | chosen[algorithm] | settings
    )
    return ss.load_aware(events, busy, **arguments)


def play(
    spark: SparkSession,
    recording: Recording,
    busy: Busy,
    algorithm: str,
    latency: str,
    mean_ms: float,
    tell: Callable[[float], None] = lambda second: None,
    **settings: Any,
) -> list[LivePoint]:
    """Play a recording to an algorithm ("plain" is Spark alone), batch by batch."""
    path = recording.save()
    events = read(spark, path)
    waits = None
    if algorithm == "plain":
        waits = spark.sparkContext.accumulator({}, _Waits())
        out = events.mapInArrow(Plain(busy, waits), RESULT)
    else:
        out = operator(events, busy, algorithm, latency, mean_ms, **settings)
    query = start(out)
    begin = time.time()
    try:
        while (second := time.time() - begin) < recording.seconds and query.isActive:
            tell(second)
            time.sleep(0.25)
        problem = query.exception()
        if problem is not None:
            raise problem
    finally:
        query.stop()
        Path(path).unlink()
    if waits is not None:
        return _plain_points(query, waits.value)
    handle = ss.load_shedder(out)
    handle.settle()
    origin = _origin(query)
    return [
        LivePoint(
            b.started - origin,
            b.at - b.started,
            b.report.arrived,
            b.report.kept,
            b.report.queue_mean,
            b.checked,
            b.report.cost_mean,
        )
        for b in handle.batches
    ]


def start(out: DataFrame) -> StreamingQuery:
    folder = tempfile.mkdtemp(prefix="streamshed-state-")
    return out.writeStream.format("noop").option("checkpointLocation", folder).start()


def _plain_points(query: StreamingQuery, waits: dict[int, list[float]]) -> list[LivePoint]:
    from streamshed.spark.watch.progress import Progress

    origin = _origin(query)
    points = []
    for report in query.recentProgress:
        progress = Progress.parse(report.json)
        rows, waited = waits.get(progress.batch, [0, 0.0])
        if progress.ran and rows:
            points.append(
                LivePoint(
                    progress.started - origin, progress.duration, int(rows), int(rows), waited / rows, False, 0.0
                )
            )
    return points


def _origin(query: StreamingQuery) -> float:
    """When the recording began, by the source's own word."""
    import json

    for report in query.recentProgress:
        end = json.loads(report.json)["sources"][0]["endOffset"]
        offset = json.loads(end) if isinstance(end, str) else end
        if offset and offset["row"]:
            return float(offset["origin"])
    return time.time()


@dataclass(frozen=True, slots=True)
class TimeRow:
    """A stretch of time of one algorithm, over all runs; x in seconds since the stream began."""

    x: float
    phase: str
    algorithm: str
    queue_ms_mean: float
    queue_ms_min: float
    queue_ms_max: float
    dropped_mean: float
    arrived: int


def by_time(
    runs: Sequence[Sequence[LivePoint]], algorithm: str, width: float, phase: Callable[[float], str | None]
) -> list[TimeRow]:
    """Batches gathered into stretches of time: mean wait of the rows that ran, least and most over the runs.

    A stretch in which no batch of a run began has no value of that run: the batch before it was still running.
    """
    cells: dict[float, list[tuple[float, int, int]]] = {}
    for points in runs:
        bins: dict[float, list[LivePoint]] = {}
        for point in points:
            bins.setdefault(point.at // width * width + width / 2, []).append(point)
        for x, inside in bins.items():
            kept = sum(point.kept for point in inside)
            waited = sum(point.wait * point.kept for point in inside)
            if kept:
                cells.setdefault(x, []).append((waited / kept, kept, sum(point.arrived for point in inside)))
    rows = []
    for x, values in sorted(cells.items()):
        name = phase(x)
        if name is not None:
            waits = [1000.0 * wait for wait, _, _ in values]
            kept, arrived = sum(v[1] for v in values), sum(v[2] for v in values)
            mean = sum(waits) / len(waits)
            rows.append(TimeRow(x, name, algorithm, mean, min(waits), max(waits), 1 - kept / arrived, arrived))
    return rows


def capacity(spark: SparkSession, busy: Busy, rows: Recording, seconds: float = 2.0) -> float:
    """Rows of a recording per second that the plain job can process, in batches of about `seconds`."""
    per_batch = int(seconds * CORES * 1000 / float(rows.ms.mean()))
    path = rows.save()
    try:
        took = drain(spark, path, per_batch, lambda events: events.mapInArrow(Plain(busy), RESULT))
    finally:
        Path(path).unlink()
    full = took[2 : len(rows) // per_batch]  # the first ones start workers and compile, the last is a rest
    return per_batch / statistics.median(full)


def drain(
    spark: SparkSession, path: str, rows_per_batch: int, make: Callable[[DataFrame], DataFrame]
) -> list[float]:
    """Seconds of each batch of a recording that is there from the start."""
    query = start(make(read(spark, path, rows_per_batch)))
    try:
        query.processAllAvailable()
        reports = [report for report in query.recentProgress if report["numInputRows"]]
    finally:
        query.stop()
    return [report["durationMs"]["triggerExecution"] / 1000.0 for report in reports]


_STYLES = {
    "straw-man": ("#E69F00", "s", "--", "Straw-Man"),
    "las": ("#0072B2", "o", "-", "LAS"),
    "full-knowledge": ("#000000", "^", "-.", "Full Knowledge"),
    "mean": ("#CC79A7", "v", ":", "mean cost, synchronised"),
    "clock": ("#009E73", "D", ":", "by the clock"),
    "plain": ("#999999", "x", ":", "plain Spark"),
}


def draw(rows: Sequence[TimeRow], path: Path, *, title: str, note: str, target_ms: float) -> None:
    """Queuing latency above, on a logarithmic axis, and the share dropped below; phases between grey lines."""
    need("matplotlib", "lab")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    figure = Figure(figsize=(8.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for name in dict.fromkeys(row.algorithm for row in rows):
        mine = [row for row in rows if row.algorithm == name]
        colour, marker, style, label = _STYLES[name]
        look: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": style, "markersize": 3.5}
        above.plot([row.x for row in mine], [row.queue_ms_mean / 1000 for row in mine], label=label, **look)
        if any(row.queue_ms_max > row.queue_ms_min for row in mine):
            low, high = ([getattr(row, f"queue_ms_{end}") / 1000 for row in mine] for end in ("min", "max"))
            above.fill_between([row.x for row in mine], low, high, color=colour, alpha=0.15, linewidth=0)
        below.plot([row.x for row in mine], [row.dropped_mean for row in mine], **look)
    above.axhline(target_ms / 1000, color="#666666", linewidth=0.8)
    above.set_yscale("log")
    above.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    above.yaxis.set_major_formatter(ScalarFormatter())
    above.yaxis.set_minor_formatter(NullFormatter())
    above.set_ylabel("queuing latency (s)")
    below.set_ylabel("share dropped")
    below.set_ylim(0, 1)
    below.set_xlabel("seconds since the stream began")
    phases = {phase: min(row.x for row in rows if row.phase == phase) for phase in {row.phase for row in rows}}
    for phase, x in phases.items():
        if phase:
            for axes in (above, below):
                axes.axvline(x, color="#dddddd", linewidth=0.8, zorder=0)
            above.text(x, 1.0, f" {phase}", transform=above.get_xaxis_transform(), va="top", fontsize=9)
    for axes in (above, below):
        axes.grid(axis="y", color="#eeeeee", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    above.set_title(f"{title}\n", loc="left", fontsize=12, fontweight="bold")
    above.text(0, 1.02, note, transform=above.transAxes, fontsize=9, color="#555555")
    above.set_ylim(top=2.0 * above.get_ylim()[1])
    above.legend(frameon=False, fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 0.95))
    figure.savefig(path, dpi=130, metadata={"Software": None})
