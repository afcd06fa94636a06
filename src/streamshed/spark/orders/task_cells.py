"""What a task remembers from row to row, in Spark's own expressions.

A few cells of an array (`AtomicLongArray`), in a literal of the plan. The literal travels with the generated code,
so every task has a copy of its own, all zeros when it begins. Reading one costs what reading a field costs.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streamshed.spark.native import Native

_CLASS = "java.util.concurrent.atomic.AtomicLongArray"
_COUNTER = "org.apache.commons.lang3.mutable.MutableLong"


class TaskCells:
    """Cells of whole numbers, by their place."""

    def __init__(self, spark: SparkSession, count: int) -> None:
        self._native = Native(spark)
        cells = self._native.jvm.java.util.concurrent.atomic.AtomicLongArray(count)
        self._cells = self._native.literal(cells, _CLASS)

    def read(self, place: int) -> Column:
        return self._call("getPlain", F.lit(place))

    def swap(self, place: int, value: Column) -> Column:
        """What stood there, in whose place the value is from now on."""
        return self._call("getAndSet", F.lit(place), value)

    def _call(self, method: str, *arguments: Column) -> Column:
        return self._native.invoke(self._cells, method, "bigint", *arguments, unless_null=True)


class TaskCounter:
    """Counts the rows of a task, one by one.

    A plain field of a plain object, of Commons Lang, which comes with Spark. A cell would do, too, but is reached
    by a handle that the JVM does not always compile into the code around it, and then it is dear.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._native = Native(spark)
        self._number = self._native.made(_COUNTER)

    def next(self) -> Column:
        """How many rows were counted before this one, which is counted now."""
        return self._native.invoke(self._number, "getAndIncrement", "bigint")

    def read(self) -> Column:
        """How many rows were counted."""
        return self._native.invoke(self._number, "longValue", "bigint")


class Line:
    """A text in the driver's memory that the plans of running queries read when they are made."""

    def __init__(self, spark: SparkSession) -> None:
        native = Native(spark)
        self.data, texts = native.array([None], "string")
        self.column = F.get(texts, F.lit(0))
        """The text. The optimizer knows it, and all that is made of it alone."""
        # Looked up once: by its full name, every mention of a class is eight calls into the JVM.
        self._texts = native.jvm.org.apache.spark.unsafe.types.UTF8String

    def set(self, text: str) -> None:
        """What the plans read that are made from now on."""
        self.data.update(0, self._texts.fromString(text))


def clock(spark: SparkSession, *, folded: bool) -> Column:
    """Milliseconds: at the row, or when the batch is planned."""
    # A deterministic call without arguments is one that the optimizer makes once.
    return Native(spark).static("java.lang.System", "currentTimeMillis", "bigint", deterministic=folded)


def batch_time() -> Column:
    """The batch's own time in milliseconds, the same one when it runs again; to be asked for once in a task.

    Spark writes it into the plan as a number, after the optimizer, and what has another number is compiled anew.
    But of what `reflect` is given, nothing is in the generated code.
    """
    begun = F.unix_millis(F.current_timestamp())
    return F.reflect(F.lit("java.lang.Long"), F.lit("toString"), begun).cast("bigint")


def whole(number: int) -> Column:
    """A number as the cells have it."""
    return F.lit(number).cast("bigint")
