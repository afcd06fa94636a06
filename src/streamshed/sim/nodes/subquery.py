"""A part of a query on one node: its boxes run on batches, and pass on the information that comes in (eq. 4.1)."""

from __future__ import annotations

import math
from collections.abc import Collection
from importlib import import_module

import numpy as np

from streamshed.network.graph import Aggregate, Box, CountWindow, Filter, Join, Map, Network, TopK, Udf
from streamshed.quality.source_time_window import Mass, thinned, together
from streamshed.sim.network.rows import EMPTY, Rows
from streamshed.sim.network.state import StatefulBox, state_of
from streamshed.sim.nodes.batch import Batch

Information = tuple[Mass, float]
"""What went into something, and its SIC."""
NOTHING: Information = ({}, 0.0)


class HeldByTime:
    """Information that waits in windows of time. A row in several windows gives each an even part."""

    def __init__(self, window: float, slide: float | None) -> None:
        self._window, self._slide = window, slide or window
        self._open: dict[int, list[Information]] = {}

    def add(self, batch: Batch) -> None:
        times = batch.rows.arrived if len(batch.rows) else np.array([batch.sent])
        last, counts = np.unique(np.floor(times / self._slide).astype(np.int64), return_counts=True)
        for number, count in zip(last.tolist(), counts.tolist(), strict=True):
            windows = range(max(0, number - math.ceil(self._window / self._slide) + 1), number + 1)
            share = count / len(times) / len(windows)
            for window in windows:
                self._open.setdefault(window, []).append((thinned(batch.mass, share), batch.sic * share))

    def due(self, horizon: float) -> Information:
        over = [number for number in self._open if number * self._slide + self._window <= horizon]
        return _sum([part for number in over for part in self._open.pop(number)])


class HeldByCount:
    """Information that waits in windows of rows: each row that is used up takes an even part along."""

    def __init__(self) -> None:
        self._held: Information = NOTHING
        self._rows = 0

    def add(self, batch: Batch) -> None:
        self._held = _sum([self._held, (batch.mass, batch.sic)])
        self._rows += len(batch.rows)

    def used(self, left: int) -> Information:
        """So many rows are left: what the others carried."""
        share = 1.0 - left / self._rows if self._rows else 0.0
        mass, sic = self._held
        self._rows, self._held = left, (thinned(mass, 1.0 - share), sic * (1.0 - share))
        return thinned(mass, share), sic * share


class Subquery:
    """The boxes of one query on one node.

    lateness: seconds after the end of a window until its result is made: rows from other nodes may come so late
    """

    def __init__(self, network: Network, boxes: Collection[str], lateness: float) -> None:
        self.network = network
        self.boxes = frozenset(boxes)
        self._lateness = lateness
        here = [box for box in network.order if box.name in self.boxes]
        self._states: dict[str, StatefulBox] = {box.name: state_of(box) for box in here if box.makes_rows}
        self._by_time = {
            box.name: HeldByTime(box.window, box.slide if isinstance(box, Aggregate) else None)
            for box in here
            if isinstance(box, Aggregate | TopK)
        }
        self._by_count = {box.name: HeldByCount() for box in here if isinstance(box, CountWindow)}

    def process(self, batch: Batch, now: float) -> tuple[float, list[Batch]]:
        """Run a batch through all boxes here (DISSP 4.3, work unit): core-seconds, and the batches that leave."""
        work, leaving, pending = 0.0, [], [batch]
        while pending:
            each = pending.pop()
            if each.to not in self.boxes:
                leaving.append(each)
                continue
            box = self.network.nodes[each.to]
            assert isinstance(box, Box)
            work += box.cost * len(each.rows)
            if box.name in self._by_time:
                self._by_time[box.name].add(each)
                self._states[box.name].take([each.rows], -math.inf, now)
                continue  # its results come with `flush`
            pending += self._onward(box, each, *self._through(box, each, now))
        return work, leaving

    def flush(self, now: float) -> tuple[float, list[Batch]]:
        """Give out the results of the windows that are over."""
        horizon = now - self._lateness
        work, leaving = 0.0, []
        for name, held in self._by_time.items():
            mass, sic = held.due(horizon)
            if not mass:
                continue
            rows = self._states[name].take([EMPTY], horizon, now)
            box = self.network.nodes[name]
            assert isinstance(box, Box)
            over = Batch(-1, name, 0, rows, mass, sic, horizon)
            for part in self._onward(box, over, rows, (mass, sic)):
                more, left = self.process(part, now)
                work += more
                leaving += left
        return work, leaving

    def _through(self, box: Box, batch: Batch, now: float) -> tuple[Rows, Information]:
        rows, information = batch.rows, (batch.mass, batch.sic)
        if isinstance(box, Join):
            sides = [rows, EMPTY] if batch.side == 0 else [EMPTY, rows]
            return self._states[box.name].take(sides, now - self._lateness, now), information
        if isinstance(box, CountWindow):
            held, state = self._by_count[box.name], self._states[box.name]
            held.add(batch)
            made = state.take([rows], now, now)
            return made, held.used(len(state))  # type: ignore[arg-type]
        if not len(rows):
            return rows, information
        if isinstance(box, Filter):
            passes = np.broadcast_to(np.asarray(box.where.evaluate(rows.columns), bool), len(rows))
            return rows.take(np.flatnonzero(passes)), information
        if isinstance(box, Map):
            columns = {
                name: np.broadcast_to(e.evaluate(rows.columns), len(rows)) for name, e in box.select.items()
            }
            return Rows(columns, rows.arrived, rows.uid), information
        if isinstance(box, Udf):
            module, _, name = box.function.partition(":")
            function = getattr(import_module(module), name)
            values = [function(*row) for row in zip(*(rows.columns[each] for each in box.reads), strict=True)]
            return Rows({**rows.columns, box.adds.name: np.asarray(values)}, rows.arrived, rows.uid), information
        return rows, information

    def _onward(self, box: Box, batch: Batch, rows: Rows, information: Information) -> list[Batch]:
        """One batch for each box that gets these rows: together they carry what came in."""
        mass, sic = information
        if not mass and not len(rows):
            return []
        below = self.network.consumers[box.name]
        share = 1.0 / len(below)
        return [
            Batch(
                batch.query, name, self.side(name, box.name), rows, thinned(mass, share), sic * share, batch.sent
            )
            for name in below
        ]

    def side(self, name: str, above: str) -> int:
        node = self.network.nodes[name]
        return node.inputs.index(above) if isinstance(node, Box) else 0


def _sum(parts: list[Information]) -> Information:
    return together(mass for mass, _ in parts), sum(sic for _, sic in parts)
