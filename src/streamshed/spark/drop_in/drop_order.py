"""The drop of a shed stream: which rows the order in force takes.

    HASH    a number of the row's own, from its key or its place in the source
    salt    a number of the drop's own, so that one drop behind another takes other rows
    row r is taken if  mix(HASH, salt) ≥ keep · 2⁵³

The orders are a text in the driver's memory. When a batch is planned the optimizer makes an array of it, which is
data to the generated code; when a task begins, it takes the order that holds at the batch's own time and remembers
its two numbers (`TaskCells`). No join, no broadcast, and nothing is compiled anew for another order.

While no plan drops anything, none of this is in the plan that runs: a gate, a literal in the driver's memory that
is opened and closed while the query runs, tells Spark's optimizer so in every batch. It removes the filter, then
the hash; no column is read for it. A second literal does so for the mark that counts what arrived, where Spark's
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
from streamshed.spark.orders.store import Store
from streamshed.spark.orders.task_cells import Line, TaskCells, batch_time, whole

HASH, ZERO = "_streamshed_hash", "_streamshed_zero"
_HASH_BITS = 53
_WHOLE = 1 << _HASH_BITS


class ControlFile(HistoryFile[Span, History]):
    """The plans of one shed stream."""

    def __init__(self, store: Store, name: str, now: Callable[[], float] = time.time) -> None:
        self._switches: Any = None
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

    def switches(self, spark: SparkSession) -> tuple[Column, Column]:
        """The gate, and whether rows are counted: conditions that the optimizer knows before it plans the joins.

        The gate is true if any plan may drop rows. Either may be read several times while one batch is planned,
        and change in between. A plan begins after the gate was opened for it, so such a batch has nothing to
        drop, and whatever mixture it got keeps its rows. Rows are always counted while the gate is open.
        """
        self._switches, both = Native(spark).array([self.history.drops, True], "boolean")
        gate = F.get(both, F.lit(0))
        return gate, gate | F.get(both, F.lit(1))

    def count(self, wanted: bool) -> None:
        """While nothing is dropped, count rows at the drop, or leave that to Spark's own count of the source."""
        self._switches.update(1, wanted)

    def order(self, spark: SparkSession, rotate: float | None) -> DropOrder:
        """What the queries are told, as columns."""
        line = Line(spark)
        self._cells.append(line.data)
        super()._show(self._row)
        return DropOrder(spark, line.column, rotate)

    def _show(self, data: bytes) -> None:
        # Open before a plan can drop, closed after none can: a batch between the two keeps its rows.
        drops = self.history.drops
        if self._switches is not None and drops:
            self._switches.update(0, True)
        super()._show(data)
        if self._switches is not None and not drops:
            self._switches.update(0, False)


class DropOrder:
    """The order in force in a batch.

    `batch_time()` is the batch's own, also when it runs again. Nothing in this may fail, whatever the text holds:
    `get` and `try_element_at` answer null where `[]` raises.
    """

    def __init__(self, spark: SparkSession, text: Column, rotate: float | None) -> None:
        self._cells = TaskCells(spark, 3)
        now = self._cells.read(2)
        plans = F.from_json(text, "plans array<array<double>>").getField("plans")
        plan = F.try_element_at(F.filter(plans, lambda p: F.get(p, F.lit(0)) <= now), F.lit(-1))
        keep = F.get(plan, F.lit(2))
        holds = (now < F.get(plan, F.lit(1))) & (keep < 1.0) & (keep >= 0.0)
        salt = F.coalesce(F.get(plan, F.lit(4)), F.lit(0.0)).cast("bigint")
        if rotate is not None:
            salt = F.xxhash64(salt, F.floor(now / F.lit(rotate * 1000.0)))
        threshold = F.coalesce(F.when(holds, (keep * F.lit(float(_WHOLE))).cast("bigint")), whole(_WHOLE))
        # Each of these is always true, and done once in a task: 0 means that nothing is known yet.
        looked = self._cells.swap(2, batch_time()) == whole(0)
        salted = self._cells.swap(1, salt) == whole(0)
        decided = self._cells.swap(0, threshold + whole(1)) == whole(0)
        self._known = (self._cells.read(0) != whole(0)) | (looked & salted & decided)

    @property
    def takes(self) -> Column:
        """Whether it takes a row away."""
        mixed = unit_hash([F.col(HASH), self._cells.read(1)])
        return F.when(self._known, mixed >= self._threshold).otherwise(F.lit(False))

    @property
    def keep(self) -> Column:
        """The share that is kept."""
        return F.when(self._known, self._threshold.cast("double") / F.lit(float(_WHOLE)))

    @property
    def _threshold(self) -> Column:
        return self._cells.read(0) - whole(1)


def unit_hash(columns: list[Column]) -> Column:
    """A stable hash of the columns, uniform over 0 … 2⁵³ − 1."""
    return F.shiftrightunsigned(F.xxhash64(*columns), 64 - _HASH_BITS)
