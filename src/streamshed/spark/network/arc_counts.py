"""Rows that came to each arc of a network and that passed it, counted in the tasks of a real-time batch.

There all of a network is one row's business: which arcs it came to and which it passed is known when it is done,
as one bit for each. A native call adds them up (`ArcCounts.java`), as the ladder's own books do
(`ladder_books`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from pyspark.sql import Column, SparkSession

from streamshed.spark.native import Native
from streamshed.spark.real_time.task_arrays import TaskArrays

MOST_ARCS = 63
"""Bits of a number."""


class ArcCounts:
    """Counts the rows of some arcs, in tasks and on the driver."""

    def __init__(self, spark: SparkSession, arcs: Sequence[str]) -> None:
        """`arcs`: one for each bit; the same one may come several times, if rows reach it by several ways."""
        self.arcs = tuple(arcs)
        self._spark = spark
        self._tasks = TaskArrays(spark)

    def counted(self, came: Column, passed: Column) -> Column:
        """True for every row, which is counted where this is asked."""
        source = files("streamshed.spark.network").joinpath("ArcCounts.java").read_text(encoding="utf-8")
        native = Native(self._spark)
        references = [len(self.arcs), self._tasks.accumulator]
        counter = native.compiled(source, references, "java.util.function.LongBinaryOperator")
        return native.invoke(counter, "applyAsLong", "bigint", came, passed) >= 0

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """Rows that came to each arc, and that passed it, in the tasks that ended since this was asked last."""
        came, passed = dict.fromkeys(self.arcs, 0), dict.fromkeys(self.arcs, 0)
        for numbers in self._tasks.take():
            for place, on in enumerate(self.arcs):
                came[on] += numbers[place]
                passed[on] += numbers[len(self.arcs) + place]
        return came, passed
