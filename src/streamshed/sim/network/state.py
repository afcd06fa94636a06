"""Boxes that remember: joins, windows and top-k, on batches of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from streamshed.network.expressions.expression import Call, Expression
from streamshed.network.graph import Aggregate, Box, CountWindow, Join, TopK
from streamshed.sim.network.kernel import Floats, Hashes, Ints
from streamshed.sim.network.rows import EMPTY, Array, Rows, joined


class StatefulBox(Protocol):
    def take(self, sides: Sequence[Rows], horizon: float, now: float) -> Rows:
        """Take the rows served since the last call, by input, and give the results that are due.

        horizon: no row that arrived before this will come any more
        """
        ...


class JoinState:
    """Pairs of rows equal in some columns that arrived at most a time apart.

    A pair arrives when its later row does. Rows are forgotten when no partner can come any more.
    """

    def __init__(self, box: Join) -> None:
        self._box = box
        self._sides: list[Rows] = [EMPTY, EMPTY]

    def take(self, sides: Sequence[Rows], horizon: float, now: float) -> Rows:
        old, new = self._sides, sides
        pairs = [
            self._pairs(new[0], joined([old[1], new[1]])),
            self._pairs(old[0], new[1]),
        ]
        self._sides = [self._kept(joined([o, n]), horizon) for o, n in zip(old, new, strict=True)]
        return joined(pairs)

    def _kept(self, rows: Rows, horizon: float) -> Rows:
        return rows.take(np.flatnonzero(rows.arrived >= horizon - self._box.within))

    def _pairs(self, left: Rows, right: Rows) -> Rows:
        if not len(left) or not len(right):
            return EMPTY
        keys = codes([np.concatenate([left.columns[n], right.columns[n]]) for n in self._box.on])
        # One number orders rows by key, then by arrival: partners are a stretch of it.
        first = min(left.arrived.min(), right.arrived.min()) - self._box.within
        span = max(left.arrived.max(), right.arrived.max()) + self._box.within - first + 1.0
        place = keys * span + np.concatenate([left.arrived, right.arrived]) - first
        mine, theirs = place[: len(left)], place[len(left) :]
        order = np.argsort(theirs, kind="stable")
        low = np.searchsorted(theirs[order], mine - self._box.within, side="left")
        high = np.searchsorted(theirs[order], mine + self._box.within, side="right")
        counts = high - low
        which_left = np.repeat(np.arange(len(left)), counts)
        offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        which_right = order[np.repeat(low, counts) + offsets]
        a, b = left.take(which_left), right.take(which_right)
        others = {name: column for name, column in b.columns.items() if name not in self._box.on}
        return Rows({**a.columns, **others}, np.maximum(a.arrived, b.arrived), mixed(a.uid, b.uid))


class OpenWindows:
    """Rows by the windows of time that they lie in, until no more rows of a window can come."""

    def __init__(self, window: float, slide: float | None = None) -> None:
        self._window = window
        self._slide = slide or window
        self._open: dict[int, list[Rows]] = {}

    def add(self, rows: Rows) -> None:
        if len(rows):
            last = np.floor(rows.arrived / self._slide).astype(np.int64)
            for back in range(int(np.ceil(self._window / self._slide))):
                window = last - back
                inside = (window >= 0) & (rows.arrived < window * self._slide + self._window)
                for number in np.unique(window[inside]).tolist():
                    batch = rows.take(np.flatnonzero(inside & (window == number)))
                    self._open.setdefault(number, []).append(batch)

    def due(self, horizon: float) -> list[tuple[int, float, float, Rows]]:
        """Take out the windows that are over: number, start, end, rows."""
        over = sorted(n for n in self._open if n * self._slide + self._window <= horizon)
        return [(n, n * self._slide, n * self._slide + self._window, joined(self._open.pop(n))) for n in over]


class AggregateState:
    """One row for each window and group, as soon as no more rows of the window can come.

    It arrives at the end of its window: its latency is how long after that it was known.
    """

    def __init__(self, box: Aggregate) -> None:
        self._box = box
        self._windows = OpenWindows(box.window, box.slide)

    def take(self, sides: Sequence[Rows], horizon: float, now: float) -> Rows:
        (rows,) = sides
        self._windows.add(rows)
        return joined([self._close(*window, now) for window in self._windows.due(horizon)])

    def _close(self, number: int, start: float, end: float, rows: Rows, now: float) -> Rows:
        order, begins = grouped(rows, self._box.by)
        count = len(begins)
        columns: dict[str, Array] = {
            "window_start": np.full(count, start),
            "window_end": np.full(count, end),
            **{name: rows.columns[name][order][begins] for name in self._box.by},
            **computed(self._box.compute, rows, order, begins),
        }
        uid = mixed(np.full(count, number, np.uint64), rows.uid[order][begins])
        return Rows(columns, np.full(count, min(end, now)), uid)


class CountWindowState:
    """One row for every so many rows of a group, in the order in which they come."""

    def __init__(self, box: CountWindow) -> None:
        self._box = box
        self._waiting = EMPTY

    def take(self, sides: Sequence[Rows], horizon: float, now: float) -> Rows:
        rows = joined([self._waiting, sides[0]])
        if not len(rows):
            return EMPTY
        order, begins = grouped(rows, self._box.by)
        sizes = np.diff(begins, append=len(rows))
        full = sizes // self._box.rows
        place = np.arange(len(rows)) - np.repeat(begins, sizes)  # of each row in its group
        whole = place < np.repeat(full * self._box.rows, sizes)
        self._waiting = rows.take(np.sort(order[~whole]))
        order = order[whole]
        begins = np.flatnonzero(place[whole] % self._box.rows == 0)
        if not len(begins):
            return EMPTY
        first, last = rows.arrived[order[begins]], rows.arrived[order[begins + self._box.rows - 1]]
        columns: dict[str, Array] = {
            "window_start": first,
            "window_end": last,
            **{name: rows.columns[name][order][begins] for name in self._box.by},
            **computed(self._box.compute, rows, order, begins),
        }
        return Rows(columns, last, mixed(rows.uid[order[begins]], rows.uid[order[begins + self._box.rows - 1]]))

    def __len__(self) -> int:
        """Rows that wait for their window to be full."""
        return len(self._waiting)


class TopKState:
    """The k largest rows of each window and group, as soon as no more rows of the window can come."""

    def __init__(self, box: TopK) -> None:
        self._box = box
        self._windows = OpenWindows(box.window)

    def take(self, sides: Sequence[Rows], horizon: float, now: float) -> Rows:
        (rows,) = sides
        self._windows.add(rows)
        return joined([self._close(*window, now) for window in self._windows.due(horizon)])

    def _close(self, number: int, start: float, end: float, rows: Rows, now: float) -> Rows:
        groups = codes([rows.columns[name] for name in self._box.by]) if self._box.by else np.zeros(len(rows))
        # Largest first within each group; of equal ones the row of the smaller number, so that runs repeat.
        order = np.lexsort((rows.uid, -np.asarray(rows.columns[self._box.field], np.float64), groups))
        begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
        place = np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows)))
        best = rows.take(order[place < self._box.k])
        count = len(best)
        columns = {**best.columns, "window_start": np.full(count, start), "window_end": np.full(count, end)}
        return Rows(columns, np.full(count, min(end, now)), mixed(np.full(count, number, np.uint64), best.uid))


def state_of(box: Box) -> StatefulBox:
    """A new state for a box that makes rows."""
    if isinstance(box, Join):
        return JoinState(box)
    if isinstance(box, CountWindow):
        return CountWindowState(box)
    if isinstance(box, TopK):
        return TopKState(box)
    assert isinstance(box, Aggregate)
    return AggregateState(box)


def grouped(rows: Rows, by: Sequence[str]) -> tuple[Ints, Ints]:
    """An order in which rows of equal `by` stand together, as they came, and where each group begins in it."""
    groups = codes([rows.columns[name] for name in by]) if by else np.zeros(len(rows))
    order = np.argsort(groups, kind="stable")
    return order, np.flatnonzero(np.diff(groups[order], prepend=-1))


def computed(compute: Mapping[str, Expression], rows: Rows, order: Ints, begins: Ints) -> dict[str, Array]:
    """The columns of an aggregate over the groups that begin at some places of an order."""
    found: dict[str, Array] = {}
    for name, call in compute.items():
        assert isinstance(call, Call)
        values = np.broadcast_to(call.args[0].evaluate(rows.columns), len(rows))[order]
        found[name] = _reduced(call.name, values, begins)
    return found


def codes(keys: Sequence[Array]) -> Floats:
    """Equal rows of key columns have equal numbers, from 0 on."""
    result = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        _, code = np.unique(key, return_inverse=True)
        _, result = np.unique(result * (int(code.max()) + 1) + code, return_inverse=True)
    return result.astype(np.float64)


def mixed(a: Hashes, b: Hashes) -> Hashes:
    """One row number from two."""
    return np.asarray((a * np.uint64(0x9E3779B97F4A7C15)) ^ (b + np.uint64(0xD1B54A32D192ED03)), np.uint64)


def _reduced(function: str, values: Array, begins: Ints) -> Array:
    sizes = np.diff(begins, append=len(values))
    if function == "count":
        return sizes
    if function == "count_distinct":
        return np.array([len(np.unique(part)) for part in np.split(values, begins[1:])])
    values = np.asarray(values, dtype=np.float64)
    if function in ("min", "max"):
        return np.asarray((np.minimum if function == "min" else np.maximum).reduceat(values, begins))
    sums = np.add.reduceat(values, begins)
    return np.asarray(sums / sizes if function == "avg" else sums)
