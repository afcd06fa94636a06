"""`lsrm-random` where the network is not linear: below joins, and where streams that differ meet and split again.

The same greedy path as in `random`, with the flows f as its state and one step at a time: what a row less at a
candidate costs and saves depends on what is dropped elsewhere, so Loss/Gain is computed anew for each step, by the
model's derivatives. Of a join with the shares φ of its sides left, a row less on one side costs as many pairs as
the other side still has partners for: as one side is thinned, dropping on the other gets cheaper, and both are
thinned in turn.

Every row of the table says what the model says of its drops, and so it is exact where the model is.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streamshed.network.catalog import Catalog
from streamshed.network.qos import LossGraph
from streamshed.network.value_flow.flow_model import FlowModel, FlowState
from streamshed.policies.contract import drop, protection
from streamshed.policies.road_map.table import RoadMap
from streamshed.records import Drop

NOTHING = 1e-9
"""Less than this share of an arc's full rate counts as no rows."""


@dataclass(frozen=True)
class TableStep:
    """A row that is still to be put into a table: what changes, and at which Loss/Gain."""

    ratio: float
    drops: Mapping[str, Drop | None]
    delivery: Mapping[str, float]
    savings: Mapping[str, float]
    utility: Mapping[str, float] = field(default_factory=dict)


def merged(table: RoadMap, parts: Iterable[Iterator[TableStep]]) -> RoadMap:
    """Fill a table with the steps of parts of a network that have nothing to do with each other, by Loss/Gain."""
    heap: list[tuple[float, int, TableStep, Iterator[TableStep]]] = []
    for number, steps in enumerate(parts):
        first = next(steps, None)
        if first is not None:
            heap.append((first.ratio, number, first, steps))
    heapq.heapify(heap)
    while heap:
        _, number, step, steps = heapq.heappop(heap)
        table.append(step.drops, step.delivery, step.savings, step.utility)
        following = next(steps, None)
        if following is not None:
            heapq.heappush(heap, (following.ratio, number, following, steps))
    return table


def build(catalog: Catalog, graphs: Mapping[str, LossGraph], arcs: Collection[str], step: float) -> RoadMap:
    """The road map of random drops at some arcs."""
    return merged(
        RoadMap(catalog, graphs),
        (_Builder(FlowModel(part), graphs, arcs, step).steps() for part in catalog.parts()),
    )


class _Builder:
    def __init__(
        self, model: FlowModel, graphs: Mapping[str, LossGraph], arcs: Collection[str], step: float
    ) -> None:
        self.model, self.graphs, self.step = model, graphs, step
        self.arcs = [on for on in model.network.arcs if on in arcs]
        self.full = {on: model.free_rows(model.whole.reaching, on) for on in self.arcs}
        self.limits: dict[str, float] = {}
        """Rows per second that pass the arcs that drop, at most."""
        self.protect = protection(model.network)
        self.per_row = {
            output.name: 100.0 / model.full[on] if model.full[on] > 0 else 0.0
            for output in model.network.outputs
            for on in model.network.arcs_into(output.name)
        }
        self.percent = dict.fromkeys(self.per_row, 100.0)
        self.drops: dict[str, Drop] = {}

    def steps(self) -> Iterator[TableStep]:
        state = self.model.whole
        while (chosen := self._cheapest(state)) is not None:
            ratio, on = chosen
            state = self._lowered(on, state)
            yield self._step(ratio, state)

    def _cheapest(self, state: FlowState) -> tuple[float, str] | None:
        """The candidate of least Loss/Gain; of equals, the one that saves most."""
        worth = {
            name: self.graphs[name].piece_below(percent).slope * self.per_row[name]
            for name, percent in self.percent.items()
        }
        held = {on for on in self.limits if self._keep(state, on) < 1.0}
        loss, gain = self.model.marginals(state, worth, held)
        best: tuple[float, float, str] | None = None
        for on in self.arcs:
            rows = state.passing[on] * self.model.island(on).free
            if rows.sum() <= NOTHING * self.full[on]:
                continue
            saved = float(rows @ gain[on])
            if saved > 0:
                ratio = max(0.0, float(rows @ loss[on])) / saved
                tried = (float(f"{ratio:.9g}"), -saved, on)  # equal but for rounding is equal
                best = tried if best is None or tried[:2] < best[:2] else best
        return None if best is None else (best[0], best[2])

    def _lowered(self, on: str, state: FlowState) -> FlowState:
        """One step less at a candidate, or as far as the next bend of a loss graph."""
        before = self.model.free_rows(state.passing, on)
        rows = min(before, self.step * self.full[on])
        if before - rows <= NOTHING * self.full[on]:
            rows = before
        limits = dict(self.limits)
        for _ in range(4):
            limits[on] = before - rows
            made = self.model.state({}, limits)
            part = self._part_to_bend(self.model.delivery(made))
            if part > 1 - 1e-6:
                break
            rows *= part
        self.limits = limits
        return made

    def _part_to_bend(self, delivery: Mapping[str, float]) -> float:
        """How much of a step can be taken before an output passes the end of its piece."""
        part = 1.0
        for name, percent in self.percent.items():
            end = self.graphs[name].piece_below(percent).low
            if delivery[name] < end - 1e-6 and percent > end + 1e-6:
                part = min(part, (percent - end) / (percent - delivery[name]))
        return part

    def _keep(self, state: FlowState, on: str) -> float:
        """Share of the rows not protected that an arc lets pass."""
        reaching = self.model.free_rows(state.reaching, on)
        if reaching <= NOTHING * self.full[on]:
            return 1.0
        keep = self.model.free_rows(state.passing, on) / reaching
        return 1.0 if keep > 1 - NOTHING else keep

    def _step(self, ratio: float, state: FlowState) -> TableStep:
        changes: dict[str, Drop | None] = {}
        for on in self.limits:
            keep = self._keep(state, on)
            made = None if keep == 1.0 else drop(on, keep, self.protect[on])
            if made != self.drops.get(on):
                changes[on] = made
                self.drops.pop(on, None)
                if made is not None:
                    self.drops[on] = made
        delivery = self.model.delivery(state)
        changed = {name: percent for name, percent in delivery.items() if percent != self.percent[name]}
        self.percent = {name: at_bend(self.graphs[name], percent) for name, percent in delivery.items()}
        return TableStep(ratio, changes, changed, self.model.savings(state))


def at_bend(graph: LossGraph, percent: float) -> float:
    """A percentage; the bend of the graph itself if it is as near as steps come to it."""
    return next((x for x in graph.xs if abs(x - percent) <= 2e-6), percent)
