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
of a split are each at most the shared flow; a branch that takes less is a drop there. HiGHS solves it
(Huangfu and Hall, Parallelizing the dual revised simplex method, 2018) in milliseconds.

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
from streamshed.network.qos import LossGraph
from streamshed.network.values import loss_graphs
from streamshed.policies.contract import SLACK, Decision, Row, drop, overload, sheddable, with_rates
from streamshed.policies.segments import Segment, Segments
from streamshed.records import Drop

_NOTHING = 1e-9


@dataclass(frozen=True)
class Optimal:
    name: str = "optimal"

    def planner(self, catalog: Catalog) -> OptimalPlanner:
        return OptimalPlanner(self.name, catalog)


class OptimalPlanner:
    def __init__(self, policy: str, catalog: Catalog) -> None:
        self.policy = policy
        self.catalog = catalog
        self.graphs: Mapping[str, LossGraph] = loss_graphs(catalog)
        self.segments = Segments.of(catalog)

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        catalog = with_rates(self.catalog, rates)
        excess = overload(catalog)
        if not excess:
            return Decision(self.policy, catalog.load, catalog.limit, (), None)
        program = Program(catalog, self.segments, self.graphs)
        limit = catalog.limit
        for _ in range(50):
            row = program.row(program.solve(limit))
            remaining = excess - row.saved(catalog.rates)
            if remaining <= SLACK * catalog.limit or limit <= program.least:
                break
            limit = max(program.least, limit - remaining * 1.01)
        if remaining <= SLACK * catalog.limit:
            remaining = 0.0
        return Decision(self.policy, catalog.load, catalog.limit, (row,), 0, remaining)


class Program:
    """The linear program at given rates."""

    def __init__(self, catalog: Catalog, segments: Segments, graphs: Mapping[str, LossGraph]) -> None:
        self.catalog = catalog
        self.segments = segments
        self.graphs = graphs
        free = sheddable(catalog)
        self.full = np.array([free.arc_rates[segment.arc] for segment in segments.all])
        self.least = catalog.load - free.load
        """Load that stays when everything that may be dropped is."""
        self.rows_of = {
            output.name: (
                free.arc_rates[f"{output.input}->{output.name}"],
                catalog.arc_rates[f"{output.input}->{output.name}"],
            )
            for output in catalog.network.outputs
        }
        self.outputs = [name for name, (_, whole) in self.rows_of.items() if whole > 0]

    @cached_property
    def _constraints(self) -> tuple[Any, np.ndarray, Any, np.ndarray, np.ndarray, np.ndarray]:
        """A_ub, b_ub (its last row is the load), A_eq, b_eq, costs, upper bounds."""
        candidates = self.segments.all
        upper: list[tuple[int, int, float]] = []
        rows = 0
        for segment in candidates:
            if segment.source is None:
                upper.append((rows, segment.index, 1.0))
                for parent, times in self.segments.parents[segment.index]:
                    upper.append((rows, parent, -times))
                rows += 1
        upper.extend((rows, segment.index, segment.work) for segment in candidates)
        columns = len(candidates)
        equal: list[tuple[int, int, float]] = []
        costs, bounds, fixed = [0.0] * columns, list(self.full), []
        position = {name: index for index, name in enumerate(self.outputs)}
        for name, index in position.items():
            free, whole = self.rows_of[name]
            for piece in self.graphs[name].pieces:
                equal.append((index, columns, 1.0))
                costs.append(-piece.slope)
                bounds.append(piece.high - piece.low)
                columns += 1
            fixed.append(100.0 * (whole - free) / whole)
        for segment in candidates:
            for name, times in segment.out:
                if name in position:
                    equal.append((position[name], segment.index, -100.0 * times / self.rows_of[name][1]))
        return (
            _matrix(upper, rows + 1, columns),
            np.zeros(rows + 1),
            _matrix(equal, len(position), columns),
            np.array(fixed),
            np.array(costs),
            np.array(bounds),
        )

    def solve(self, limit: float, at_most: np.ndarray | None = None) -> np.ndarray:
        """The flows that pass the candidates; none above `at_most`, if given."""
        a_ub, b_ub, a_eq, b_eq, costs, bounds = self._constraints
        b_ub[-1] = max(0.0, limit - self.least)
        if at_most is not None:
            bounds = np.concatenate((np.minimum(at_most, self.full), bounds[len(self.full) :]))
        found = need("scipy.optimize", "full").linprog(
            costs,
            A_ub=a_ub,
            b_ub=b_ub,
            A_eq=a_eq if self.outputs else None,
            b_eq=b_eq if self.outputs else None,
            bounds=np.column_stack((np.zeros_like(bounds), bounds)),
            method="highs",
        )
        if found.x is None:  # only rounding can make it so: dropping everything always fits
            return np.zeros(len(self.full))
        flows: np.ndarray = np.clip(found.x[: len(self.full)], 0.0, self.full)
        return flows

    def flows(self, drops: Iterable[Drop]) -> np.ndarray:
        """The other way round: the flows that pass the candidates under some random drops."""
        keeps = {drop.at: drop.keep for drop in drops}
        passing = np.zeros(len(self.full))
        for segment in self.segments.all:
            passing[segment.index] = self._reaching(segment, passing) * keeps.get(segment.arc, 1.0)
        return passing

    def _reaching(self, segment: Segment, passing: np.ndarray) -> float:
        """Rows that reach a candidate, when those above it let so many pass."""
        if segment.source is not None:
            return float(self.full[segment.index])
        return float(sum(times * passing[parent] for parent, times in self.segments.parents[segment.index]))

    def row(self, flows: np.ndarray) -> Row:
        """Drops that give these flows, as keeps from upstream down; and their effect, computed anew."""
        catalog, candidates = self.catalog, self.segments.all
        keeps = np.ones(len(flows))
        passing = np.zeros(len(flows))
        for segment in candidates:
            index = segment.index
            reach = self._reaching(segment, passing)
            if reach > _NOTHING * self.full[index] and flows[index] < reach * (1 - _NOTHING):
                keeps[index] = flows[index] / reach
            passing[index] = reach * keeps[index]
        work = np.zeros(len(flows))
        undropped = np.zeros(len(flows))
        for segment in reversed(candidates):
            index = segment.index
            undropped[index] = segment.work + sum(times * undropped[child] for child, times in segment.to)
            below = segment.work + sum(times * work[child] for child, times in segment.to)
            work[index] = keeps[index] * below + (catalog.drop_cost if keeps[index] < 1 else 0.0)
        savings: dict[str, float] = {}
        shares = {source.name: 1 - source.protected for source in catalog.network.sources}
        for segment in candidates:
            if segment.source is not None:
                saved = shares[segment.source] * (undropped[segment.index] - work[segment.index])
                savings[segment.source] = savings.get(segment.source, 0.0) + float(saved)
        delivered = {name: whole - free for name, (free, whole) in self.rows_of.items()}
        for segment in candidates:
            for name, times in segment.out:
                delivered[name] += times * passing[segment.index]
        delivery = {
            name: min(100.0, float(100.0 * rows / self.rows_of[name][1])) if self.rows_of[name][1] > 0 else 100.0
            for name, rows in delivered.items()
        }
        return Row(
            savings={name: saved for name, saved in savings.items() if saved},
            drops=tuple(
                sorted(
                    (
                        drop(segment.arc, float(keeps[segment.index]), segment.protect)
                        for segment in candidates
                        if keeps[segment.index] < 1
                    ),
                    key=lambda made: made.at,
                )
            ),
            delivery=delivery,
            utility={name: self.graphs[name](percent) for name, percent in delivery.items()},
        )


def _matrix(entries: list[tuple[int, int, float]], rows: int, columns: int) -> Any:
    i, j, values = zip(*entries, strict=True) if entries else ((), (), ())
    return need("scipy.sparse", "full").coo_array(
        (np.array(values, dtype=float), (np.array(i, dtype=int), np.array(j, dtype=int))), (rows, columns)
    )
