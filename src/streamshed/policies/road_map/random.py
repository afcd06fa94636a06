"""Policy `lsrm-random`: the Load Shedding Road Map with random drops.

LSRM 4.3.1–4.3.3 (Tatbul et al., Load Shedding in a Data Stream Manager, VLDB 2003). A table is built
once; each row sheds more than the one before. The state while building is the flow f that passes each
candidate arc, in rows per second:

    inflow of c      Σ over the candidates u just above of (rows reaching c per row passing u) · f_u
    keep at c        f_c / inflow of c
    slack of c       inflow of c − f_c: what the drop at c removes
    Loss/Gain of u   Σ over outputs o of (slope of U_o) · (percent of o lost per row)  /  work saved per row

Lowering f_u lowers, below it, only the flows without slack. A drop further down that has slack is merely
reduced: its keep rises, its flow stays; one whose slack is used up is redundant. So earlier decisions
still hold at the outputs (LSRM 4.3.3), exactly, and a drop upstream costs no utility where more is
dropped below anyway. Each step lowers the candidate of least Loss/Gain by STEP_SIZE of its rate, or
less where a piece of a loss graph ends or a slack is used up; the ratio is constant within it.

Where no two streams of one split meet again this greedy path is the exact optimum for each amount saved,
up to its steps: the constraints f_c ≤ σ·f_u form a lattice and the gain is linear in the flows, so the
best flows fall monotonically as cycles get dearer.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("pair").source("a", "x INT", rate=100).source("b", "x INT", rate=100)
...     .filter("f", "a", "x > 0", cost=0.01).filter("g", "b", "x > 0", cost=0.01)
...     .output("steep", "f", loss=[(100, 1.0), (0, 0.0)])
...     .output("flat", "g", loss=[(100, 1.0), (50, 0.9), (0, 0.0)]).build()
... )
>>> decision = RandomRoadMap(step=0.1).planner(Catalog.of(network)).decide({"a": 80, "b": 50})
>>> [(drop.at, drop.keep) for drop in decision.drops], decision.row.delivery
([('a->f', 0.8), ('b->g', 0.5)], {'steep': 80.0, 'flat': 50.0})
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.qos import LossGraph
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.contract import drop
from streamshed.policies.parse_planner import weighing_parse
from streamshed.policies.road_map import bent
from streamshed.policies.road_map.segments import Segments
from streamshed.policies.road_map.table import RoadMap, TablePlanner
from streamshed.records import Drop

STEP_SIZE = 0.02
_NOTHING = 1e-9
"""Less than this share of an arc's full rate counts as no rows."""


@dataclass(frozen=True)
class RandomRoadMap:
    """`lsrm-random`. `step` is the share of an arc's rows that one row of the table drops more."""

    step: float = STEP_SIZE
    name: str = "lsrm-random"

    def __post_init__(self) -> None:
        if not 0 < self.step <= 1:
            raise InvalidArgument("a step is a share above 0, at most 1", got=self.step)

    @weighing_parse
    def planner(self, catalog: Catalog) -> TablePlanner:
        return TablePlanner(self.name, catalog, build(catalog, self.step))


def build(
    catalog: Catalog,
    step: float = STEP_SIZE,
    *,
    extra: Collection[str] = (),
    movable: Callable[[str], bool] = lambda arc: True,
) -> RoadMap:
    """The road map for the proportions of the catalog's rates.

    `extra` arcs are places for drops too; only `movable` ones get any.
    """
    model = FlowModel(catalog)
    segments = Segments.of(model, extra)
    graphs = loss_graphs(catalog)
    if not segments.linear:
        return bent.build(catalog, graphs, {one.arc for one in segments.all if movable(one.arc)}, step)
    return _Builder(catalog, segments, graphs, step, movable).run()


@dataclass
class _Move:
    """Lowering one candidate: what goes with it, per row per second that it falls."""

    falls: dict[int, float]
    """Candidates whose flow falls, and by how much."""
    tightens: dict[int, float]
    """Candidates that keep their flow and lose slack, and how much."""
    lost: dict[str, float]
    """Rows lost at each output."""
    gain: float
    """Work saved."""
    ratio: float
    """Loss/Gain."""


class _Builder:
    def __init__(
        self,
        catalog: Catalog,
        candidates: Segments,
        graphs: Mapping[str, LossGraph],
        step: float,
        movable: Callable[[str], bool],
    ) -> None:
        self.catalog = catalog
        self.movable = movable
        self.segments = candidates
        segments = candidates.all
        self.graphs = graphs
        self.table = RoadMap(catalog, self.graphs)
        least = min((segment.work for segment in segments if segment.work > 0), default=0.0)
        # LSRM 4.3.3: a step must save more than the drop itself costs.
        self.step = min(1.0, max(step, 1.01 * catalog.drop_cost / least)) if least else step

        self.full = [segment.full for segment in segments]
        self.flow = list(self.full)
        self.inflow = list(self.full)
        self.tied = [True] * len(segments)
        whole = {o.name: catalog.arc_rates[f"{o.input}->{o.name}"] for o in catalog.network.outputs}
        self.percent_per_row = {name: 100.0 / rows if rows > 0 else 0.0 for name, rows in whole.items()}
        self.percent = dict.fromkeys(whole, 100.0)
        self.piece = {name: self.graphs[name].piece_below(100.0) for name in whole}
        """The piece of its loss graph that each output's cursor is on."""

        # Work per row that arrives at a candidate, under the drops so far; and the same without any.
        self.work = [0.0] * len(segments)
        for segment in reversed(segments):
            self.work[segment.index] = self._work(segment.index)
        self.undropped = list(self.work)
        self.arcs_of: dict[str, list[int]] = {}
        for segment in segments:
            if segment.source is not None:
                self.arcs_of.setdefault(segment.source, []).append(segment.index)
        self.share = {
            segment.source: segment.full / rate if (rate := catalog.rates[segment.source]) > 0 else 1.0
            for segment in segments
            if segment.source is not None
        }

    # ── the greedy loop ──────────────────────────────────────────────────────────────────────────

    def run(self) -> RoadMap:
        heap: list[tuple[float, float, int, int]] = []
        stamp = [0] * len(self.flow)

        def push(candidate: int) -> None:
            stamp[candidate] += 1
            if not self.movable(self.segments.all[candidate].arc):
                return
            if self.flow[candidate] > _NOTHING * self.full[candidate]:
                move = self.move(candidate)
                if move.gain > 0:
                    # Of what costs the same, nothing for instance, that which saves most.
                    saving = -move.gain * self.flow[candidate]
                    heapq.heappush(heap, (move.ratio, saving, candidate, stamp[candidate]))

        for segment in self.segments.all:
            push(segment.index)
        while heap:
            ratio, _, candidate, stamped = heapq.heappop(heap)
            if stamped != stamp[candidate]:
                continue
            move = self.move(candidate)
            if move.ratio > ratio and heap and move.ratio > heap[0][0]:
                push(candidate)  # slopes only rise, so a stale ratio is found here at the latest
                continue
            changed = self.lower(candidate, move)
            for other in changed - {candidate}:
                push(other)
            push(candidate)
        return self.table

    def move(self, candidate: int) -> _Move:
        segments = self.segments.all
        falls: dict[int, float] = {}
        tightens: dict[int, float] = {}
        lost: dict[str, float] = {}
        gain = 0.0
        amounts = {candidate: 1.0}
        queue = [candidate]
        while queue:  # candidates are numbered from upstream, so that an amount is whole when its turn comes
            index = heapq.heappop(queue)
            amount = falls[index] = amounts[index]
            segment = segments[index]
            gain += amount * segment.work
            for output, times in segment.out:
                lost[output] = lost.get(output, 0.0) + amount * times
            for child, times in segment.to:
                if not self.tied[child]:
                    tightens[child] = tightens.get(child, 0.0) + amount * times
                elif child in amounts:
                    amounts[child] += amount * times
                else:
                    amounts[child] = amount * times
                    heapq.heappush(queue, child)
        loss = sum(rows * self.percent_per_row[name] * self.piece[name].slope for name, rows in lost.items())
        return _Move(falls, tightens, lost, gain, loss / gain if gain > 0 else float("inf"))

    def lower(self, candidate: int, move: _Move) -> set[int]:
        """Lower a candidate step by step until a ratio changes; those whose ratio must be computed anew."""
        while True:
            left = self.flow[candidate]
            wanted = self.step * self.full[candidate]
            rows = wanted if wanted < left - _NOTHING * self.full[candidate] else left
            for name, lost in move.lost.items():
                per_row = lost * self.percent_per_row[name]
                end = self.piece[name].low
                if per_row > 0 and self.percent[name] > end:
                    rows = min(rows, (self.percent[name] - end) / per_row)
            for child, times in move.tightens.items():
                rows = min(rows, (self.inflow[child] - self.flow[child]) / times)
            changed, ended = self._apply(candidate, move, rows)
            if changed or ended:
                return changed

    def _apply(self, candidate: int, move: _Move, rows: float) -> tuple[set[int], bool]:
        """One row of the table: what ties or unties above, and whether a graph's piece or the flow ended."""
        for index, amount in move.falls.items():
            self.flow[index] = max(0.0, self.flow[index] - amount * rows)
            if index != candidate:
                self.inflow[index] = max(0.0, self.inflow[index] - amount * rows)
        changed: set[int] = set()
        if self.tied[candidate] and self.segments.parents[candidate]:
            changed |= self._above(candidate)
        self.tied[candidate] = False
        for child, times in move.tightens.items():
            self.inflow[child] = max(0.0, self.inflow[child] - times * rows)
            if self.inflow[child] - self.flow[child] <= _NOTHING * self.full[child]:
                self.tied[child] = True
                changed |= self._above(child)
        ended = self.flow[candidate] <= _NOTHING * self.full[candidate]
        if ended:
            self.flow[candidate] = 0.0
        delivery: dict[str, float] = {}
        for name, lost in move.lost.items():
            percent = self.percent[name] - lost * rows * self.percent_per_row[name]
            if percent - self.piece[name].low <= 1e-9:
                percent, ended = self.piece[name].low, True
                self.piece[name] = self.graphs[name].piece_below(percent)
            self.percent[name] = delivery[name] = percent
        places = [candidate, *move.tightens]
        drops = {self.segments.all[index].arc: self._drop(index) for index in places}
        self.table.append(drops, delivery, self._savings(places))
        return changed, ended

    def _above(self, candidate: int) -> set[int]:
        """The candidates whose move reaches this one, were it tied."""
        found: set[int] = set()
        stack = [candidate]
        while stack:
            for parent, _ in self.segments.parents[stack.pop()]:
                if parent not in found:
                    found.add(parent)
                    if self.tied[parent]:
                        stack.append(parent)
        return found

    # ── what a row of the table says ─────────────────────────────────────────────────────────────

    def _keep(self, index: int) -> float:
        if self.tied[index] or self.inflow[index] <= _NOTHING * self.full[index]:
            return 1.0
        return min(1.0, self.flow[index] / self.inflow[index])

    def _drop(self, index: int) -> Drop | None:
        segment = self.segments.all[index]
        keep = self._keep(index)
        return None if keep == 1.0 else drop(segment.arc, keep, segment.protect)

    def _work(self, index: int) -> float:
        segment = self.segments.all[index]
        keep = self._keep(index)
        passing = segment.work + sum(times * self.work[child] for child, times in segment.to)
        return keep * passing + (self.catalog.drop_cost if keep < 1.0 else 0.0)

    def _savings(self, places: list[int]) -> dict[str, float]:
        """The savings coefficients that new keeps at some places change, upstream of them."""
        queue = [-index for index in places]
        heapq.heapify(queue)
        queued = set(places)
        touched: set[str] = set()
        while queue:  # from downstream up, so that what a candidate needs is there
            index = -heapq.heappop(queue)
            self.work[index] = self._work(index)
            source = self.segments.all[index].source
            if source is not None:
                touched.add(source)
            for parent, _ in self.segments.parents[index]:
                if parent not in queued:
                    queued.add(parent)
                    heapq.heappush(queue, -parent)
        return {
            source: self.share[source]
            * sum(self.undropped[index] - self.work[index] for index in self.arcs_of[source])
            for source in touched
        }
