"""Arrays of whole numbers that tasks count in, as they come to the driver.

With its first row a task hands its array to an accumulator of Spark's, which holds on to it; so the driver gets
what it is at the task's end, once for each task that was done.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_HELD = 1000
"""Arrays that the accumulator holds at most. What comes just while it is emptied is lost: so that is rare."""


class TaskArrays:
    """The arrays of the tasks that have ended."""

    def __init__(self, spark: SparkSession) -> None:
        self._arrays: Any = spark._jvm.java.util.Arrays  # type: ignore[union-attr]
        self.accumulator: Any = spark.sparkContext._jsc.sc().collectionAccumulator()
        self._taken = 0

    def take(self) -> list[list[int]]:
        """Those that came since this was asked last."""
        held = self.accumulator.value()
        count = int(held.size())
        texts = [str(self._arrays.toString(held.get(place))) for place in range(self._taken, count)]
        self._taken = count
        if count >= _HELD and int(self.accumulator.value().size()) == count:
            self.accumulator.reset()
            self._taken = 0
        return [[int(number) for number in text[1:-1].split(",")] for text in texts]
