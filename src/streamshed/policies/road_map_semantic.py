"""Policy `lsrm-semantic`: the Load Shedding Road Map with semantic drops.

LSRM 4.3.4 (Tatbul et al., Load Shedding in a Data Stream Manager, VLDB 2003). As in `lsrm-random` a table is
built once, but the drops are predicates. An output's value graph and the spread of its values fix the order
in which its values go, least useful first: D(k) is the set gone after k steps. At a candidate arc

    dropped at c = ∩ over the outputs o below c of ( D_o(k_o), as values at c  ∪  values that cannot reach o )

so a drop upstream takes exactly what every output below can do without, and earlier decisions hold. The
second part costs no utility: rows that a later filter would remove anyway. Dropping those alone makes the
first rows of the table.

Then moves follow, each the one of least Loss/Gain. A source arc that leads to one output only moves by
itself; elsewhere the outputs below one candidate arc move together, those of them that have dropped least.
The gain is exact, found by following cells of values through the network (`network.values`); the loss is
the utility of the values that go, u·f/Σw of LSRM's Table 1.

An output without a value graph, or whose value cannot be followed to its sources in the field by which its
neighbours drop, sheds at random. Where both kinds are below an arc, a drop there takes the values that the
one kind can miss with the probability that the other kind allows. With no output that drops by value the
table is that of `lsrm-random`.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("n").source("s", "v INT", rate=150, values={"v": (0, 100)})
...     .filter("f", "s", "v >= 20", cost=0.004, selectivity=0.8).map("m", "f", {"v": "v"}, cost=0.01)
...     .output("o", "m", value=("v", [[0, 60, 0.1], [60, 100, 1.0]])).build()
... )
>>> decision = SemanticRoadMap(step=0.1).planner(Catalog.of(network)).decide()
>>> decision.drops[0].where, round(decision.row.utility["o"], 3)
('v < 60', 0.909)
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.expression import passing
from streamshed.network.graph import Source, arc, ends
from streamshed.network.qos import Histogram
from streamshed.network.ranges import Ranges
from streamshed.network.trace import reaching
from streamshed.network.values import (
    Lane,
    Vector,
    below,
    follow,
    forward,
    lane,
    loss_graphs,
    source_histogram,
    traces,
)
from streamshed.policies.contract import drop, protection
from streamshed.policies.road_map import STEP_SIZE, build
from streamshed.policies.table import RoadMap, TablePlanner
from streamshed.records import Drop

Mask = npt.NDArray[np.bool_]
Cursor = tuple[str, str]
"""An output and, where it moves by itself, the source arc; else ""."""


@dataclass(frozen=True)
class SemanticRoadMap:
    """`lsrm-semantic`. `step` is the share of an output's rows that one row of the table drops more."""

    step: float = STEP_SIZE
    chunk: float | None = None
    """Width of the chunks in which intervals of non-constant utility are dropped; None: a tenth each."""
    name: str = "lsrm-semantic"

    def __post_init__(self) -> None:
        if not 0 < self.step <= 1:
            raise InvalidArgument("a step is a share above 0, at most 1", got=self.step)

    def planner(self, catalog: Catalog) -> TablePlanner:
        builder = _Builder(catalog, self.step, self.chunk)
        table = builder.run() if builder.by_value else build(catalog, self.step)
        return TablePlanner(self.name, catalog, table)


@dataclass
class _Stream:
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
class _State:
    """What a stream does under drops, per row that arrives at its source arc."""

    work: float
    rows: dict[str, float]
    """Rows, of those that may be dropped, that reach each output."""
    value: dict[str, float]
    """Their utility, for outputs that drop by value."""
    arriving: dict[str, float] = field(default_factory=dict)
    dropped: dict[str, float] = field(default_factory=dict)
    """By candidate arc: rows, of the values that may go there, that reach it; and those that it drops."""


class _Builder:
    def __init__(self, catalog: Catalog, step: float, chunk: float | None) -> None:
        self.catalog, self.network, self.step, self.chunk = catalog, catalog.network, step, chunk
        self.steps = math.ceil(1 / step - 1e-9)
        network = self.network
        self.protectable = protection(network)
        self.traces = traces(network)
        self.graphs = loss_graphs(catalog)
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
        self.streams = [self._stream(source, name) for name, source in self.source_arcs.items()]
        self.streams_of: dict[str, list[int]] = {output.name: [] for output in network.outputs}
        self.streams_at: dict[str, list[int]] = {name: [] for name in self.below}
        self.streams_from: dict[str, list[int]] = {source.name: [] for source in network.sources}
        for index, stream in enumerate(self.streams):
            self.streams_from[stream.source.name].append(index)
            for name in stream.outputs:
                self.streams_of[name].append(index)
            for name in stream.places:
                self.streams_at[name].append(index)
        self.gone = self._orders()
        for stream in self.streams:
            self._cut(stream)
        self.reached = dict.fromkeys((c for stream in self.streams for c in stream.outputs.values()), 0)
        """Steps taken by each cursor."""

        full = {output.name: catalog.arc_rates[arc(output.input, output.name)] for output in network.outputs}
        self.percent_per_row = {name: 100.0 / rows if rows > 0 else 0.0 for name, rows in full.items()}
        self.before = [self._plan(stream, self.reached, active=False) for stream in self.streams]
        self.states = list(self.before)
        worth = dict.fromkeys(self.by_value, 0.0)
        for stream, state in zip(self.streams, self.before, strict=True):
            for name, value in state.value.items():
                worth[name] += catalog.rates[stream.source.name] * value
        self.utility_per_value = {name: 1 / value if value > 0 else 0.0 for name, value in worth.items()}
        self.drops: dict[str, Drop] = {}
        self.table = RoadMap(catalog, self.graphs)

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

    def _stream(self, source: Source, on: str) -> _Stream:
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
        return _Stream(
            made, source, made.share, boxes, {o: (o, on if alone else "") for o in outputs}, {}, places
        )

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
        for stream in self.streams:
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

    def _cut(self, stream: _Stream) -> None:
        """Cut the stream's cells where values begin to go, and note when each cell does."""
        on, by = stream.lane.arc, stream.lane.field
        mapped = {
            output: [self.traces[output][on].preimage(ranges) for ranges in self._gone(cursor)]
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
            stream.worth[output] = graph.many(
                np.array([forward(traced, float(middle)) for middle in middles])
            )
        if stream.places.keys() == {on}:
            stream.short = self._shorten(stream)
        for name, outputs in stream.places.items():
            stream.dead[name] = {
                output: ~_inside(
                    self.traces[output][on]
                    .since(self.traces[output][name])
                    .preimage(self.reach[output][name]),
                    middles,
                )
                for output in outputs
                if output in self.by_value
            }

    def _shorten(self, stream: _Stream) -> tuple[Vector, dict[str, Vector]]:
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

    def _gone(self, cursor: Cursor) -> list[Ranges]:
        return self.gone.get(cursor) or [*[Ranges.nothing()] * self.steps, Ranges.everything()]

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

    def _plan(self, stream: _Stream, reached: Mapping[Cursor, int], *, active: bool = True) -> _State:
        """What a stream does when each output has gone as far as its cursor."""
        state = _State(0.0, {}, {})

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

    def _carry_out(self, stream: _Stream, keeps: Mapping[str, float]) -> _State:
        """What a stream does under the drops as they are made: one keep for each arc."""
        state = _State(0.0, {}, {})

        def through(name: str, rows: Vector) -> Vector:
            if name not in keeps or name not in stream.places:
                return rows
            goes, _ = self._goes(stream, name, self.reached)
            state.work += self.catalog.drop_cost * float(rows.sum())
            return np.where(goes, rows * keeps[name], rows)

        return self._walk(stream, state, through)

    def _goes(self, stream: _Stream, name: str, reached: Mapping[Cursor, int]) -> tuple[Mask, float]:
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

    def _walk(self, stream: _Stream, state: _State, through: Callable[[str, Vector], Vector]) -> _State:
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

    # ── the greedy loop ──────────────────────────────────────────────────────────────────────────

    def run(self) -> RoadMap:
        self._drop_the_dead()
        together = {
            frozenset(self.streams[index].outputs[output] for output in outputs)
            for name, outputs in self.below.items()
            for index in self.streams_at[name]
        }
        groups = sorted(
            together | {frozenset((cursor,)) for cursor in self.reached},
            key=lambda group: (len(group), sorted(group)),
        )
        streams_of: dict[Cursor, list[int]] = {cursor: [] for cursor in self.reached}
        for index, stream in enumerate(self.streams):
            for cursor in stream.outputs.values():
                streams_of[cursor].append(index)
        near: dict[Cursor, set[int]] = {cursor: set() for cursor in self.reached}
        for index, group in enumerate(groups):
            for cursor in group:
                near[cursor].add(index)
        # When something last moved on each stream, and when each group's ratio was computed.
        clock = 0
        moved = [0] * len(self.streams)
        computed = [0] * len(groups)
        heap: list[tuple[float, int, int]] = []
        stamp = [0] * len(groups)
        moves: dict[int, dict[Cursor, int]] = {}

        def push(index: int) -> None:
            stamp[index] += 1
            least = min(self.reached[cursor] for cursor in groups[index])
            if least < self.steps:
                moves[index] = {
                    cursor: least + 1 for cursor in groups[index] if self.reached[cursor] == least
                }
                touched = {s for cursor in moves[index] for s in streams_of[cursor]}
                heapq.heappush(heap, (self._ratio(moves[index], touched), index, stamp[index]))
                computed[index] = clock

        for index in range(len(groups)):
            push(index)
        while heap:
            ratio, index, stamped = heapq.heappop(heap)
            if stamped != stamp[index]:
                continue
            touched = {s for cursor in moves[index] for s in streams_of[cursor]}
            if computed[index] < max(moved[s] for s in touched) or not self._all_by_value(moves[index]):
                now = self._ratio(moves[index], touched)
                if now > ratio * (1 + 1e-9) and heap and now > heap[0][0]:
                    push(index)  # other outputs, or other streams of the same, have moved on meanwhile
                    continue
            self.reached.update(moves[index])
            self._record(touched)
            clock += 1
            for one in touched:
                moved[one] = clock
            for other in sorted({group for cursor in moves[index] for group in near[cursor]}):
                push(other)
        return self.table

    def _all_by_value(self, moves: Mapping[Cursor, int]) -> bool:
        return all(output in self.by_value for output, _ in moves)

    def _ratio(self, moves: Mapping[Cursor, int], touched: set[int]) -> float:
        """Loss/Gain of taking these cursors to these steps."""
        reached = {**self.reached, **moves}
        gain = 0.0
        lost_rows: dict[str, float] = {}
        loss = 0.0
        for index in sorted(touched):
            stream, now = self.streams[index], self.states[index]
            rate = self.catalog.rates[stream.source.name]
            then = self._plan(stream, reached)
            gain += rate * (now.work - then.work)
            for output in stream.outputs:
                if output in self.by_value:
                    loss += rate * (now.value[output] - then.value[output]) * self.utility_per_value[output]
                else:
                    lost_rows[output] = lost_rows.get(output, 0.0) + rate * (
                        now.rows[output] - then.rows[output]
                    )
        for output, rows in lost_rows.items():
            percent = self._percent(output)
            graph = self.graphs[output]
            loss += graph(percent) - graph(max(0.0, percent - rows * self.percent_per_row[output]))
        return max(0.0, loss) / gain if gain > 0 else math.inf

    def _percent(self, output: str) -> float:
        lost = sum(
            self.catalog.rates[self.streams[index].source.name]
            * (self.before[index].rows[output] - self.states[index].rows[output])
            for index in self.streams_of[output]
        )
        return min(100.0, max(0.0, 100.0 - lost * self.percent_per_row[output]))

    def _drop_the_dead(self) -> None:
        """The first rows: what no output would miss, most load first."""
        free = []
        for index, stream in enumerate(self.streams):
            gain = self.before[index].work - self._plan(stream, self.reached).work
            if gain > 0:
                free.append((-gain * self.catalog.rates[stream.source.name], index))
        for _, index in sorted(free):
            self._record({index})

    def _record(self, touched: set[int]) -> None:
        """A row of the table: the drops that the cursors ask for, and what exactly they do."""
        planned = {index: self._plan(self.streams[index], self.reached) for index in touched}
        for index, state in planned.items():
            self.states[index] = state
        places = {name for index in touched for name in self.streams[index].places}
        changes: dict[str, Drop | None] = {}
        for name in places:
            made = self._drop(name)
            if made != self.drops.get(name):
                changes[name] = made
                if made is None:
                    del self.drops[name]
                else:
                    self.drops[name] = made
        affected = {index for name in changes for index in self.streams_at[name]} | touched
        keeps = {name: made.keep for name, made in self.drops.items()}
        for index in affected:
            arriving, dropped = self.states[index].arriving, self.states[index].dropped
            self.states[index] = self._carry_out(self.streams[index], keeps)
            self.states[index].arriving, self.states[index].dropped = arriving, dropped
        savings = {
            source: math.fsum(
                self.before[index].work - self.states[index].work for index in self.streams_from[source]
            )
            for source in {self.streams[index].source.name for index in affected}
        }
        outputs = {name for index in affected for name in self.streams[index].outputs}
        self.table.append(changes, {name: self._percent(name) for name in sorted(outputs)}, savings)

    def _drop(self, name: str) -> Drop | None:
        arriving = dropped = 0.0
        for index in self.streams_at[name]:
            rate = self.catalog.rates[self.streams[index].source.name]
            arriving += rate * self.states[index].arriving.get(name, 0.0)
            dropped += rate * self.states[index].dropped.get(name, 0.0)
        if dropped <= 1e-12 * arriving or dropped <= 0:
            return None
        keep = 1.0 - dropped / arriving
        where = None
        valued = [output for output in self.below[name] if output in self.by_value]
        if valued:
            doomed = Ranges.everything()
            cursors = self.streams[self.streams_at[name][0]].outputs
            for output in valued:
                gone = self._gone(cursors[output])[self.reached[cursors[output]]]
                doomed &= self.traces[output][name].preimage(gone) | ~self.reach[output][name]
            if doomed != Ranges.everything():
                by = self.traces[valued[0]][name].field
                where = doomed.render(by, integers=self.network.column(ends(name)[0], by).whole)
            if len(valued) == len(self.below[name]):
                keep = 0.0
        return drop(name, keep, self.protectable[name], where)


def _inside(ranges: Ranges, values: Vector) -> Mask:
    found: Mask = np.zeros(len(values), dtype=bool)
    for low, high in ranges:
        found |= (values >= low) & (values < high)
    return found
