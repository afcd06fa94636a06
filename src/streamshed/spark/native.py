"""Calls into the JVM as columns: static methods, methods of an object that travels with a task, code of our own.

Spark puts such a call into the code that it generates for a stage: no Python, no jar, no reflection at run time; a
call costs what it costs in Java. Unless told otherwise they are non-deterministic for the optimizer: it moves none
of them, makes none of them once for all rows, and leaves none out that a row needs.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

_PRIMITIVE = ("bigint", "int", "boolean")  # never null; said so, Spark writes half as much code
_REFERENCE = "java.util.concurrent.atomic.AtomicReference"
_CODEGEN = "org.apache.spark.sql.catalyst.expressions.codegen"
_NUMBER = "org.apache.commons.lang3.mutable.MutableLong"  # comes with Spark
# Made in Java: py4j takes every number for its value.
_COUNTER = f"""
public Object generate(Object[] references) {{
  Object number = new {_NUMBER}();
  org.apache.spark.sql.types.DataType type = (org.apache.spark.sql.types.DataType) references[0];
  Object literal = new org.apache.spark.sql.catalyst.expressions.Literal(number, type);
  return new Object[] {{new Object[] {{number}}, literal}};
}}
"""


class Native:
    """Makes columns of calls into the JVM, for one session."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self.jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._types = jvm.org.apache.spark.sql.types.DataTypes
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions

    def static(
        self, owner: str, method: str, kind: str, *arguments: Column, deterministic: bool = False
    ) -> Column:
        """Call a static method. `kind`: what it gives, as the SQL name of a type or the name of a Java class."""
        call = self._expressions.objects.StaticInvoke(
            self._class(owner),
            self._type(kind),
            method,
            self.sequence([self._expression(each) for each in arguments]),
            self.sequence([]),
            False,  # a null argument is passed on
            kind not in _PRIMITIVE,
            deterministic,
            getattr(getattr(self.jvm.scala, "None$"), "MODULE$"),
        )
        return self._column(call)

    def invoke(
        self, target: Column, method: str, kind: str, *arguments: Column, deterministic: bool = False
    ) -> Column:
        """Call a method of an object; of null it gives null."""
        made = self.sequence([self._expression(each) for each in arguments])
        call = self._expressions.objects.Invoke(
            self._expression(target),
            method,
            self._type(kind),
            made,
            self.sequence([]),
            False,  # a null argument is passed on
            kind not in _PRIMITIVE,
            deterministic,
        )
        return self._column(call)

    def literal(self, value: Any, kind: str) -> Column:
        """A Java object as a literal. It travels with the code: every task has a copy of its own.

        Literals of one stage that are the same object here are the same object there.
        """
        return self._column(self._expressions.Literal(value, self._type(kind)))

    def array(self, values: list[Any], kind: str) -> tuple[Any, Column]:
        """An array in the driver's memory, and the literal by which plans read it when they are made.

        `update(place, value)` of the array is seen by the plans that are made from then on.
        """
        data = self.jvm.org.apache.spark.sql.catalyst.util.GenericArrayData(self._objects(values))
        element = {"string": self._types.StringType, "boolean": self._types.BooleanType}[kind]
        return data, self._column(self._expressions.Literal(data, self._types.createArrayType(element)))

    def counter(self) -> tuple[Any, Column]:
        """A number of a task's own, from 0, that each row counts down by one.

        Given are a reference for `compiled`, an array with the MutableLong, and the column that counts: a part of
        generated code, at next to no cost.
        """
        kind = self._type(_NUMBER)
        cell, literal = self.created(_COUNTER, [kind])
        return cell, self.invoke(self._column(literal), "decrementAndGet", "bigint")

    def compiled(self, source: str, references: list[Any], kind: str, *given: Column) -> Column:
        """An object of a Java class that is compiled where the task runs, as Spark compiles its own generated
        code.

        One for each task, made at its first row. `source` is the body of a class with a method `Object
        generate(Object[] references)`. With `given`, what that makes is a function which makes the object of them.
        Methods that do much go there: what is made of expressions ends up in one method with the user's own work,
        and beyond 8,000 bytes the JVM does not compile that any more.
        """
        code = self.literal(self._code(source), f"{_CODEGEN}.CodeAndComment")
        pair = self.static(f"{_CODEGEN}.CodeGenerator", "compile", "scala.Tuple2", code)
        made = self.invoke(pair, "_1", f"{_CODEGEN}.GeneratedClass")
        handed = self.literal(self._objects(references), "[Ljava.lang.Object;")
        makes = {0: kind, 1: "java.util.function.Function", 2: "java.util.function.BiFunction"}[len(given)]
        fresh = self.invoke(made, "generate", makes, handed)
        if given:
            fresh = self.invoke(fresh, "apply", kind, *given)
        holder = self.literal(self.jvm.java.util.concurrent.atomic.AtomicReference(), _REFERENCE)
        there = self.invoke(holder, "getPlain", kind)
        return F.coalesce(there, F.when(self.invoke(holder, "getAndSet", kind, fresh).isNull(), there))

    def created(self, source: str, references: list[Any]) -> Any:
        """An object of a Java class that is compiled here, in the driver; `source` as for `compiled`."""
        compiled = getattr(self.jvm, f"{_CODEGEN}.CodeGenerator").compile(self._code(source))._1()
        # All such classes have one name, and py4j remembers by its name which method belongs to a class.
        methods = self.jvm.org.apache.commons.lang3.reflect.MethodUtils
        return methods.invokeMethod(compiled, "generate", self._objects([self._objects(references)]))

    def asked(self, source: str, references: list[Any], kind: str) -> Column:
        """Such an object as a literal, for calls that the optimizer makes as it plans a batch.

        They have to be deterministic, and of what the optimizer knows.
        """
        return self.literal(self.created(source, references), kind)

    def sequence(self, items: list[Any]) -> Any:
        """A sequence of Scala's."""
        found = self.jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()

    def _code(self, source: str) -> Any:
        nothing = getattr(getattr(self.jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        return getattr(self.jvm, f"{_CODEGEN}.CodeAndComment")(source, nothing)

    def _objects(self, values: list[Any]) -> Any:
        found = self._gateway.new_array(self.jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            found[place] = value
        return found

    def _type(self, kind: str) -> Any:
        """A type of Spark's by its SQL name, or a Java class as a type."""
        simple = {
            "bigint": self._types.LongType,
            "int": self._types.IntegerType,
            "boolean": self._types.BooleanType,
            "array<bigint>": self._types.createArrayType(self._types.LongType),
        }
        found = simple.get(kind)
        return self.jvm.org.apache.spark.sql.types.ObjectType(self._class(kind)) if found is None else found

    def _class(self, name: str) -> Any:
        return self.jvm.java.lang.Class.forName(name)

    def _expression(self, column: Column) -> Any:
        return self.jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)

    def _column(self, expression: Any) -> Column:
        return ClassicColumn(self.jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))
