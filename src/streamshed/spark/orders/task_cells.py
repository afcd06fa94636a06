"""What a task remembers from row to row, in Spark's own expressions.

A few cells of an array (`AtomicLongArray`), in a literal of the plan. The literal travels with the generated code,
so every task has a copy of its own, all zeros when it begins. Reading one costs what reading a field costs.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

_CLASS = "java.util.concurrent.atomic.AtomicLongArray"


class TaskCells:
    """Cells of whole numbers, by their place."""

    def __init__(self, spark: SparkSession, count: int) -> None:
        self._jvm: Any = spark._jvm
        jvm: Any = spark._jvm
        kind = jvm.org.apache.spark.sql.types.ObjectType(jvm.java.lang.Class.forName(_CLASS))
        cells = jvm.java.util.concurrent.atomic.AtomicLongArray(count)
        self._cells = jvm.org.apache.spark.sql.catalyst.expressions.Literal(cells, kind)

    def read(self, place: int) -> Column:
        return self._call("getPlain", F.lit(place))

    def count(self, place: int) -> Column:
        """What stood there, which is one more from now on."""
        return self._call("getAndIncrement", F.lit(place))

    def swap(self, place: int, value: Column) -> Column:
        """What stood there, in whose place the value is from now on."""
        return self._call("getAndSet", F.lit(place), value)

    def _call(self, method: str, *arguments: Column) -> Column:
        jvm = self._jvm
        types = jvm.org.apache.spark.sql.types.DataTypes
        kinds = [types.IntegerType, *[types.LongType] * (len(arguments) - 1)]
        made = [jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(each._jc) for each in arguments]
        call = jvm.org.apache.spark.sql.catalyst.expressions.objects.Invoke(
            self._cells, method, types.LongType, _sequence(jvm, made), _sequence(jvm, kinds), True, False, False
        )
        return column_of(jvm, call)


class Line:
    """A text in the driver's memory that the plans of running queries read when they are made."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        holder = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]
        self.data = jvm.org.apache.spark.sql.catalyst.util.GenericArrayData(holder)
        types = jvm.org.apache.spark.sql.types.DataTypes
        kind = types.createArrayType(types.StringType)
        literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal(self.data, kind)
        self.column = F.get(column_of(jvm, literal), F.lit(0))
        """The text. The optimizer knows it, and all that is made of it alone."""


def clock(spark: SparkSession, *, folded: bool) -> Column:
    """Milliseconds: at the row, or when the batch is planned."""
    jvm: Any = spark._jvm
    call = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        jvm.java.lang.Class.forName("java.lang.System"),
        jvm.org.apache.spark.sql.types.DataTypes.LongType,
        "currentTimeMillis",
        _sequence(jvm, []),
        _sequence(jvm, []),
        True,
        False,
        folded,  # a deterministic call without arguments is one that the optimizer makes once
        getattr(getattr(jvm.scala, "None$"), "MODULE$"),
    )
    return column_of(jvm, call)


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


def column_of(jvm: Any, expression: Any) -> Column:
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _sequence(jvm: Any, items: list[Any]) -> Any:
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()
