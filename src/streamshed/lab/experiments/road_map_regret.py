"""Which of its steps cost the road map: the distance to the optimum, step by step.

Each row of the table only ever lowers flows. So after row k the best that is still possible is the linear
program with the flows of row k as upper bounds. At row 0 that is the optimum; at the chosen row it is what
the table keeps. Where it falls in between, that step was the mistake, and by how much:

    regret of step k = best within the flows of row k−1  −  best within the flows of row k

The steps are told apart by what they lowered:

    own stream      rows that only one output gets, an output that a shared box feeds too
    shared stream   rows that several outputs get
    branch          an arc out of a split point, towards one output
    lone stream     rows that only one output gets, and nobody shares anything with it

The last step before the load fits drops more than needed: its regret is what steps as such cost.
"""

from __future__ import annotations

import numpy as np

from streamshed.network.catalog import Catalog
from streamshed.policies.optimal import OptimalPlanner, Program
from streamshed.policies.road_map.random import RandomRoadMap
from streamshed.policies.road_map.segments import Segments

OWN, SHARED, BRANCH, LONE, LAST = KINDS = ("own stream", "shared stream", "branch", "lone stream", "last step")
_NOTHING = 1e-9


def kinds(segments: Segments) -> list[str]:
    """What each candidate arc is."""
    reached: list[set[str]] = [set() for _ in segments.all]
    for segment in reversed(segments.all):
        reached[segment.index] = {name for name, _ in segment.out}.union(
            *(reached[child] for child, _ in segment.to)
        )
    fed_by_branches = {
        name for segment in segments.all if segment.source is None for name in reached[segment.index]
    }

    def kind(index: int) -> str:
        outputs = reached[index]
        if len(outputs) > 1:
            return SHARED
        if segments.all[index].source is None:
            return BRANCH
        return OWN if outputs & fed_by_branches else LONE

    return [kind(segment.index) for segment in segments.all]


def regrets(catalog: Catalog) -> dict[str, float]:
    """The utility that steps of each kind cost, of `lsrm-random` at the catalog's rates."""
    decision = RandomRoadMap().planner(catalog).decide()
    planner = OptimalPlanner("optimal", catalog)
    program = Program(planner.model, planner.segments, planner.graphs)
    names = kinds(planner.segments)
    found = dict.fromkeys(KINDS, 0.0)
    if decision.chosen is None:
        return found
    before = program.full.copy()
    best = _best(program, before)
    for number in range(decision.chosen + 1):
        flows = program.flows(decision.rows[number].drops)
        fallen = np.flatnonzero(flows < before - _NOTHING * np.maximum(program.full, _NOTHING))
        now = _best(program, flows)
        if number == decision.chosen:
            found[LAST] += max(0.0, best - now)
        elif len(fallen):
            found[names[int(fallen[0])]] += max(0.0, best - now)  # those below fell because this one did
        before, best = flows, min(best, now)
    return found


def _best(program: Program, at_most: np.ndarray) -> float:
    row = program.row(program.solve(program.catalog.limit, at_most))
    return sum(row.utility.values())
