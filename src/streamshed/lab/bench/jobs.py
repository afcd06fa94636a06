"""The jobs that the benchmarks run, and how a run of one is measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.spark.drop_in.shedder import Shedder

SCHEMA = "id LONG, user LONG, v DOUBLE, work INT"
Job = Callable[[DataFrame], DataFrame]
Attach = Callable[[DataFrame], tuple[DataFrame, Shedder | None]]


def read(spark: SparkSession, folder: Path, files_per_batch: int | None = None) -> DataFrame:
    """Raw lines with their arrival time."""
    reader = spark.readStream.format("text")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(str(folder)).select("value", F.col("_metadata.file_modification_time").alias("arrived"))


def light(lines: DataFrame) -> DataFrame:
    """Parse JSON, filter, aggregate by window and user: what many jobs do and little else."""
    rows = lines.select(F.from_json("value", SCHEMA).alias("r"), "arrived").select("r.*", "arrived")
    return (
        rows.where("v > 10")
        .withWatermark("arrived", "10 seconds")
        .groupBy(F.window("arrived", "10 seconds"), "user")
        .agg(F.avg("v").alias("v"), F.count("*").alias("n"))
    )


def heavy(lines: DataFrame) -> DataFrame:
    """Parse JSON, filter, and a computation whose length is in the row: a digest over a long text."""
    rows = lines.select("value", F.from_json("value", SCHEMA).alias("r"), "arrived").select(
        "value", "r.*", "arrived"
    )
    digest = F.expr("sha2(repeat(value, 400 * work), 256)")
    return rows.where("v > 10").select("id", "user", "v", digest.alias("digest"), "arrived")


def start(output: DataFrame, checkpoint: Path, *, once: bool = False) -> StreamingQuery:
    writer = output.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if once else writer).start()


@dataclass(frozen=True)
class Batch:
    """A batch of a measured run; times in seconds since the feeder started."""

    number: int
    started: float
    committed: float
    arrivals: np.ndarray = field(repr=False)
    """Arrival times of its files."""
    rows: np.ndarray = field(repr=False)
    """Rows of each of them."""
    kept: int
    cut: int = 0
    """Rows that its time budget took: of the newest files, as far as one can tell."""

    @property
    def delivered(self) -> np.ndarray:
        """Rows of each file that were kept. A plan takes some of every file; for the budget, the oldest come
        first: the worst case, in which what was kept is as old as it can be.
        """
        if not self.arrived:
            return self.rows
        thinned = self.rows * ((self.kept + self.cut) / self.arrived)
        order = np.argsort(self.arrivals)
        before = np.concatenate([[0.0], np.cumsum(thinned[order])[:-1]])
        found = np.zeros_like(thinned)
        found[order] = np.clip(self.kept - before, 0.0, thinned[order])
        return found

    @property
    def arrived(self) -> int:
        return int(self.rows.sum())

    @property
    def worst_latency(self) -> float:
        return self.committed - float(self.arrivals.min())


@dataclass(frozen=True)
class Run:
    """What one job did with one schedule."""

    batches: list[Batch]
    arrived: int
    """Rows that the feeder put there."""
    waiting: np.ndarray = field(repr=False)
    """Ages at the end of the files that no committed batch had taken."""
    waiting_rows: np.ndarray = field(repr=False)
    ended: float
    """When the run was cut off, seconds since the feeder started."""

    @property
    def kept(self) -> int:
        return sum(batch.kept for batch in self.batches)

    def latency(self, quantile: float, after: float = 0.0, *, with_waiting: bool = False) -> float:
        """Quantile of end-to-end latency over kept rows that arrived after a time.

        With `with_waiting`, rows that were never delivered count with the age they had at the end: a
        lower bound of what their latency would be.
        """
        late: list[np.ndarray] = []
        weight: list[np.ndarray] = []
        for batch in self.batches:
            seen = batch.arrivals >= after
            if batch.arrived and seen.any():
                late.append(batch.committed - batch.arrivals[seen])
                weight.append(batch.delivered[seen])
        if with_waiting and len(self.waiting):
            late.append(self.waiting)
            weight.append(self.waiting_rows)
        return weighted_quantile(np.concatenate(late), np.concatenate(weight), quantile) if late else 0.0

    def goodput(self, after: float, until: float) -> float:
        """Kept rows per second over the time that the batches committed in a span of time ran."""
        chosen = [b for b in self.batches if b.started >= after and b.committed <= until and b.arrived]
        busy = sum(b.committed - b.started for b in chosen)
        return sum(b.kept for b in chosen) / busy if busy else 0.0


def weighted_quantile(values: np.ndarray, weights: np.ndarray, quantile: float) -> float:
    """The least value with at least this share of the weight at or below it.

    >>> weighted_quantile(np.array([1.0, 9.0]), np.array([98.0, 2.0]), 0.99)
    9.0
    """
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, quantile)])


def measure(
    checkpoint: Path,
    query: StreamingQuery,
    files: dict[str, tuple[float, int]],
    origin: float,
    shedder: Shedder | None,
    end: float,
) -> Run:
    """Read a finished run off its checkpoint: which files each batch took, and when it was committed."""
    started = {p["batchId"]: epoch(p["timestamp"]) for p in map(as_dict, query.recentProgress)}
    counts = {} if shedder is None else {e.sample.batch: e.sample for e in shedder.ledger.recent}
    taken = _files_by_batch(checkpoint / "sources" / "0")
    left = dict(files)
    batches = []
    commits = {int(path.name): path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()}
    for number, commit in sorted(commits.items()):
        names = [name for name in taken.get(number, []) if name in left]
        arrivals = np.array([left[n][0] for n in names])
        rows = np.array([left[n][1] for n in names], dtype=float)
        committed = commit.stat().st_mtime
        if not names or committed > end:
            continue
        for name in names:
            del left[name]
        sample = counts.get(number)
        kept = int(rows.sum()) if sample is None else sample.kept
        begin = started.get(number, sample.started if sample else committed)
        cut = 0 if sample is None else sample.cut
        batches.append(Batch(number, begin - origin, committed - origin, arrivals - origin, rows, kept, cut))
    return Run(
        batches,
        sum(rows for _, rows in files.values()),
        np.array([end - at for at, _ in left.values()]),
        np.array([rows for _, rows in left.values()], dtype=float),
        end - origin,
    )


def _files_by_batch(log: Path) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    if log.exists():
        for file in log.iterdir():
            if file.name.startswith("."):
                continue
            for line in file.read_text().splitlines():
                if line.startswith("{"):
                    entry = json.loads(line)
                    found.setdefault(int(entry["batchId"]), []).append(entry["path"].rsplit("/", 1)[-1])
    return {batch: sorted(set(names)) for batch, names in found.items()}


def epoch(stamp: str) -> float:
    """Seconds since the epoch of a progress report's timestamp."""
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()


def as_dict(progress: Any) -> dict[str, Any]:
    """A progress report as plain data; nothing reported yet is an empty one."""
    if progress is None:
        return {}
    data: dict[str, Any] = json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
    return data


def wait_until(query: StreamingQuery, moment: float) -> None:
    """Sleep until a time, as long as the query lives."""
    while time.time() < moment:
        if not query.isActive:
            raise RuntimeError(f"the query ended early: {query.exception()}")
        time.sleep(0.1)
