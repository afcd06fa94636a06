"""Rows as columns, and the pool of all rows that are alive.

The pool is laid out anew at every step: first come the rows still waiting from before, then the new ones,
class by class. Predicates are then evaluated once for each class, on whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamshed.network.expressions.expression import Expression
from streamshed.network.graph import Filter, Map, Udf
from streamshed.sim.network import kernel
from streamshed.sim.network.aware import aware_boxes, key_digests
from streamshed.sim.network.kernel import Floats, Hashes, Ints, Places
from streamshed.sim.network.numbered import NumberedNetwork, RowClass

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one class."""

    columns: Mapping[str, Array]
    arrived: Floats
    uid: Hashes
    protected: NDArray[np.bool_] | None = None
    """Rows that no drop may take; None: there are none."""

    def __len__(self) -> int:
        return len(self.arrived)

    def take(self, which: Ints) -> Rows:
        return Rows(
            {name: column[which] for name, column in self.columns.items()},
            self.arrived[which],
            self.uid[which],
            None if self.protected is None else self.protected[which],
        )


EMPTY = Rows({}, np.empty(0), np.empty(0, np.uint64))


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of the same class, one part after the other."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    protected = None
    if any(part.protected is not None for part in parts):
        protected = np.concatenate([np.zeros(len(p), bool) if p.protected is None else p.protected for p in parts])
    return Rows(
        {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
        np.concatenate([part.arrived for part in parts]),
        np.concatenate([part.uid for part in parts]),
        protected,
    )


@dataclass(frozen=True, slots=True)
class Test:
    """A drop's predicate at an arc."""

    arc: str
    where: Expression | None


class Pool:
    """All rows alive in one step, and what the kernel must know of them."""

    def __init__(self, layout: NumberedNetwork) -> None:
        self._layout = layout
        count = len(layout.classes)
        self._bits = layout.bits()
        self._aware = aware_boxes(layout.network.order)
        self._values = [
            (output.name, output.qos.value) for output in layout.network.outputs if output.qos.value is not None
        ]
        self.rows: list[Rows] = [EMPTY] * count
        self.start: Ints = np.zeros(count + 1, np.int64)
        self.arrived: Floats = np.empty(0)
        self.worth: Floats = np.empty((1, 0))
        """[line, row]: the value utility a row has at an output."""
        self.worth_line: Ints = np.full((count, len(layout.output)), -1, np.int64)
        for each in layout.classes:
            graded = [name for name, _ in self._values if name in each.outputs]
            for line, name in enumerate(graded):
                self.worth_line[each.index, layout.output[name]] = line
        self.view = kernel.PoolArrays(
            np.empty(0, np.uint64),
            np.empty(0, np.uint64),
            np.empty((1, 0), np.uint64),
            self._bits,
            np.zeros((count, layout.slots), np.uint32),
            np.empty(0),
            np.zeros((len(self._aware), 0), np.int64),
        )

    def refill(self, alive: Ints, fresh: Mapping[str, Rows]) -> tuple[Ints, dict[str, int]]:
        """Lay the pool out for the next step.

        alive: positions of the rows that are still waiting, ascending, each once
        fresh: new rows by the source or box they come from

        Returns where each old position has moved to, and where the fresh rows of each origin begin.
        """
        classes = self._layout.classes
        moved = np.zeros(int(self.start[-1]), np.int64)
        bounds = np.searchsorted(alive, self.start)
        rows: list[Rows] = []
        start = np.zeros(len(classes) + 1, np.int64)
        first_fresh: dict[str, int] = {}
        shifts = np.zeros_like(self.view.shift)
        for each in classes:
            at = start[each.index]
            mine = alive[bounds[each.index] : bounds[each.index + 1]]
            moved[mine] = at + np.arange(len(mine))
            parts = [self.rows[each.index].take(mine - self.start[each.index])] if len(mine) else []
            if each.parent is None:
                new = fresh.get(each.origin, EMPTY)
                first_fresh[each.origin] = int(at) + len(mine)
            else:
                new = self._mapped(each, rows[each.parent])
                shifts[each.parent, self._layout.box[str(each.box)]] = at + len(mine) - start[each.parent]
            rows.append(joined([*parts, new]))
            start[each.index + 1] = at + len(rows[-1])
        self.rows, self.start = rows, start
        self._see(shifts)
        return moved, first_fresh

    def match(self, tests: Sequence[Test]) -> Places:
        """Evaluate drops' predicates; [class, drop] ─► the bit of the answers."""
        table = np.full((len(self._layout.classes), len(tests)), kernel.TRUE, np.uint32)
        wanted: list[tuple[int, RowClass, NDArray[np.bool_]]] = []
        for each in self._layout.classes:
            rows = self.rows[each.index]
            bit = int(self._bits.max())
            for number, test in enumerate(tests):
                if test.arc not in each.arcs or (test.where is None and rows.protected is None):
                    continue
                answer = np.ones(len(rows), bool)
                if test.where is not None and len(rows):
                    answer &= test.where.evaluate(rows.columns).astype(bool)
                if rows.protected is not None:
                    answer &= ~rows.protected
                bit += 1
                table[each.index, number] = bit
                wanted.append((bit, each, answer))
        card = self.view.card
        words = 1 + max((bit for bit, _, _ in wanted), default=0) // 64
        if words > len(card):
            card = np.concatenate([card, np.zeros((words - len(card), card.shape[1]), np.uint64)])
        for bit, each, answer in wanted:
            self._mark(card, each, bit, answer)
        self.view = self.view._replace(card=card)
        return table

    def _mark(self, card: Hashes, rows: RowClass, bit: int, answers: Array) -> None:
        """Note the answers to one question on the cards of a class."""
        span = card[bit // 64, self.start[rows.index] : self.start[rows.index + 1]]
        answers = np.asarray(answers, bool)
        kernel.mark(span, bit % 64, answers if answers.ndim else np.full(len(span), answers))

    def rows_at(self, positions: Ints) -> list[tuple[Ints, Rows]]:
        """The rows at some positions, by class: which of `positions` they are, and the rows."""
        group = np.searchsorted(self.start, positions, side="right") - 1
        found = []
        for index in np.unique(group).tolist():
            which = np.flatnonzero(group == index)
            found.append((which, self.rows[index].take(positions[which] - self.start[index])))
        return found

    def _see(self, shifts: Places) -> None:
        total = int(self.start[-1])
        sizes = np.diff(self.start)
        nodes = self._layout.network.nodes
        card = np.zeros((1 + int(self._bits.max()) // 64, total), np.uint64)
        card[0] = np.repeat(np.arange(len(sizes), dtype=np.uint64) + np.uint64(1 << kernel.TRUE), sizes)
        grades = int(self.worth_line.max(initial=-1)) + 1
        worth = np.zeros((max(1, grades), total))
        for each, rows in zip(self._layout.classes, self.rows, strict=True):
            if not len(rows):
                continue
            span = slice(self.start[each.index], self.start[each.index + 1])
            for name in each.filters:
                box = nodes[name]
                assert isinstance(box, Filter)
                self._mark(card, each, int(self._bits[self._layout.box[name]]), box.where.evaluate(rows.columns))
            for name, graph in self._values:
                line = self.worth_line[each.index, self._layout.output[name]]
                if line >= 0:
                    worth[line, span] = graph.many(np.asarray(rows.columns[graph.field], dtype=np.float64))
        self.arrived = np.concatenate([rows.arrived for rows in self.rows])
        self.worth = worth
        uid = np.concatenate([rows.uid for rows in self.rows])
        self.view = kernel.PoolArrays(
            uid=uid,
            key=self._keys() if self._layout.keyed else uid,
            card=card,
            bit=self._bits,
            shift=shifts,
            arrived=self.arrived,
            digest=self._digests(total),
        )

    def _keys(self) -> Hashes:
        """Of each row the digest of its key."""
        return np.concatenate(
            [
                key_digests([rows.columns[name] for name in each.key]).astype(np.uint64)
                if each.key and len(rows)
                else rows.uid
                for each, rows in zip(self._layout.classes, self.rows, strict=True)
            ]
        )

    def _digests(self, total: int) -> Ints:
        """[load-aware box, row]: digests of the keys of the rows that may come to each."""
        found = np.zeros((len(self._aware), total), np.int64)
        for which, box in enumerate(self._aware):
            assert box.load_aware is not None
            (above,) = self._layout.network.arcs_into(box.name)
            for each, rows in zip(self._layout.classes, self.rows, strict=True):
                if len(rows) and above in each.arcs:
                    span = slice(self.start[each.index], self.start[each.index + 1])
                    found[which, span] = key_digests([rows.columns[name] for name in box.load_aware.key])
        return found

    def _mapped(self, derived: RowClass, above: Rows) -> Rows:
        if not len(above):
            return EMPTY
        box = self._layout.network.nodes[str(derived.box)]
        columns: dict[str, Array]
        if isinstance(box, Map):
            columns = {
                name: np.broadcast_to(expression.evaluate(above.columns), len(above))
                for name, expression in box.select.items()
            }
        else:
            assert isinstance(box, Udf)
            function = _function(box.function)
            given = zip(*(above.columns[name].tolist() for name in box.reads), strict=True)
            results = [function(*values) for values in given]
            columns = {**above.columns, box.adds.name: np.asarray(results)}
        return Rows(columns, above.arrived, above.uid, above.protected)


def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
