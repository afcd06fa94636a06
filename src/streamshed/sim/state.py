"""Boxes that remember: the join and the aggregate, on batches of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from streamshed.network.expression import Call
from streamshed.network.graph import Aggregate, Join
from streamshed.sim.kernel import Floats, Hashes, Ints
from streamshed.sim.rows import EMPTY, Array, Rows, joined


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


class AggregateState:
    """One row for each window and group, as soon as no more rows of the window can come.

    It arrives at the end of its window: its latency is how long after that it was known.
    """

    def __init__(self, box: Aggregate) -> None:
        self._box = box
        self._slide = box.slide or box.window
        self._open: dict[int, list[Rows]] = {}

    def take(self, sides: Sequence[Rows], horizon: float, now: float) -> Rows:
        (rows,) = sides
        if len(rows):
            last = np.floor(rows.arrived / self._slide).astype(np.int64)
            for back in range(int(np.ceil(self._box.window / self._slide))):
                window = last - back
                inside = (window >= 0) & (rows.arrived < window * self._slide + self._box.window)
                for number in np.unique(window[inside]).tolist():
                    batch = rows.take(np.flatnonzero(inside & (window == number)))
                    self._open.setdefault(number, []).append(batch)
        due = sorted(n for n in self._open if n * self._slide + self._box.window <= horizon)
        return joined([self._close(number, now) for number in due])

    def _close(self, number: int, now: float) -> Rows:
        rows = joined(self._open.pop(number))
        start, end = number * self._slide, number * self._slide + self._box.window
        groups = codes([rows.columns[name] for name in self._box.by]) if self._box.by else np.zeros(len(rows))
        order = np.argsort(groups, kind="stable")
        begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
        count = len(begins)
        columns: dict[str, Array] = {
            "window_start": np.full(count, start),
            "window_end": np.full(count, end),
            **{name: rows.columns[name][order][begins] for name in self._box.by},
        }
        for name, call in self._box.compute.items():
            assert isinstance(call, Call)
            values = np.broadcast_to(call.args[0].evaluate(rows.columns), len(rows))[order]
            columns[name] = _reduced(call.name, np.asarray(values, dtype=np.float64), begins)
        uid = mixed(np.full(count, number, np.uint64), rows.uid[order][begins])
        return Rows(columns, np.full(count, min(end, now)), uid)


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


def _reduced(function: str, values: Floats, begins: Ints) -> Array:
    sizes = np.diff(begins, append=len(values))
    if function == "count":
        return sizes
    if function in ("min", "max"):
        return np.asarray((np.minimum if function == "min" else np.maximum).reduceat(values, begins))
    sums = np.add.reduceat(values, begins)
    return np.asarray(sums / sizes if function == "avg" else sums)
