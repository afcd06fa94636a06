"""Arrays of whole numbers that tasks count in, as they come to the driver.

With its first row a task hands its array to an accumulator of Spark's, which holds on to it; so the driver gets
what it is at the task's end, once for each task that was done. Before that, a task's accumulators come with its
heartbeats (`spark.executor.heartbeatInterval`, 10 s unless set), to listeners (`RunningTasks.java`).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from pyspark.sql import SparkSession

from streamshed.spark.native import Native

_HELD = 1000
"""Arrays that the accumulator holds at most. What comes just while it is emptied is lost: so that is rare."""


class TaskArrays:
    """The arrays of the tasks that have ended, and, while somebody listens, of those that run."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._arrays: Any = spark._jvm.java.util.Arrays  # type: ignore[union-attr]
        self.accumulator: Any = spark.sparkContext._jsc.sc().collectionAccumulator()
        self._taken = 0
        self._running: Any = None

    def take(self) -> list[list[int]]:
        """Those of ended tasks that came since this was asked last."""
        held = self.accumulator.value()
        count = int(held.size())
        texts = [str(self._arrays.toString(held.get(place))) for place in range(self._taken, count)]
        self._taken = count
        if count >= _HELD and int(self.accumulator.value().size()) == count:
            self.accumulator.reset()
            self._taken = 0
        return _numbers(texts)

    def listen(self) -> None:
        """Hear of running tasks from now on."""
        if self._running is None:
            source = files("streamshed.spark.real_time").joinpath("RunningTasks.java").read_text(encoding="utf-8")
            self._running = Native(self._spark).created(source, [self.accumulator.id()])
            self._spark.sparkContext._jsc.sc().addSparkListener(self._running)

    def cease(self) -> None:
        """Hear of them no more."""
        listener, self._running = self._running, None
        if listener is not None and self._spark.sparkContext._jsc is not None:
            self._spark.sparkContext._jsc.sc().removeSparkListener(listener)

    def running(self) -> list[list[int]]:
        """Those of the tasks that run, as their last heartbeats had them."""
        return [] if self._running is None else _numbers(str(text) for text in self._running.get())


def _numbers(texts: Iterable[str]) -> list[list[int]]:
    """Numbers as Java writes arrays of them."""
    return [[int(number) for number in text[1:-1].split(",")] for text in texts]
