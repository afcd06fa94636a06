"""Queries that stay up and are given the same rows turn by turn.

Both sides of a ratio then run on one warm machine within seconds of each other. A query started anew
for every measurement is compiled anew as well, which costs more than what is to be measured.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.bench import jobs
from streamshed.bench.feeder import Rows, put
from streamshed.bench.jobs import Job
from streamshed.bench.play import Workplace

FILES = 10  # in a batch


def stock(place: Workplace, rows: Rows, per_batch: int) -> Path:
    """The files of one batch."""
    folder = place.fresh("stock")
    for number in range(FILES):
        put(folder, f"{number:02d}.json", rows.take(max(1, per_batch // FILES)))
    return folder


def backlog(place: Workplace, rows: Rows, per_batch: int, batches: int) -> Path:
    """Files for so many batches; `maxFilesPerTrigger` makes the batches."""
    source = place.fresh("backlog")
    for number in range(batches * FILES):
        put(source, f"{number:05d}.json", rows.take(per_batch // FILES))
    return source


class Standing:
    """A query that waits for its next turn."""

    def __init__(self, spark: SparkSession, place: Workplace, job: Job, *, attached: bool = True) -> None:
        self._source = place.fresh("standing-in")
        self._turn = 0
        self._seen = -1
        lines: DataFrame = jobs.read(spark, self._source, FILES)
        if attached:
            lines = ss.shed(lines, latency=3600, arrived="arrived")
            self._shedder = ss.shedder(lines)
        self._query = jobs.start(job(lines), place.fresh("standing-state"))

    def keep(self, share: float) -> None:
        """From the next turn on, keep this share."""
        self._shedder.pin(share)
        time.sleep(0.2)  # a plan holds for batches that start a moment later

    def take(self, stock: Path, batches: int) -> float:
        """Seconds that so many batches of the stock take."""
        self._turn += 1
        # All links are there before the query sees the first: one rename shows the whole turn.
        folder = self._source / f".turn-{self._turn:04d}"
        folder.mkdir()
        for batch in range(batches):
            for file in sorted(stock.iterdir()):
                os.link(file, folder / f"{batch:02d}-{file.name}")
        for file in sorted(folder.iterdir()):
            os.replace(file, self._source / f"{self._turn:04d}-{file.name}")
        folder.rmdir()
        self._query.processAllAvailable()
        reports = [jobs.as_dict(r) for r in self._query.recentProgress]
        fresh = [r for r in reports if r["batchId"] > self._seen and r["numInputRows"]]
        self._seen = max(r["batchId"] for r in fresh)
        time.sleep(0.3)  # what is done for a batch after it is over is not to fall into another's turn
        return sum(float(r["durationMs"]["triggerExecution"]) for r in fresh) / 1000

    def stop(self) -> None:
        self._query.stop()
