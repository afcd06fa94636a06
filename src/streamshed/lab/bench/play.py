"""Plays a schedule of arrivals to a job, with or without shedding, and measures what came of it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.lab.bench import jobs
from streamshed.lab.bench.capacity import fastest
from streamshed.lab.bench.feeder import Feeder, JsonRows, Rate
from streamshed.lab.bench.jobs import Job, Run
from streamshed.spark.drop_in.shedder import Shedder
from streamshed.spark.session import local_session

Say = Callable[[str], None]


@dataclass(frozen=True)
class Glance:
    """What can be seen of a run while it plays."""

    second: float
    arriving: float
    """Rows per second, by the schedule."""
    batch: int
    took: float
    """Seconds that the last reported batch took."""
    behind: float
    """Age of the oldest row that is not committed yet, seconds."""
    shedder: Shedder | None


Watch = Callable[[Glance], None]
"""Called about twice a second."""


def session(name: str, **settings: str) -> SparkSession:
    return local_session(
        name,
        "local[*]",
        True,
        **{
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
            # A run is measured by its commits; Spark keeps those of 100 batches.
            "spark.sql.streaming.minBatchesToRetain": "10000",
            # Several tasks a core, so that one that got the long rows does not hold up a whole batch.
            "spark.sql.files.minPartitionNum": "8",
            # Off for all jobs alike, unless told: it does nothing for jobs with state.
            "spark.sql.adaptive.enabled": "false",
            # A query without data looks for it this often; by default, every 10 ms.
            "spark.sql.streaming.pollingDelay": "50ms",
            # Stopping a query in the middle of a batch is an "error" to its tasks.
            "spark.log.level": "OFF",
        }
        | settings,
    )


class Workplace:
    """A temporary folder for the runs of one benchmark."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="streamshed-bench-"))
        self._serial = 0

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def fresh(self, name: str) -> Path:
        self._serial += 1
        path = self.folder / f"{self._serial:03d}-{name}"
        path.mkdir()
        return path


def capacity(
    spark: SparkSession,
    place: Workplace,
    job: Job,
    rows: JsonRows,
    say: Say,
    seconds: float = 2.0,
    most: float = 60.0,
) -> float:
    """Rows per second that the job can process at most, in batches of about `seconds`."""
    source, checkpoint = place.fresh("calibrate-in"), place.fresh("calibrate-state")
    query = jobs.start(job(jobs.read(spark, source)), checkpoint)
    try:
        folder = place.fresh("chunk")
        fed = fastest(folder, source, rows, query.processAllAvailable, say, seconds=seconds, most=most)
    finally:
        query.stop()
        shutil.rmtree(source, ignore_errors=True)
    return fed.rate


def feed_while_running(
    feeder: Feeder,
    query: StreamingQuery,
    seconds: float,
    show: Callable[[float, float], None],
    stop: Callable[[], None],
) -> float:
    """Feed a running query for so long, and stop both; when that was.

    `show` is called twice a second, with the time of the beginning and the seconds since.
    """
    try:
        feeder.start()
        begin = time.time()
        while (now := time.time() - begin) < seconds:
            jobs.wait_until(query, begin + min(now + 0.5, seconds))
            show(begin, now)
    finally:
        feeder.stop()
        measured_at = time.time()
        stop()
    return measured_at


def last_batch(query: StreamingQuery, begin: float) -> tuple[dict[str, Any], float, float]:
    """The newest report of a query, the time up to which it has taken rows, and the seconds of its batch."""
    last = jobs.as_dict(query.lastProgress)
    taken = max(begin, jobs.epoch(last["timestamp"])) if last else begin
    return last, taken, last["durationMs"].get("triggerExecution", 0) / 1000 if last else 0.0


def play(
    spark: SparkSession,
    place: Workplace,
    job: Job,
    rate: Rate,
    seconds: float,
    *,
    rows: JsonRows,
    latency: float | None = None,
    files_per_batch: int | None = None,
    expired: str = "keep",
    settle: float = 0.0,
    name: str = "run",
    watch: Watch | None = None,
    tick: float = 0.1,
) -> Run:
    """Play a schedule to a job; with `latency`, shed to keep that bound."""
    source, checkpoint = place.fresh(f"{name}-in"), place.fresh(f"{name}-state")
    lines = jobs.read(spark, source, files_per_batch)
    handle: Shedder | None = None
    if latency is not None:
        lines = ss.shed(lines, latency=latency, arrived="arrived", expired=expired, name=name)
        handle = ss.shedder(lines)
    query = jobs.start(job(lines), checkpoint)
    feeder = Feeder(source, rate, seconds, rows=rows, tick=tick)

    def show(begin: float, second: float) -> None:
        if watch is not None:
            watch(_glance(second, rate, begin, query, handle))

    measured_at = feed_while_running(feeder, query, seconds + settle, show, lambda: _stop(query, handle))
    run = jobs.measure(checkpoint, query, feeder.files, feeder.started_at, handle, measured_at)
    shutil.rmtree(source, ignore_errors=True)
    return run


def _glance(second: float, rate: Rate, begin: float, query: StreamingQuery, handle: Shedder | None) -> Glance:
    last, taken, took = last_batch(query, begin)
    # A source that is empty has nothing waiting, whenever the last batch was.
    behind = time.time() - taken if query.status["isDataAvailable"] else 0.0
    return Glance(second, rate(second), last.get("batchId", -1), took, behind, handle)


def _stop(query: StreamingQuery, handle: Shedder | None) -> None:
    """Stop, and wait for the ledger to have the last committed batch."""
    query.stop()
    if handle is not None:
        handle.settle()
