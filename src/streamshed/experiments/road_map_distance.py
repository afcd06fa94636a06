"""How far the road map is from the exact optimum: `lsrm-random` against the linear program, and why.

On generated networks, half of them with sharing, at excess loads drawn from +22 % to +307 %. The distance
is the utility that the program keeps and the chosen row does not, summed over the outputs (each has at most
1). The road map's own last step is what the chosen row lost against the row before it: a distance of at most
one such step is as close as a table of steps can come. For the ten networks that are furthest off it is
worked out which steps of the table cost it (`road_map_regret`).

Rows: x is a percentage of the networks and the loss the distance that so many of them keep to (series by
kind of network); `within one step` has the percentage that does; of the ten worst, x is the rank and the
algorithm the kind of step that cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamshed.experiments import chart
from streamshed.experiments.registry import Experiment, Progress, Row, spread
from streamshed.experiments.road_map_regret import KINDS, OWN, kinds, regrets
from streamshed.network.catalog import Catalog
from streamshed.network.generate import Shape, generate
from streamshed.policies.optimal import Optimal
from streamshed.policies.road_map import RandomRoadMap
from streamshed.policies.segments import Segments

NETWORKS = 500
WORST = 10
QUANTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 100.0)
ALONE, APART, MEETING = "no sharing", "sharing, streams do not meet", "sharing, streams meet"
"""Of the networks with sharing, whether an output gets rows both of its own and from a shared box."""
DISTANCE, WITHIN, WORST_ONES = "distance", "within one step", "worst"


@dataclass(frozen=True)
class Case:
    """A network and its load."""

    shape: Shape
    seed: int
    excess: float

    def catalog(self) -> Catalog:
        return Catalog.of(generate(self.shape, seed=self.seed)).overloaded(self.excess)


@dataclass(frozen=True)
class Found:
    case: Case
    kind: str
    distance: float
    steps: float
    """The distance in steps of the table."""


def cases(networks: int, seed: int) -> list[Case]:
    """Every second one shares."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(networks):
        shape = Shape(
            queries=int(rng.integers(3, 8)),
            boxes=int(rng.integers(20, 48)),
            shared=int(rng.integers(2, 5)) if number % 2 else 0,
            skew=float(rng.uniform(0, 1.5)),
            rates=(0.5, 2.0),
        )
        made.append(Case(shape, int(rng.integers(1 << 30)), float(rng.uniform(0.22, 3.07))))
    return made


def compare(case: Case) -> Found:
    catalog = case.catalog()
    chosen = RandomRoadMap().planner(catalog).decide()
    best = Optimal().planner(catalog).decide()
    assert chosen.chosen is not None
    assert chosen.row is not None
    assert best.row is not None
    kept = sum(chosen.row.utility.values())
    before = sum(chosen.rows[chosen.chosen - 1].utility.values()) if chosen.chosen else len(chosen.row.utility)
    distance, step = sum(best.row.utility.values()) - kept, before - kept
    kind = ALONE
    if case.shape.shared:
        kind = MEETING if OWN in kinds(Segments.of(catalog)) else APART
    within = 0.0 if distance <= 1e-7 else float("inf")
    return Found(case, kind, distance, distance / step if step > 1e-9 else within)


def measure(
    runs: int, seed: int, progress: Progress, *, networks: int = NETWORKS, worst: int = WORST
) -> list[Row]:
    """Each run has that many networks of its own."""
    total = runs * networks + worst
    by_run: list[list[Found]] = []
    for run in range(runs):
        found = []
        for number, case in enumerate(cases(networks, seed + run)):
            progress(run * networks + number, total, "against the optimum")
            found.append(compare(case))
        by_run.append(found)
    rows: list[Row] = []
    for kind in (ALONE, APART, MEETING):
        of_kind = [[each for each in found if each.kind == kind] for found in by_run]
        of_kind = [found for found in of_kind if found]
        if not of_kind:
            continue
        for quantile in QUANTILES:
            far = [float(np.percentile([each.distance for each in found], quantile)) for found in of_kind]
            rows.append(spread(quantile, kind, DISTANCE, far))
        near = [100 * float(np.mean([each.steps <= 1 + 1e-6 for each in found])) for found in of_kind]
        rows.append(spread(100.0, kind, WITHIN, near))
    furthest = sorted((each for found in by_run for each in found), key=lambda each: -each.distance)[:worst]
    for rank, each in enumerate(furthest, 1):
        progress(runs * networks + rank - 1, total, f"why number {rank} is far off")
        rows += [
            spread(rank, WORST_ONES, kind, [cost])
            for kind, cost in regrets(each.case.catalog()).items()
            if cost > 1e-6
        ]
    progress(total, total, "done")
    return rows


def draw(rows: Sequence[Row], path: Path) -> None:
    chart.stacks(
        [row for row in rows if row.series == WORST_ONES],
        path,
        chart.Labels(
            title="Furthest from the optimum: which steps of the table cost it",
            x="rank among the networks",
            y="utility below the optimum",
            note="utility of all outputs, each at most 1; own stream: of one output, which shares another",
        ),
        by=lambda row: row.algorithm,
        order=KINDS,
    )


EXPERIMENT = Experiment(
    "road-map-distance", "Road map against the exact optimum", "LSRM 4.3.1, its claim", 1, measure, draw
)
