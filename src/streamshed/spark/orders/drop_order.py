"""The drop of a shed stream: an outer join with the order in force, and a filter of what the order takes.

    HASH    a number of the row's own, from its key or its place in the source
    SALT    a number of the drop's own, so that one drop behind another takes other rows
    row r is taken if  mix(HASH, SALT) ≥ keep · 2⁵³

While no plan drops anything, none of this is in the plan that runs: a gate, a literal in the driver's memory that
is opened and closed while the query runs, tells Spark's optimizer so in every batch. It removes the filter, then
the join, of which nothing is asked any more, then the hash; no column is read for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from streamshed.spark.orders.history import History, Span
from streamshed.spark.orders.order_file import HistoryFile
from streamshed.spark.orders.store import Store

THRESHOLD, KEEP, SALT, KEY, HASH, ZERO = (
    f"_streamshed_{name}" for name in ("threshold", "keep", "salt", "key", "hash", "zero")
)
_HASH_BITS = 53


class ControlFile(HistoryFile[Span, History]):
    """The plans of one shed stream."""

    def __init__(self, store: Store, name: str, now: Callable[[], float] = time.time) -> None:
        self._gate: Any = None
        super().__init__(store, name, History.decode, now)

    def publish(
        self,
        keep: float,
        lease: float,
        version: int,
        also: Callable[[History], None],
        *,
        salt: int = 0,
        mirror: bool = True,
    ) -> Span | None:
        """Put a plan in force for batches from now on, for at most `lease` seconds."""
        return self.put(
            lambda start: Span(start, start + int(lease * 1000), keep, version, salt), also, mirror=mirror
        )

    def forget(self, last_batches: list[int]) -> None:
        """Leave out plans that no batch can ask for any more; the gate closes with the last that drops."""
        fewer = self.history.needed_from(last_batches)
        if fewer.drops == self.history.drops:
            self.history = fewer
        else:
            self._take(fewer, self._text(fewer))

    def gate(self, spark: SparkSession) -> Column:
        """True if any plan may drop rows, and known to the optimizer before it plans the joins.

        It may be read several times while one batch is planned, and change in between. A plan begins after the
        gate was opened for it, so such a batch has nothing to drop, and whatever mixture it got keeps its rows.
        """
        jvm: Any = spark._jvm
        flags = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]
        flags[0] = self.history.drops
        self._gate = jvm.org.apache.spark.sql.catalyst.util.GenericArrayData(flags)
        types = jvm.org.apache.spark.sql.types.DataTypes
        kind = types.createArrayType(types.BooleanType)
        literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal(self._gate, kind)
        return F.get(ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(literal)), F.lit(0))

    def relation(self, spark: SparkSession, gate: Column, rotate: float | None) -> DataFrame:
        """The drop order for the current batch: one row, or no row that meets any if there is nothing to drop.

        `current_timestamp()` is the batch's own time here, also when it runs again. Nothing in this
        may fail, whatever the row holds: `get` and `try_element_at` answer null where `[]` raises.
        """
        now = F.unix_millis(F.current_timestamp())
        valid = F.filter("plans", lambda p: F.get(p, F.lit(0)) <= now)
        # The gate comes first: nothing is parsed while it is closed.
        plan = (
            self.text(spark)
            .where(gate)
            .select(F.from_json("value", "plans array<array<double>>").getField("plans").alias("plans"))
            .select(F.try_element_at(valid, F.lit(-1)).alias("plan"))
        )
        keep = F.get("plan", F.lit(2))
        salt = F.coalesce(F.get("plan", F.lit(4)), F.lit(0.0)).cast("bigint")
        if rotate is not None:
            salt = F.xxhash64(salt, F.floor(now / F.lit(rotate * 1000.0)))
        order = plan.where((now < F.get("plan", F.lit(1))) & (keep < 1.0) & (keep >= 0.0)).select(
            (keep * F.lit(float(1 << _HASH_BITS))).cast("bigint").alias(THRESHOLD),
            keep.alias(KEEP),
            # Always 0, but not so that the optimizer could know: see `meets`.
            (keep * 0.0).cast("bigint").alias(KEY),
            salt.alias(SALT),
        )
        return order.unionAll(_no_order(spark).where(~gate))

    def _show(self, data: bytes) -> None:
        # Open before a plan can drop, closed after none can: a batch between the two keeps its rows.
        drops = self.history.drops
        if self._gate is not None and drops:
            self._gate.update(0, True)
        super()._show(data)
        if self._gate is not None and not drops:
            self._gate.update(0, False)


def _no_order(spark: SparkSession) -> DataFrame:
    """An order that no row meets, in the shape of an order.

    It is an aggregate because Spark knows that an aggregate without groups is one row. Only of such a right side
    does it leave an outer join out of the plan (`EliminateOuterJoin`).
    """
    columns = {THRESHOLD: "bigint", KEEP: "double", KEY: "bigint", SALT: "bigint"}
    nothing = [F.max(F.lit(None).cast(kind)).alias(name) for name, kind in columns.items()]
    return spark.sql("SELECT 0 AS zero").select(*nothing)


def meets() -> Column:
    """Whether a row is subject to the order: every row is, if there is one.

    An equality, which Spark does as a broadcast hash join; a nested loop costs more.
    """
    return F.shiftrightunsigned(F.col(HASH), _HASH_BITS) == F.col(KEY)


def falls() -> Column:
    """Whether the order takes a row away."""
    return F.coalesce(unit_hash([F.col(HASH), F.col(SALT)]) >= F.col(THRESHOLD), F.lit(False))


def unit_hash(columns: list[Column]) -> Column:
    """A stable hash of the columns, uniform over 0 … 2⁵³ − 1, to be compared with THRESHOLD."""
    return F.shiftrightunsigned(F.xxhash64(*columns), 64 - _HASH_BITS)
