"""The drop of a shed stream: which rows the order in force takes.

    HASH    a number of the row's own, from its key or its place in the source
    salt    a number of the drop's own, so that one drop behind another takes other rows
    row r is taken if  mix(HASH, salt) ≥ keep · 2⁵³

The orders are in the driver's memory. When a batch is planned, the optimizer asks for the one that holds at the
batch's own time (`OrderInForce.java`), and gets its two numbers: data to the generated code. No join, no
broadcast, and nothing is compiled anew for another order.

While no plan drops anything, none of this is in the plan that runs: a gate, a literal in the driver's memory that
is opened and closed while the query runs, tells Spark's optimizer so in every batch. It removes the filter, then
the hash; no column is read for it. Two more literals do so for the mark that counts what arrived, where Spark's
own count of the source is as good.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streamshed.spark.native import Native
from streamshed.spark.orders.history import History, Span
from streamshed.spark.orders.order_file import HistoryFile
from streamshed.spark.orders.planned_data import Switches, at_run_time, batch_time, java
from streamshed.spark.orders.store import Store

HASH = "_streamshed_hash"
_HASH_BITS = 53
_WHOLE = 1 << _HASH_BITS
_GATE, _COUNTED, _FENCED = range(3)  # which switch


class ControlFile(HistoryFile[Span, History]):
    """The plans of one shed stream."""

    def __init__(self, store: Store, name: str, now: Callable[[], float] = time.time) -> None:
        self._switches: Switches | None = None
        self._orders: Any = None
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

    def switches(self, spark: SparkSession) -> tuple[Column, Column, Column]:
        """The gate; whether rows are counted; whether they are where nothing else keeps filters from the source.

        These are conditions that the optimizer knows before it chooses the columns to read. The gate is true if
        any plan may drop rows. Each may be read several times while one batch is planned, and change in between.
        A plan begins after the gate was opened for it, so such a batch has nothing to drop, and whatever mixture
        it got keeps its rows. Rows are always counted while the gate is open.
        """
        self._switches = switches = Switches(spark, self.history.drops, True, True)
        gate = switches.is_on(_GATE)
        return gate, gate | switches.is_on(_COUNTED), switches.is_on(_FENCED)

    def count(self, always: bool, fenced: bool) -> None:
        """While nothing is dropped, count rows at the drop, or leave that to Spark's own count of the source.

        `fenced`: count where there is nothing else at the drop. A filter from further down would get to the
        source, which then leaves out rows that it does not count.
        """
        if self._switches is not None:
            self._switches.turn(_COUNTED, always)
            self._switches.turn(_FENCED, fenced)

    def order(self, spark: SparkSession, rotate: float | None) -> DropOrder:
        """What the queries are told, as columns."""
        self._orders = Native(spark).jvm.java.util.concurrent.atomic.AtomicReference()
        self._show(self._row)
        return DropOrder(spark, self._orders, rotate)

    def _show(self, data: bytes) -> None:
        # Open before a plan can drop, closed after none can: a batch between the two keeps its rows.
        drops = self.history.drops
        if self._switches is not None and drops:
            self._switches.turn(_GATE, True)
        if self._orders is not None:
            self._orders.set(";".join(map(_order, self.history.spans)) if data else "")
        if self._switches is not None and not drops:
            self._switches.turn(_GATE, False)


def _order(span: Span) -> str:
    """A plan as the drop has it. Its share is rounded as where it is stored: a batch may run again from there."""
    return f"{span.start} {span.until} {int(round(span.keep, 9) * _WHOLE)} {span.salt}"


class DropOrder:
    """The order in force in a batch.

    The batch's time is its own, also when it runs again. Where nothing can be known, nothing is taken.
    """

    def __init__(self, spark: SparkSession, orders: Any, rotate: float | None) -> None:
        """`orders`: an AtomicReference with the text of all that holds at some time."""
        native = Native(spark)
        now = batch_time(spark)
        source = java(__package__, "OrderInForce")
        in_force = native.asked(source, [orders, _WHOLE], "java.util.function.LongFunction")
        order = native.invoke(in_force, "apply", "array<bigint>", now, deterministic=True)
        self._least, self._salt = (at_run_time(order, place) for place in range(2))
        if rotate is not None:
            turn = F.floor(now / F.lit(rotate * 1000.0))
            self._salt = at_run_time(F.array(F.xxhash64(F.get(order, F.lit(1)), turn)))

    @property
    def takes(self) -> Column:
        """Whether it takes a row away."""
        return F.coalesce(unit_hash([F.col(HASH), self._salt]) >= self._least, F.lit(False))

    @property
    def keep(self) -> Column:
        """The share that is kept."""
        return self._least.cast("double") / F.lit(float(_WHOLE))


def unit_hash(columns: list[Column]) -> Column:
    """A stable hash of the columns, uniform over 0 … 2⁵³ − 1."""
    return F.shiftrightunsigned(F.xxhash64(*columns), 64 - _HASH_BITS)
