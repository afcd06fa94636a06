"""Draining a backlog: how long a job takes for rows that are all there already."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.bench import jobs
from streamshed.bench.feeder import Rows, put
from streamshed.bench.jobs import Job
from streamshed.bench.play import Workplace

FILES = 10  # in a batch


def backlog(place: Workplace, rows: Rows, per_batch: int, batches: int) -> Path:
    """Files for so many batches; `maxFilesPerTrigger` makes the batches."""
    source = place.fresh("backlog")
    for number in range(batches * FILES):
        put(source, f"{number:05d}.json", rows.take(per_batch // FILES))
    return source


def drain(
    spark: SparkSession,
    place: Workplace,
    job: Job,
    source: Path,
    *,
    attached: bool = True,
    keep: float | None = None,
) -> float:
    """Seconds that a job takes for the whole backlog, without the query's start and stop."""
    lines: DataFrame = jobs.read(spark, source, FILES)
    if attached:
        lines = ss.shed(lines, latency=3600, arrived="arrived")
        ss.shedder(lines).pin(keep)
    query = jobs.start(job(lines), place.fresh("state"), once=True)
    query.awaitTermination()
    return sum(p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]) / 1000
