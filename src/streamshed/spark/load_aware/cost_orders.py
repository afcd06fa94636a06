"""What the load-aware operator is told, as data: orders and cost tables in one row of text.

As for a drop (`control`), a batch takes the last order whose span holds the batch's own timestamp, so a batch that
runs again decides as it did before, and nothing to read means nothing to shed. An order says what to aim at, how
far the queues are (Q, ℓ, the usual delay before the first row starts) and which cost table to look up. Tables are
large and change seldom, so they stand beside the orders, once each.

What is kept: the newest orders and tables, and those that are held because an unfinished batch may need them. An
order never outlives its table: with another table, or none, a batch that runs again would keep other rows.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.las.check import ABSOLUTE
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import PRIME, CarterWegman, Digests

KEPT_ORDERS = 32
KEPT_TABLES = 3
DIGEST, ARRIVED, COST, ORDER = (f"_streamshed_{name}" for name in ("digest", "arrived", "cost", "order"))
OFF, DRY_RUN, ENFORCE = 0.0, 1.0, 2.0
_FIELDS = (
    "start", "until", "version", "table", "mode", "kind", "target", "window", "delay", "waited", "rows", "floor",
)  # fmt: skip
_WITHOUT_FLOOR = len(_FIELDS) - 1
"""Numbers of an order that a version before the floor has saved."""
_HISTORY, _TABLE = "_streamshed_history", "_streamshed_table"
BROKEN = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What reading a history raises that somebody else has written, or half of it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the stage is to do with batches of a span of time. Times of batches in ms, others in seconds."""

    start: int
    until: int
    version: int
    table: int
    """Number of the cost table; 0 means that costs are not known yet (or come with the rows)."""
    mode: float
    kind: float
    """Of the target: `las.check`'s AVERAGE or ABSOLUTE."""
    target: float
    window: float
    """Rows over which the average is taken, for each queue; 0 means all."""
    delay: float
    """From the batch's timestamp to the moment the first row starts, as it has been lately."""
    waited: float
    """Q: what the rows of one queue have waited in all, on average over the queues."""
    rows: float
    """ℓ: how many rows that were."""
    free: tuple[float, ...] = ()
    """Only for shedders that never look at the clock: when each queue will be empty, as they think."""
    floor: float = 0.0
    """Share of the rows that is let in whatever the check says."""

    def pinned(self, share: float) -> Order:
        """The same, but with this share let in, whatever rows cost.

        The floor lets in that much, and a target that no wait can meet lets in nothing else.
        """
        return replace(self, kind=ABSOLUTE, target=-1.0, floor=share)

    @property
    def is_pinned(self) -> bool:
        return self.target < 0.0

    def as_row(self) -> list[float]:
        return [*(round(float(getattr(self, name)), 6) for name in _FIELDS), *(round(t, 6) for t in self.free)]

    @staticmethod
    def from_row(row: list[float]) -> Order:
        start, until, version, table, *others = row[: len(_FIELDS)]
        mode, kind, target, window, delay, waited, rows, floor = (
            [*others, 0.0] if len(row) == _WITHOUT_FLOOR else others
        )
        numbers = int(start), int(until), int(version), int(table)
        free = tuple(row[len(_FIELDS) :])
        return Order(*numbers, mode, kind, target, window, delay, waited, rows, free, floor)


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """F and W/F, cell by cell, as the shedder looks them up; seconds."""

    number: int
    frequencies: NDArray[np.int64]
    costs: NDArray[np.float64]

    @staticmethod
    def of(number: int, sketch: CostSketch) -> CostTable:
        return CostTable(number, sketch.frequencies.ravel().copy(), np.round(sketch.ratios().ravel() / 1e9, 9))

    def estimates(self, hashes: CarterWegman, digests: Digests) -> NDArray[np.float64]:
        """ŵ of each row, as `with_orders` computes it on Spark."""
        cells = np.arange(hashes.rows) * hashes.columns + hashes.cells(digests)
        least = np.argmin(self.frequencies[cells], axis=1)
        return np.asarray(self.costs[cells[np.arange(len(digests)), least]], np.float64)

    def same_as(self, other: CostTable) -> bool:
        return np.array_equal(self.frequencies, other.frequencies) and np.array_equal(self.costs, other.costs)

    def as_row(self) -> list[float]:
        return [self.number, *self.frequencies.tolist(), *self.costs.tolist()]

    @staticmethod
    def from_row(row: list[float]) -> CostTable:
        half = (len(row) - 1) // 2
        return CostTable(int(row[0]), np.array(row[1 : 1 + half]).astype(np.int64), np.array(row[1 + half :]))


@dataclass(frozen=True, slots=True)
class OrderHistory:
    """The orders of a load-aware operator, oldest first, and the tables they name. Immutable."""

    cells: int
    """Cells of a table; those of another size, of other settings, are not taken over."""
    spans: tuple[Order, ...] = ()
    tables: tuple[CostTable, ...] = field(default=(), compare=False)
    held: frozenset[int] = field(default=frozenset(), compare=False)
    """Starts of the orders that stay, however many come after them."""

    @property
    def version(self) -> int:
        return self.spans[-1].version if self.spans else 0

    @property
    def newest_table(self) -> int:
        """The highest number of a table; 0 if there is none."""
        return max((table.number for table in self.tables), default=0)

    def at(self, batch_time: int) -> Order | None:
        """The order for a batch with this timestamp; the same rule as `with_orders` computes on Spark."""
        for order in reversed(self.spans):
            if order.start <= batch_time:
                return order if batch_time < order.until else None
        return None

    def table(self, number: int) -> CostTable | None:
        return next((table for table in self.tables if table.number == number), None)

    def add(self, span: Order) -> OrderHistory:
        earlier = tuple(order for order in self.spans if order.start < span.start)
        return self._pruned((*earlier, span), self.tables)

    def with_table(self, table: CostTable) -> OrderHistory:
        """A table for the orders to come; none that an order here names goes for it."""
        tables = (*self.tables, table)
        numbers = {order.table for order in self.spans} | {each.number for each in tables[-KEPT_TABLES:]}
        return replace(self, tables=tuple(each for each in tables if each.number in numbers))

    def holding(self, starts: Iterable[int]) -> OrderHistory:
        """The same, with these orders and their tables held and no others."""
        return replace(self, held=frozenset(starts))

    def merge(self, other: OrderHistory) -> OrderHistory:
        """Both histories in one. They are mostly parts of the same one, saved at different times.

        If not, two tables may have the same number; then those of `other` get new ones.
        """
        numbers: dict[int, int] = {}
        tables = list(self.tables)
        unused = max(self.newest_table, other.newest_table) + 1
        for table in other.tables:
            mine = self.table(table.number)
            if mine is not None and mine.same_as(table):
                continue
            if mine is not None:
                numbers[table.number], unused = unused, unused + 1
                table = replace(table, number=numbers[table.number])
            tables.append(table)
        theirs = (replace(order, table=numbers.get(order.table, order.table)) for order in other.spans)
        by_start = {order.start: order for order in (*theirs, *self.spans)}
        orders = tuple(by_start[start] for start in sorted(by_start))
        both = replace(self, held=self.held | other.held)
        return both._pruned(orders, tuple(sorted(tables, key=lambda table: table.number)))

    def _pruned(self, orders: tuple[Order, ...], tables: tuple[CostTable, ...]) -> OrderHistory:
        named = {order.table for order in orders if order.start in self.held} | {orders[-1].table if orders else 0}
        numbers = named | {table.number for table in tables[-KEPT_TABLES:]}
        newest = {order.start for order in orders[-KEPT_ORDERS:] if order.table in {0, *numbers}}
        wanted = [order.start in newest or order.start in self.held for order in orders]
        kept = []
        for at, order in enumerate(orders):
            following = at + 1
            if wanted[at] and following < len(orders) and not wanted[following]:
                # It must not speak for the time of an order that is left out.
                order = replace(order, until=min(order.until, orders[following].start))
            if wanted[at]:
                kept.append(order)
        return replace(self, spans=tuple(kept), tables=tuple(table for table in tables if table.number in numbers))

    def as_dict(self) -> dict[str, list[list[float]]]:
        return {"orders": [o.as_row() for o in self.spans], "tables": [t.as_row() for t in self.tables]}

    @staticmethod
    def from_dict(cells: int, data: dict[str, list[list[float]]]) -> OrderHistory:
        tables = tuple(CostTable.from_row(row) for row in data["tables"])
        if any(len(table.costs) != cells for table in tables):
            raise ValueError("cost tables of another size")
        return OrderHistory(cells, tuple(Order.from_row(row) for row in data["orders"]), tables)

    def encode(self) -> bytes:
        return json.dumps({"streamshed": 1, **self.as_dict()}, separators=(",", ":")).encode()

    @staticmethod
    def decode(cells: int, data: bytes) -> OrderHistory:
        """Read a control file; a broken one is an empty history, as it is for Spark."""
        try:
            return OrderHistory.from_dict(cells, json.loads(data.decode()))
        except BROKEN:
            return OrderHistory(cells)


def with_orders(
    events: DataFrame,
    keys: list[Column],
    arrived: Column,
    cost: Column | None,
    hashes: CarterWegman,
    text: DataFrame,
) -> DataFrame:
    """The stream with the digest of its key, its arrival (µs), estimated cost, and the order in force on each row.

    The order stands behind the batch's own timestamp, in one array of numbers; that time alone if there is none.

    `text` is the control row (`HistoryFile.text`), read by a scalar subquery, once a batch and without a job. The
    order is chosen outside of it: inside, `current_timestamp()` would not be the batch's own time. That time is a
    literal which changes with each batch and would have the generated code compiled anew, but a higher-order
    function keeps it out of that code. Nothing here may fail, whatever the text says: `get` and `try_element_at`
    answer null where `[]` raises.
    """
    parsed = F.from_json("value", "orders array<array<double>>, tables array<array<double>>")
    history = text.select(parsed.alias("h")).scalar()
    columns = [F.col(f"`{name}`") for name in events.columns]
    # As `hashing.digest`, but null for a key of nulls only.
    some = functools.reduce(Column.__or__, (key.isNotNull() for key in keys))
    digest = F.when(some, F.pmod(F.xxhash64(*keys), F.lit(PRIME)))
    given = (F.lit(None) if cost is None else cost).cast("double")
    now = F.unix_millis(F.current_timestamp())
    begun = F.filter(f"{_HISTORY}.orders", lambda order: F.get(order, F.lit(0)) <= now)
    nothing = F.array(F.array().cast("array<double>"))
    latest = F.coalesce(F.concat(nothing, F.slice(begun, -1, 1)), nothing)
    stamped = F.transform(latest, lambda order: F.concat(F.array(now.cast("double")), order))
    table = F.filter(f"{_HISTORY}.tables", lambda each: F.get(each, F.lit(0)) == F.get(ORDER, F.lit(4)))
    micros = F.unix_micros(arrived.cast("timestamp"))
    base = [*columns, F.col(DIGEST), F.col(ARRIVED)]
    found = events.select(
        *columns, digest.alias(DIGEST), micros.alias(ARRIVED), given.alias(COST), history.alias(_HISTORY)
    )
    found = found.select(*base, COST, _HISTORY, F.try_element_at(stamped, F.lit(-1)).alias(ORDER))
    if cost is not None:
        return found.select(*base, COST, ORDER)
    found = found.select(*base, ORDER, F.try_element_at(table, F.lit(1)).alias(_TABLE))
    return found.select(*base, _looked_up(hashes).alias(COST), ORDER)


def _looked_up(hashes: CarterWegman) -> Column:
    """ŵ: W/F at the row of the sketch with the least F, the first such row if there are several."""
    cells = [F.expr(cell) for cell in hashes.sql(DIGEST)]
    size = hashes.rows * hashes.columns

    def at(offset: int, cell: Column) -> Column:
        return F.get(_TABLE, (F.lit(1 + offset) + cell).cast("int"))

    candidates = [
        F.struct(
            at(i * hashes.columns, cell).alias("f"),
            F.lit(i).alias("row"),
            at(size + i * hashes.columns, cell).alias("cost"),
        )
        for i, cell in enumerate(cells)
    ]
    return F.array_min(F.array(*candidates)).getField("cost")
