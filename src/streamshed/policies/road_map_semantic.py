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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.graph import arc, ends
from streamshed.network.ranges import Ranges
from streamshed.network.values import loss_graphs
from streamshed.policies.contract import drop
from streamshed.policies.road_map import STEP_SIZE, build
from streamshed.policies.streams import Cursor, Streams
from streamshed.policies.table import RoadMap, TablePlanner
from streamshed.records import Drop


@dataclass(frozen=True)
class SemanticRoadMap:
    """`lsrm-semantic`. `step` is the share of an output's rows that one row of the table drops more."""

    step: float = STEP_SIZE
    chunk: float | None = None
    """Width of the chunks in which intervals of non-constant utility are dropped; None: a tenth each."""
    name: str = "lsrm-semantic"
    by_value: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.step <= 1:
            raise InvalidArgument("a step is a share above 0, at most 1", got=self.step)

    def planner(self, catalog: Catalog) -> TablePlanner:
        streams = Streams(catalog, self.step, self.chunk)
        table = _Builder(catalog, streams).run() if streams.by_value else build(catalog, self.step)
        return TablePlanner(self.name, catalog, table)


class _Builder:
    def __init__(self, catalog: Catalog, streams: Streams) -> None:
        self.catalog, self.network, self.streams = catalog, catalog.network, streams
        self.graphs = loss_graphs(catalog)
        self.reached = dict.fromkeys((c for stream in streams.all for c in stream.outputs.values()), 0)
        """Steps taken by each cursor."""
        full = {output.name: catalog.arc_rates[arc(output.input, output.name)] for output in self.network.outputs}
        self.percent_per_row = {name: 100.0 / rows if rows > 0 else 0.0 for name, rows in full.items()}
        self.before = [self.streams.plan(stream, self.reached, active=False) for stream in self.streams.all]
        self.states = list(self.before)
        worth = dict.fromkeys(self.streams.by_value, 0.0)
        for stream, state in zip(self.streams.all, self.before, strict=True):
            for name, value in state.value.items():
                worth[name] += catalog.rates[stream.source.name] * value
        self.utility_per_value = {name: 1 / value if value > 0 else 0.0 for name, value in worth.items()}
        self.drops: dict[str, Drop] = {}
        self.table = RoadMap(catalog, self.graphs)

    # ── the greedy loop ──────────────────────────────────────────────────────────────────────────

    def run(self) -> RoadMap:
        self._drop_the_dead()
        together = {
            frozenset(self.streams.all[index].outputs[output] for output in outputs)
            for name, outputs in self.streams.below.items()
            for index in self.streams.at[name]
        }
        groups = sorted(
            together | {frozenset((cursor,)) for cursor in self.reached},
            key=lambda group: (len(group), sorted(group)),
        )
        streams_of: dict[Cursor, list[int]] = {cursor: [] for cursor in self.reached}
        for index, stream in enumerate(self.streams.all):
            for cursor in stream.outputs.values():
                streams_of[cursor].append(index)
        near: dict[Cursor, set[int]] = {cursor: set() for cursor in self.reached}
        for index, group in enumerate(groups):
            for cursor in group:
                near[cursor].add(index)
        # When something last moved on each stream, and when each group's ratio was computed.
        clock = 0
        moved = [0] * len(self.streams.all)
        computed = [0] * len(groups)
        heap: list[tuple[float, int, int]] = []
        stamp = [0] * len(groups)
        moves: dict[int, dict[Cursor, int]] = {}

        def push(index: int) -> None:
            stamp[index] += 1
            least = min(self.reached[cursor] for cursor in groups[index])
            if least < self.streams.steps:
                moves[index] = {cursor: least + 1 for cursor in groups[index] if self.reached[cursor] == least}
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
        return all(output in self.streams.by_value for output, _ in moves)

    def _ratio(self, moves: Mapping[Cursor, int], touched: set[int]) -> float:
        """Loss/Gain of taking these cursors to these steps."""
        reached = {**self.reached, **moves}
        gain = 0.0
        lost_rows: dict[str, float] = {}
        loss = 0.0
        for index in sorted(touched):
            stream, now = self.streams.all[index], self.states[index]
            rate = self.catalog.rates[stream.source.name]
            then = self.streams.plan(stream, reached)
            gain += rate * (now.work - then.work)
            for output in stream.outputs:
                if output in self.streams.by_value:
                    loss += rate * (now.value[output] - then.value[output]) * self.utility_per_value[output]
                else:
                    lost_rows[output] = lost_rows.get(output, 0.0) + rate * (now.rows[output] - then.rows[output])
        for output, rows in lost_rows.items():
            percent = self._percent(output)
            graph = self.graphs[output]
            loss += graph(percent) - graph(max(0.0, percent - rows * self.percent_per_row[output]))
        return max(0.0, loss) / gain if gain > 0 else math.inf

    def _percent(self, output: str) -> float:
        lost = sum(
            self.catalog.rates[self.streams.all[index].source.name]
            * (self.before[index].rows[output] - self.states[index].rows[output])
            for index in self.streams.of_output[output]
        )
        return min(100.0, max(0.0, 100.0 - lost * self.percent_per_row[output]))

    def _drop_the_dead(self) -> None:
        """The first rows: what no output would miss, most load first."""
        free = []
        for index, stream in enumerate(self.streams.all):
            gain = self.before[index].work - self.streams.plan(stream, self.reached).work
            if gain > 0:
                free.append((-gain * self.catalog.rates[stream.source.name], index))
        for _, index in sorted(free):
            self._record({index})

    def _record(self, touched: set[int]) -> None:
        """A row of the table: the drops that the cursors ask for, and what exactly they do."""
        planned = {index: self.streams.plan(self.streams.all[index], self.reached) for index in touched}
        for index, state in planned.items():
            self.states[index] = state
        places = {name for index in touched for name in self.streams.all[index].places}
        changes: dict[str, Drop | None] = {}
        for name in places:
            made = self._drop(name)
            if made != self.drops.get(name):
                changes[name] = made
                if made is None:
                    del self.drops[name]
                else:
                    self.drops[name] = made
        affected = {index for name in changes for index in self.streams.at[name]} | touched
        keeps = {name: made.keep for name, made in self.drops.items()}
        for index in affected:
            arriving, dropped = self.states[index].arriving, self.states[index].dropped
            self.states[index] = self.streams.carry_out(self.streams.all[index], self.reached, keeps)
            self.states[index].arriving, self.states[index].dropped = arriving, dropped
        savings = {
            source: math.fsum(
                self.before[index].work - self.states[index].work for index in self.streams.from_source[source]
            )
            for source in {self.streams.all[index].source.name for index in affected}
        }
        outputs = {name for index in affected for name in self.streams.all[index].outputs}
        self.table.append(changes, {name: self._percent(name) for name in sorted(outputs)}, savings)

    def _drop(self, name: str) -> Drop | None:
        arriving = dropped = 0.0
        for index in self.streams.at[name]:
            rate = self.catalog.rates[self.streams.all[index].source.name]
            arriving += rate * self.states[index].arriving.get(name, 0.0)
            dropped += rate * self.states[index].dropped.get(name, 0.0)
        if dropped <= 1e-12 * arriving or dropped <= 0:
            return None
        keep = 1.0 - dropped / arriving
        where = None
        valued = [output for output in self.streams.below[name] if output in self.streams.by_value]
        if valued:
            doomed = Ranges.everything()
            cursors = self.streams.all[self.streams.at[name][0]].outputs
            for output in valued:
                gone = self.streams.gone(cursors[output])[self.reached[cursors[output]]]
                doomed &= self.streams.traces[output][name].preimage(gone) | ~self.streams.reach[output][name]
            if doomed != Ranges.everything():
                by = self.streams.traces[valued[0]][name].field
                where = doomed.render(by, integers=self.network.column(ends(name)[0], by).whole)
            if len(valued) == len(self.streams.below[name]):
                keep = 0.0
        return drop(name, keep, self.streams.protectable[name], where)
