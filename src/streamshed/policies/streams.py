"""The streams of `lsrm-semantic`: what each source arc's rows do under drops by value, and by coin.

A stream's rows are cut into cells of one field. Every output that drops by value has, for each number of
steps, a set of values that are gone; other outputs have a share that is gone. What goes at a candidate arc is
what every output below it can do without.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamshed.network.analysis import passing
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Source, ends
from streamshed.network.qos import Histogram
from streamshed.network.ranges import Ranges
from streamshed.network.trace import reaching
from streamshed.network.values import Lane, Vector, below, follow, forward, lane, source_histogram, traces
from streamshed.policies.contract import protection

Mask = npt.NDArray[np.bool_]
Cursor = tuple[str, str]
"""An output and, where it moves by itself, the source arc; else ""."""


@dataclass
class Stream:
    """The rows of one source arc, by cells of one field (a single cell where no output drops by value)."""

    lane: Lane
    source: Source
    share: Vector
    """Rows of each cell that may be dropped, per row that arrives."""
    boxes: list[str]
    outputs: dict[str, Cursor]
    worth: dict[str, Vector]
    """Utility of each cell to each output that drops by value."""
    places: dict[str, list[str]]
    """Candidate arcs, with the outputs below each."""
    full: dict[str, Vector] = field(default_factory=dict)
    """Rows of each cell on each candidate arc when nothing is dropped."""
    ranks: dict[str, Vector] = field(default_factory=dict)
    """For each output that drops by value, the step at which each cell goes."""
    dead: dict[str, dict[str, Mask]] = field(default_factory=dict)
    """For each candidate arc, for each such output below it, which cells never reach that output."""
    short: tuple[Vector, dict[str, Vector]] | None = None
    """Where the source arc is the only place for drops: work, and rows at each output, of one row by cell."""


@dataclass
class State:
    """What a stream does under drops, per row that arrives at its source arc."""

    work: float
    rows: dict[str, float]
    """Rows, of those that may be dropped, that reach each output."""
    value: dict[str, float]
    """Their utility, for outputs that drop by value."""
    arriving: dict[str, float] = field(default_factory=dict)
    dropped: dict[str, float] = field(default_factory=dict)
    """By candidate arc: rows, of the values that may go there, that reach it; and those that it drops."""


class Streams:
    """All streams of a network, with the candidate arcs, and the outputs that drop by value."""

    def __init__(self, catalog: Catalog, step: float, chunk: float | None) -> None:
        self.catalog, self.network, self.step, self.chunk = catalog, catalog.network, step, chunk
        self.steps = math.ceil(1 / step - 1e-9)
        network = self.network
        self.protectable = protection(network)
        self.traces = traces(network)
        tails = (*(source.name for source in network.sources), *network.split_points)
        self.below = {
            name: below(network, name)[1]
            for tail in tails
            for name in network.arcs_out_of(tail)
            if name in self.protectable
        }
        self.source_arcs = {
            name: source for source in network.sources for name in network.arcs_out_of(source.name)
        }
        self.by_value = self._by_value()
        self.reach = {name: reaching(network, name, self.traces[name]) for name in self.by_value}
        self.all = [self._stream(source, name) for name, source in self.source_arcs.items()]
        self.of_output: dict[str, list[int]] = {output.name: [] for output in network.outputs}
        self.at: dict[str, list[int]] = {name: [] for name in self.below}
        self.from_source: dict[str, list[int]] = {source.name: [] for source in network.sources}
        for index, stream in enumerate(self.all):
            self.from_source[stream.source.name].append(index)
            for name in stream.outputs:
                self.of_output[name].append(index)
            for name in stream.places:
                self.at[name].append(index)
        self._gone = self._orders()
        for stream in self.all:
            self._cut(stream)

    # ── preparation ──────────────────────────────────────────────────────────────────────────────

    def _by_value(self) -> set[str]:
        """Outputs that drop by value: followed to all sources, at each arc in their neighbours' field."""
        chosen = set(self.traces)
        for name, source in self.source_arcs.items():
            for output in set(below(self.network, name)[1]) & chosen:
                traced = self.traces[output].get(name)
                known = traced and source_histogram(self.network, name, traced.field, self.traces)
                if traced is None or known is None or source.name not in self.catalog.rates:
                    chosen.discard(output)
        changed = True
        while changed:
            changed = False
            for name, outputs in self.below.items():
                fields = {output: self.traces[output][name].field for output in outputs if output in chosen}
                if len(set(fields.values())) > 1:
                    leading = min(Counter(fields.values()).items(), key=lambda one: (-one[1], one[0]))[0]
                    chosen -= {output for output, by in fields.items() if by != leading}
                    changed = True
        return chosen

    def _stream(self, source: Source, on: str) -> Stream:
        boxes, outputs = below(self.network, on)
        inside = set(boxes)
        places = {
            name: ends_in
            for name, ends_in in self.below.items()
            if name == on or (name not in self.source_arcs and ends(name)[0] in inside)
        }
        alone = len(outputs) == 1
        valued = [output for output in outputs if output in self.by_value]
        by = self.traces[valued[0]][on].field if valued else ""
        made = self._lane(on, by, boxes, set())
        return Stream(made, source, made.share, boxes, {o: (o, on if alone else "") for o in outputs}, {}, places)

    def _lane(self, on: str, by: str, boxes: list[str], cuts: set[float]) -> Lane:
        if not by:
            passes = {name: np.array([self.catalog.selectivities[name]]) for name in boxes}
            return Lane(on, "", np.array([0.0, 1.0]), np.ones(1), passes)
        histogram = source_histogram(self.network, on, by, self.traces)
        assert histogram is not None  # `_by_value` saw to that
        return lane(self.catalog, on, by, histogram, self.traces, cuts)

    def _orders(self) -> dict[Cursor, list[Ranges]]:
        """For each cursor of an output that drops by value, the values gone after each number of steps."""
        parts: dict[Cursor, list[tuple[float, Histogram]]] = {}
        for stream in self.all:
            for output, cursor in stream.outputs.items():
                if output in self.by_value:
                    rows = follow(self.network, stream.lane)[output]
                    if rows.sum() > 0:
                        traced = self.traces[output][stream.lane.arc]
                        edges = [forward(traced, float(edge)) for edge in stream.lane.edges]
                        counts = list(rows)
                        if not traced.increasing:
                            edges, counts = edges[::-1], counts[::-1]
                        weight = self.catalog.rates[stream.source.name] * float(rows.sum())
                        parts.setdefault(cursor, []).append((weight, Histogram.of(edges, counts)))
        found: dict[Cursor, list[Ranges]] = {}
        for (output, on), spreads in parts.items():
            histogram = Histogram.mixture(spreads) or spreads[0][1]
            node = next(one for one in self.network.outputs if one.name == output)
            assert node.qos.value is not None
            order = node.qos.value.order(histogram, self.chunk)
            sets = [order.dropped(100 * self.step * k) for k in range(self.steps)]
            found[output, on] = [*sets, Ranges.everything()]
        return found

    def _cut(self, stream: Stream) -> None:
        """Cut the stream's cells where values begin to go, and note when each cell does."""
        on, by = stream.lane.arc, stream.lane.field
        mapped = {
            output: [self.traces[output][on].preimage(ranges) for ranges in self.gone(cursor)]
            for output, cursor in stream.outputs.items()
            if output in self.by_value
        }
        cuts = {end for sets in mapped.values() for ranges in sets for span in ranges for end in span}
        cuts |= {end for span in self._spared(stream.source, by) or () for end in span}
        if by:
            stream.lane = self._lane(on, by, stream.boxes, cuts)
        middles = stream.lane.middles
        stream.share = stream.lane.share * self._unprotected(stream.source, by, middles)
        for output, sets in mapped.items():
            rank = np.full(len(middles), float(self.steps))
            for k in range(self.steps - 1, 0, -1):
                rank[_inside(sets[k], middles)] = k
            stream.ranks[output] = rank
            traced = self.traces[output][on]
            graph = next(one for one in self.network.outputs if one.name == output).qos.value
            assert graph is not None
            stream.worth[output] = graph.many(np.array([forward(traced, float(middle)) for middle in middles]))
        if stream.places.keys() == {on}:
            stream.short = self._shorten(stream)
        for name, outputs in stream.places.items():
            stream.dead[name] = {
                output: ~_inside(
                    self.traces[output][on].since(self.traces[output][name]).preimage(self.reach[output][name]),
                    middles,
                )
                for output in outputs
                if output in self.by_value
            }

    def _shorten(self, stream: Stream) -> tuple[Vector, dict[str, Vector]]:
        work = np.zeros(len(stream.share))
        leaving: dict[str, Vector] = {}

        def entering(name: str) -> Vector:
            rows = np.zeros(len(work))
            for on in self.network.arcs_into(name):
                rows = rows + (1.0 if on == stream.lane.arc else leaving.get(ends(on)[0], 0.0))
            return rows

        for box in stream.boxes:
            rows = entering(box)
            work += self.catalog.costs[box] * rows
            leaving[box] = rows * stream.lane.passes[box]
        return work, {output: entering(output) for output in stream.outputs}

    def gone(self, cursor: Cursor) -> list[Ranges]:
        return self._gone.get(cursor) or [*[Ranges.nothing()] * self.steps, Ranges.everything()]

    def _unprotected(self, source: Source, by: str, middles: Vector) -> Vector:
        """The share of each cell that may be dropped."""
        spared = self._spared(source, by)
        if spared is not None:
            return np.where(_inside(spared, middles), 0.0, 1.0)
        return np.full(len(middles), 1.0 - source.protected)

    def _spared(self, source: Source, by: str) -> Ranges | None:
        """The values that are protected, where protection is by the field of the stream's cells."""
        found = None if source.protect is None else passing(source.protect)
        return found.ranges[by] if found is not None and found.exact and found.ranges.keys() == {by} else None

    # ── following a stream ───────────────────────────────────────────────────────────────────────

    def plan(self, stream: Stream, reached: Mapping[Cursor, int], *, active: bool = True) -> State:
        """What a stream does when each output has gone as far as its cursor."""
        state = State(0.0, {}, {})

        def through(name: str, rows: Vector) -> Vector:
            if name not in stream.places:
                return rows
            if not active:
                stream.full[name] = rows
                return rows
            goes, coin = self._goes(stream, name, reached)
            # Of the rows that were there at first a share `coin` goes; what went upstream counts towards it.
            passing_on = np.where(goes, np.minimum(rows, stream.full[name] * (1.0 - coin)), rows)
            state.arriving[name] = float(rows @ goes)
            state.dropped[name] = state.arriving[name] - float(passing_on @ goes)
            return passing_on

        return self._walk(stream, state, through)

    def carry_out(self, stream: Stream, reached: Mapping[Cursor, int], keeps: Mapping[str, float]) -> State:
        """What a stream does under the drops as they are made: one keep for each arc."""
        state = State(0.0, {}, {})

        def through(name: str, rows: Vector) -> Vector:
            if name not in keeps or name not in stream.places:
                return rows
            goes, _ = self._goes(stream, name, reached)
            state.work += self.catalog.drop_cost * float(rows.sum())
            return np.where(goes, rows * keeps[name], rows)

        return self._walk(stream, state, through)

    def _goes(self, stream: Stream, name: str, reached: Mapping[Cursor, int]) -> tuple[Mask, float]:
        """The cells that outputs by value can miss at an arc, and the share that the others can miss."""
        goes: Mask = np.ones(len(stream.share), dtype=bool)
        coin = 1.0
        for output in stream.places[name]:
            k = reached[stream.outputs[output]]
            if output in self.by_value:
                goes &= stream.dead[name][output] | (stream.ranks[output] <= k)
            else:
                coin = min(coin, 1.0 if k == self.steps else self.step * k)
        return goes, coin

    def _walk(self, stream: Stream, state: State, through: Callable[[str, Vector], Vector]) -> State:
        network = self.network
        if stream.short is not None:
            work, arrive = stream.short
            kept = through(stream.lane.arc, stream.share)
            state.work += float(kept @ work)
            for output, times in arrive.items():
                state.rows[output] = float(kept @ times)
                if output in stream.worth:
                    state.value[output] = float((kept * times) @ stream.worth[output])
            return state
        leaving: dict[str, Vector] = {}

        def rows_on(name: str) -> Vector | None:
            if name == stream.lane.arc:
                return through(name, stream.share)
            tail = ends(name)[0]
            return through(name, leaving[tail]) if tail in leaving else None

        for box in stream.boxes:
            entering = [rows for on in network.arcs_into(box) if (rows := rows_on(on)) is not None]
            total = entering[0] if len(entering) == 1 else np.sum(entering, axis=0)
            state.work += self.catalog.costs[box] * float(total.sum())
            leaving[box] = total * stream.lane.passes[box]
        for output in stream.outputs:
            rows = rows_on(network.arcs_into(output)[0])
            assert rows is not None
            state.rows[output] = float(rows.sum())
            if output in stream.worth:
                state.value[output] = float(rows @ stream.worth[output])
        return state


def _inside(ranges: Ranges, values: Vector) -> Mask:
    found: Mask = np.zeros(len(values), dtype=bool)
    for low, high in ranges:
        found |= (values >= low) & (values < high)
    return found
