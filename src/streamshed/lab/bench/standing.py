"""Queries that stay up and are given the same rows turn by turn.

Both sides of a ratio then run on one warm machine within seconds of each other. A query started anew
for every measurement is compiled anew as well, which costs more than what is to be measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.lab.bench import jobs
from streamshed.lab.bench.feeder import JsonRows, put
from streamshed.lab.bench.jobs import Job
from streamshed.lab.bench.play import Say, Workplace

FILES = 10  # in a batch


def stock(place: Workplace, rows: JsonRows, per_batch: int) -> Path:
    """The files of one batch."""
    folder = place.fresh("stock")
    for number in range(FILES):
        put(folder, f"{number:02d}.json", rows.take(max(1, per_batch // FILES)))
    return folder


def backlog(place: Workplace, rows: JsonRows, per_batch: int, batches: int) -> Path:
    """Files for so many batches; `maxFilesPerTrigger` makes the batches."""
    source = place.fresh("backlog")
    for number in range(batches * FILES):
        put(source, f"{number:05d}.json", rows.take(per_batch // FILES))
    return source


class Standing:
    """A query that waits for its next turn."""

    def __init__(self, place: Workplace, start: Callable[[Path], StreamingQuery]) -> None:
        """`start` starts it on a folder, FILES files a batch."""
        self._source = place.fresh("standing-in")
        self._turn = 0
        self._seen = -1
        self._query = start(self._source)

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

    def plan_again(self, times: int) -> None:
        """Have Spark plan the last batch so many times more, without running it."""
        execution: Any = self._query._jsq.streamingQuery().lastExecution()
        state = execution.sparkSession().sessionState()
        for _ in range(times):
            state.optimizer().execute(state.analyzer().execute(execution.logical().clone()))

    def stop(self) -> None:
        self._query.stop()


class StandingJob(Standing):
    """A job with `shed` attached, or without."""

    def __init__(self, spark: SparkSession, place: Workplace, job: Job, *, attached: bool = True) -> None:
        def start(source: Path) -> StreamingQuery:
            lines: DataFrame = jobs.read(spark, source, FILES)
            if attached:
                lines = ss.shed(lines, latency=3600, arrived="arrived", floor=0.0)
                self._shedder = ss.shedder(lines)
            return jobs.start(job(lines), place.fresh("standing-state"))

        super().__init__(place, start)

    def keep(self, share: float, budget: float | None = None) -> None:
        """From the next turn on, keep this share, of what comes within so many seconds."""
        self._shedder.pin(share, budget=budget)
        time.sleep(0.2)  # a plan holds for batches that start a moment later


def in_turns(
    queries: Mapping[str, Standing], stock: Path, batches: int, turns: int, warm_up: int, say: Say
) -> dict[str, list[float]]:
    """Seconds that each query took in each turn; the order is turned round each time."""
    took: dict[str, list[float]] = {name: [] for name in queries}
    names = list(queries)
    for turn in range(-warm_up, turns):
        for name in names if turn % 2 else reversed(names):
            took[name].append(queries[name].take(stock, batches))
        say(f"turn {turn + 1} of {turns}: " + ", ".join(f"{name} {took[name][-1]:.2f} s" for name in names))
    for query in queries.values():
        query.stop()
    return {name: times[warm_up:] for name, times in took.items()}


def ratios(ours: Sequence[float], *theirs: Sequence[float]) -> list[float]:
    """Of each turn, ours to theirs; to the mean of several, if the same job took several turns.

    >>> ratios([3.0, 2.0], [2.0, 2.0], [4.0, 2.0])
    [1.0, 1.0]
    """
    return [a * len(others) / sum(others) for a, *others in zip(ours, *theirs, strict=True)]
