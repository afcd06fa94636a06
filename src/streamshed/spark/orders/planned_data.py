"""What a batch is told when it is planned: numbers and texts that the optimizer knows, and that are data to code.

Spark optimizes a streaming plan anew for every batch, and makes a literal of all that can be known by then: of
what stands in the driver's memory, of a call to an object there. As part of the generated code a number that
changes would have it compiled anew in every batch, so it stands in an array: an array is data.
"""

from __future__ import annotations

from importlib.resources import files

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streamshed.spark.native import Native


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


class Switches:
    """Truths in the driver's memory. What depends on one is in a plan, or is not, when it is made."""

    def __init__(self, spark: SparkSession, *states: bool) -> None:
        self._data, self._array = Native(spark).array(list(states), "boolean")

    def is_on(self, place: int) -> Column:
        return F.get(self._array, F.lit(place))

    def turn(self, place: int, on: bool) -> None:
        """As the plans have it that are made from now on."""
        self._data.update(place, on)


def planning_time(spark: SparkSession) -> Column:
    """When the batch is planned, in milliseconds: the optimizer looks at the clock."""
    # A deterministic call without arguments is one that the optimizer makes once.
    return Native(spark).static("java.lang.System", "currentTimeMillis", "bigint", deterministic=True)


def batch_time(spark: SparkSession) -> Column:
    """The batch's own time in milliseconds, the same one when it runs again. The optimizer knows it.

    (`current_timestamp()` is that time, too, but it is written into the plan after the optimizer, as a number.)
    """
    native = Native(spark)
    source = java(__package__, "BatchTime", "RunningBatch")
    asked = native.asked(source, [], "java.util.function.LongSupplier")
    return native.invoke(asked, "getAsLong", "bigint", deterministic=True)


def at_run_time(numbers: Column, place: int = 0) -> Column:
    """A number of an array that the optimizer knows, as data: where in the array it stands, it does not know."""
    return F.get(numbers, F.shiftright(F.spark_partition_id(), 31) + F.lit(place))


def whole(number: int) -> Column:
    """A number of 64 bits."""
    return F.lit(number).cast("bigint")


def java(package: str | None, *names: str) -> str:
    """The text of Java classes beside a module; the first one says what is made."""
    return "".join(files(str(package)).joinpath(f"{name}.java").read_text(encoding="utf-8") for name in names)
