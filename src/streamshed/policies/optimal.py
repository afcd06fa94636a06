"""Policy `optimal`: the best random drops, as a linear program over flows.

With concave loss graphs the largest total utility within the limit is a linear program. For each candidate
arc (LSRM 4.3.1) the flow f that passes it, for each output o and piece j of its loss graph, from the left,
the percent d_oj delivered in that piece:

    maximise    Σ_o Σ_j slope_oj · d_oj
    subject to  f_c ≤ Σ_u (rows reaching c per row passing u) · f_u          a drop only takes away
                Σ_j d_oj = 100/R_o · (P_o + Σ_u (rows of o per row of u) · f_u)      what is delivered
                Σ_u work_u · f_u + protected load ≤ limit
                0 ≤ f_u ≤ full rate,  0 ≤ d_oj ≤ width of the piece

P_o, R_o: protected and all rows of o. Slopes fall from left to right, so the pieces fill in order. Branches
of a split are each at most the shared flow; a branch that takes less is a drop there. Among equals it keeps most:
what a flat piece delivers counts for a billionth. Everything is scaled to 1: flows by their full rates, load by
what can be shed. HiGHS solves it (Huangfu and Hall, Parallelizing the dual revised simplex method, 2018) in
milliseconds.

Below a join delivery is a product of flows, and where streams that differ meet and split again, it is nearly one.
There the program is that of the derivatives at the flows so far, solved again and again within a shrinking
neighbourhood, from what `lsrm-random` finds on: a local optimum. `gap` says how far from the best that can be, by
a program in which a join gives at most as much as either of its sides allows.

The load that drops themselves cost is not linear; it is charged afterwards, by tightening the limit until
the plan with its drops fits.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("split").source("s", "x INT", rate=100).filter("shared", "s", "x > 0", cost=0.006)
...     .filter("f", "shared", "x > 1", cost=0.006).filter("g", "shared", "x > 2", cost=0.006)
...     .output("dear", "f").output("cheap", "g", loss=[(100, 1.0), (20, 0.9), (0, 0.0)]).build()
... )
>>> decision = Optimal().planner(Catalog.of(network)).decide()
>>> {name: round(percent, 3) for name, percent in decision.row.delivery.items()}
{'dear': 65.0, 'cheap': 20.0}
>>> [(drop.at, round(drop.keep, 4)) for drop in decision.drops]
[('s->shared', 0.65), ('shared->g', 0.3077)]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from streamshed.extras import need
from streamshed.network.catalog import Catalog
from streamshed.network.graph import ends
from streamshed.network.qos import LossGraph
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.network.value_flow.certainty import certainties
from streamshed.network.value_flow.flow_model import FlowModel, FlowState
from streamshed.network.value_flow.strata import Vector
from streamshed.policies.contract import SLACK, Decision, Row, drop, evaluated, overload
from streamshed.policies.parse_planner import weighing_parse
from streamshed.policies.road_map import bent
from streamshed.policies.road_map.segments import Segment, Segments
from streamshed.policies.road_map.table import RoadMap
from streamshed.records import Drop

_NOTHING = 1e-9
_FLAT, _ANY = 1e-9, 1e-10
"""What a flat piece, and any row at all, counts for: more than nothing."""
_SCALE = 1e4
"""Of the objective, so that these are well above what the solver takes for 0."""
_ROUNDS = 25
_BENT_STEP = 0.02


@dataclass(frozen=True)
class Optimal:
    name: str = "optimal"

    @weighing_parse
    def planner(self, catalog: Catalog) -> OptimalPlanner:
        return OptimalPlanner(self.name, catalog)


class OptimalPlanner:
    def __init__(self, policy: str, catalog: Catalog) -> None:
        self.policy = policy
        self.catalog = catalog
        self.graphs: Mapping[str, LossGraph] = loss_graphs(catalog)
        self.model = FlowModel(catalog)
        self.segments = Segments.of(self.model)
        self.certainty = certainties(catalog)
        self._start: RoadMap | None = None

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        model = self.model.with_rates(rates)
        catalog = model.catalog
        excess = overload(catalog)
        if not excess:
            return Decision(self.policy, catalog.load, catalog.limit, (), None, certainty=self.certainty)
        segments = self.segments if not rates else Segments.of(model)
        program = Program(model, segments, self.graphs)
        limit, gap = catalog.limit, None
        for _ in range(50):
            if segments.linear:
                row = program.row(program.solve(limit))
            else:
                row, gap = self._bent(program, limit)
            remaining = excess - row.saved(catalog.rates)
            if remaining <= SLACK * catalog.limit or limit <= model.least:
                break
            limit = max(model.least, limit - remaining * 1.01)
        if remaining <= SLACK * catalog.limit:
            remaining, gap = 0.0, 0.0 if segments.linear else gap
        return Decision(
            self.policy, catalog.load, catalog.limit, (row,), 0, remaining, certainty=self.certainty, gap=gap
        )

    def _bent(self, program: Program, limit: float) -> tuple[Row, float | None]:
        """The best that is found, and how far it may be from the best there is."""
        model = program.model
        if self._start is None:
            arcs = {segment.arc for segment in self.segments.all}
            self._start = bent.build(self.catalog, self.graphs, arcs, _BENT_STEP)
        row = self._start.look_up(model.catalog.load - limit * (1 + SLACK), model.catalog.rates)
        start = self._start[min(row, len(self._start) - 1)]
        best = program.fitted(program.flows(start.drops), limit)
        worth = program.utility(best)
        reach = 0.3
        for _ in range(_ROUNDS):
            near = Program(model, Segments.of(model, state=best), self.graphs, best)
            tried = program.fitted(near.solve(limit, within=reach), limit)
            found = program.utility(tried)
            if found > worth + 1e-9:
                best, worth = tried, found
            else:
                reach /= 2
            if reach < 1e-3:
                break
        made = program.row(program.passing(best))
        around_joins = Segments.of(model, program.join_arcs)
        if not around_joins.alike(model, program.join_arcs):
            return made, None
        bound = Program(model, around_joins, self.graphs, relaxed=True).best(limit)
        return made, max(0.0, bound - sum(made.utility.values()))


class Program:
    """The linear program of a model at its rates; under some drops, of what one row less or more would do."""

    def __init__(
        self,
        model: FlowModel,
        segments: Segments,
        graphs: Mapping[str, LossGraph],
        state: FlowState | None = None,
        *,
        relaxed: bool = False,
    ) -> None:
        """`relaxed`: arcs at joins are candidates too, and a join gives what either side allows at most."""
        self.model = model
        self.catalog = model.catalog
        self.segments = segments
        self.graphs = graphs
        self.relaxed = relaxed
        self.full = np.array([segment.full for segment in segments.all])
        self._unit = np.where(self.full > 0, self.full, 1.0)
        self.least = model.least
        """Load that stays when everything that may be dropped is."""
        outputs = {output.name: model.network.arcs_into(output.name)[0] for output in model.network.outputs}
        self.rows_of = {name: model.full[on] for name, on in outputs.items()}
        self.outputs = [name for name, whole in self.rows_of.items() if whole > 0]
        now = state or model.whole
        self.now = self.passing(now)
        # What the program would have now without these constants is what its flows give; the rest is fixed:
        # protected rows, and of a product what its derivatives do not have.
        given = dict.fromkeys(outputs, 0.0)
        inflow = np.zeros(len(self.full))
        work = 0.0
        for segment in segments.all:
            work += segment.work * self.now[segment.index]
            for name, times in segment.out:
                given[name] += times * self.now[segment.index]
            for child, times in segment.to:
                inflow[child] += times * self.now[segment.index]
        self._rest = {name: now.rows(on) - given[name] for name, on in outputs.items()}
        reaching = np.array([model.free_rows(now.reaching, segment.arc) for segment in segments.all])
        self._inflow_rest = reaching - inflow
        self._load_rest = now.load - model.catalog.drop_cost * sum(
            float(now.reaching[on].sum()) for on in now.keeps
        ) - work  # fmt: skip

    @property
    def join_arcs(self) -> list[str]:
        """The arcs into and out of joins."""
        network = self.model.network
        return [on for name in self.model.pairs for on in (*network.arcs_into(name), *network.arcs_out_of(name))]

    @cached_property
    def _constraints(self) -> tuple[Any, Vector, Any, Vector, Vector, Vector]:
        """A_ub, b_ub (its last row is the load), A_eq, b_eq, costs, upper bounds; flows as shares of the full."""
        candidates, unit = self.segments.all, self._unit
        upper: list[tuple[int, int, float]] = []
        limits: list[float] = []
        for segment in candidates:
            if segment.source is not None:
                continue
            index, parents = segment.index, self.segments.parents[segment.index]
            apart = self.relaxed and ends(segment.arc)[0] in self.model.pairs
            for several in [(one,) for one in parents] if apart else [parents]:
                row = len(limits)
                upper.append((row, index, 1.0))
                upper += [(row, parent, -times * unit[parent] / unit[index]) for parent, times in several]
                limits.append(0.0 if apart else self._inflow_rest[index] / unit[index])
        shed = max(self.catalog.load - self.least, 1e-300)
        upper.extend((len(limits), one.index, one.work * unit[one.index] / shed) for one in candidates)
        limits.append(0.0)
        columns = len(candidates)
        equal: list[tuple[int, int, float]] = []
        costs, bounds, fixed = [-_ANY] * columns, [float(full > 0) for full in self.full], []
        position = {name: index for index, name in enumerate(self.outputs)}
        for name, index in position.items():
            for piece in self.graphs[name].pieces:
                equal.append((index, columns, 1.0))
                costs.append(-(100.0 * piece.slope + _FLAT))
                bounds.append((piece.high - piece.low) / 100.0)
                columns += 1
            # What is delivered may exceed what the pieces hold by rounding.
            fixed.append(self._rest[name] / self.rows_of[name])
        for segment in candidates:
            for name, times in segment.out:
                if name in position:
                    share = times * unit[segment.index] / self.rows_of[name]
                    equal.append((position[name], segment.index, -share))
        return (
            _matrix(upper, len(limits), columns),
            np.array(limits),
            _matrix(equal, len(position), columns),
            np.array(fixed),
            _SCALE * np.array(costs),
            np.array(bounds),
        )

    def solve(self, limit: float, at_most: Vector | None = None, within: float | None = None) -> Vector:
        """The flows that pass the candidates; none above `at_most`, if given.

        within: no further from what passes now than this share of the full rates
        """
        a_ub, b_ub, a_eq, b_eq, costs, bounds = self._constraints
        shed = max(self.catalog.load - self.least, 1e-300)
        b_ub[-1] = (limit - self._load_rest) / shed
        if within is None:
            b_ub[-1] = max(0.0, b_ub[-1])
        count, unit = len(self.full), self._unit
        lower, upper = np.zeros_like(bounds), bounds.copy()
        if at_most is not None:
            upper[:count] = np.minimum(at_most / unit, upper[:count])
        if within is not None:
            now = self.now / unit
            upper[:count] = np.minimum(upper[:count], np.maximum(0.0, now + within))
            lower[:count] = np.minimum(upper[:count], np.maximum(0.0, now - within))
        found = self._solved(costs, a_ub, b_ub, a_eq, b_eq, np.column_stack((lower, upper)))
        if found is None:  # only rounding can make it so: dropping everything always fits
            return np.zeros(count) if within is None else self.now
        flows: Vector = np.clip(found[:count], 0.0, 1.0) * self.full
        return flows

    def best(self, limit: float) -> float:
        """The utility that the program itself promises."""
        a_ub, b_ub, a_eq, b_eq, costs, bounds = self._constraints
        b_ub[-1] = max(0.0, limit - self._load_rest) / max(self.catalog.load - self.least, 1e-300)
        found = self._solved(costs, a_ub, b_ub, a_eq, b_eq, np.column_stack((np.zeros_like(bounds), bounds)))
        if found is None:
            return float(len(self.rows_of))
        worth = sum(self.graphs[name](100.0) for name in self.rows_of if name not in self.outputs)
        column = len(self.full)
        for name in self.outputs:
            pieces = len(self.graphs[name].pieces)
            worth += self.graphs[name](100.0 * float(found[column : column + pieces].sum()))
            column += pieces
        return worth

    def _solved(
        self, costs: Vector, a_ub: Any, b_ub: Vector, a_eq: Any, b_eq: Vector, bounds: Vector
    ) -> Vector | None:
        solution: Vector | None = (
            need("scipy.optimize", "full")
            .linprog(
                costs,
                A_ub=a_ub,
                b_ub=b_ub,
                A_eq=a_eq if self.outputs else None,
                b_eq=b_eq if self.outputs else None,
                bounds=bounds,
                method="highs",
            )
            .x
        )
        return solution

    # ── flows and states ─────────────────────────────────────────────────────────────────────────

    def passing(self, state: FlowState) -> Vector:
        """The flows of a state, of rows that may be dropped."""
        return np.array([self.model.free_rows(state.passing, segment.arc) for segment in self.segments.all])

    def state(self, flows: Vector) -> FlowState:
        limits = {segment.arc: float(flows[segment.index]) for segment in self.segments.all}
        return self.model.state({}, limits)

    def fitted(self, flows: Vector, limit: float) -> FlowState:
        """The state with these flows; with a share of all of them, if the load would not fit."""
        made = self.state(flows)
        if made.load <= limit * (1 + SLACK):
            return made
        fits, exceeds = 0.0, 1.0
        made = self.state(np.zeros(len(flows)))
        for _ in range(40):
            part = (fits + exceeds) / 2
            tried = self.state(flows * part)
            if tried.load <= limit:
                fits, made = part, tried
            else:
                exceeds = part
        return made

    def utility(self, state: FlowState) -> float:
        """What the loss graphs make of a state; among equals, more is more."""
        delivery = self.model.delivery(state)
        return sum(self.graphs[name](percent) + _FLAT * percent / 100 for name, percent in delivery.items())

    def flows(self, drops: Iterable[Drop]) -> Vector:
        """The other way round: the flows that pass the candidates under some random drops."""
        return self.passing(self.model.state(self.model.keeps(drops)))

    def row(self, flows: Vector) -> Row:
        """Drops that give these flows, as keeps from upstream down; and their effect."""
        state = self.state(flows)

        def keep(segment: Segment) -> float:
            reach = self.model.free_rows(state.reaching, segment.arc)
            if reach <= _NOTHING * self.full[segment.index] or flows[segment.index] >= reach * (1 - _NOTHING):
                return 1.0
            return float(flows[segment.index]) / reach

        drops = [
            drop(segment.arc, kept, segment.protect)
            for segment in self.segments.all
            if (kept := keep(segment)) < 1.0
        ]
        return evaluated(self.model, drops, self.graphs)


def _matrix(entries: list[tuple[int, int, float]], rows: int, columns: int) -> Any:
    i, j, values = zip(*entries, strict=True) if entries else ((), (), ())
    return need("scipy.sparse", "full").coo_array(
        (np.array(values, dtype=float), (np.array(i, dtype=int), np.array(j, dtype=int))), (rows, columns)
    )
