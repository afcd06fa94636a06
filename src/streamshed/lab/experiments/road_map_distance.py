"""How far the road map is from the exact optimum: `lsrm-random` against the linear program, and why.

On generated networks, half of them with sharing and every fifth with joins, at excess loads drawn from +22 % to
+307 %. With joins, and where streams of different values meet and split again, `optimal` is the best that is
found, and not always the best there is. The distance is the utility that the program keeps and the chosen row does
not, summed over the outputs (each has at most 1). The road map's own last step is what the chosen row lost against
the row before it: a distance of at most one such step is as close as a table of steps can come. For the ten
networks that are furthest off it is worked out which steps of the table cost it (`road_map_regret`); those with
joins are left out there.

`lsrm-semantic` is held against `lsrm-random` by what outputs really have: the value utility of what each delivers,
or what its loss graph says if it has no value graph. `below at random` is how much less it has, as a share of all
utility: to be 0.

Rows: x is a percentage of the networks and the loss the distance that so many of them keep to (series by
kind of network); `within one step` has the percentage that does; of the ten worst, x is the rank and the
algorithm the kind of step that cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, FigureRow, Progress, spread
from streamshed.lab.experiments.road_map_regret import KINDS, OWN, kinds, regrets
from streamshed.network.catalog import Catalog
from streamshed.network.generate import NetworkShape, generate
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.optimal import Optimal, OptimalPlanner
from streamshed.policies.road_map.random import STEP_SIZE, RandomRoadMap, build
from streamshed.policies.road_map.segments import Segments
from streamshed.policies.road_map.semantic import SemanticRoadMap, Worth
from streamshed.policies.road_map.table import TablePlanner

NETWORKS = 500
BOXES = (20, 48)
WORST = 10
QUANTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 100.0)
ALONE, APART, MEETING, JOINS = "no sharing", "sharing, streams do not meet", "sharing, streams meet", "joins"
"""Of the networks with sharing, whether an output gets rows both of its own and from a shared box."""
DISTANCE, WITHIN, WORST_ONES, BELOW = "distance", "within one step", "worst", "below at random"
_JOINED = {"filter": 30.0, "union": 11.0, "join": 6.0}


@dataclass(frozen=True)
class Case:
    """A network and its load."""

    shape: NetworkShape
    seed: int
    excess: float

    @property
    def joins(self) -> bool:
        return "join" in self.shape.mix

    def catalog(self) -> Catalog:
        return Catalog.of(generate(self.shape, seed=self.seed)).overloaded(self.excess)


@dataclass(frozen=True)
class Found:
    case: Case
    kind: str
    distance: float
    steps: float
    """The distance in steps of the table."""
    below: float
    """What `lsrm-semantic` has less than `lsrm-random`, as a share of all utility; negative if it has more."""


def cases(networks: int, seed: int, boxes: tuple[int, int] = BOXES) -> list[Case]:
    """Every second one shares."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(networks):
        shape = NetworkShape(
            queries=int(rng.integers(3, 8)),
            boxes=int(rng.integers(*boxes)),
            shared=int(rng.integers(2, 5)) if number % 2 else 0,
            skew=float(rng.uniform(0, 1.5)),
            rates=(0.5, 2.0),
        )
        if number % 5 == 4:
            shape = replace(shape, mix=_JOINED)
        made.append(Case(shape, int(rng.integers(1 << 30)), float(rng.uniform(0.22, 3.07))))
    return made


def compare(case: Case) -> Found:
    catalog = case.catalog()
    table = build(catalog, STEP_SIZE)
    chosen = TablePlanner(RandomRoadMap().name, catalog, table).decide()
    best = OptimalPlanner(Optimal().name, catalog, table).decide()
    assert chosen.chosen is not None
    assert chosen.row is not None
    assert best.row is not None
    kept = sum(chosen.row.utility.values())
    before = sum(chosen.rows[chosen.chosen - 1].utility.values()) if chosen.chosen else len(chosen.row.utility)
    distance, step = sum(best.row.utility.values()) - kept, before - kept
    kind = JOINS if case.joins else ALONE
    if case.shape.shared and not case.joins:
        kind = MEETING if OWN in kinds(Segments.of(FlowModel(catalog))) else APART
    within = 0.0 if distance <= 1e-7 else float("inf")
    by_value = SemanticRoadMap().planner(catalog).decide()
    assert by_value.row is not None
    worth = Worth(FlowModel(catalog, STEP_SIZE), loss_graphs(catalog))
    below = sum(worth.row(chosen.row).utility.values()) - sum(worth.row(by_value.row).utility.values())
    steps = distance / step if step > 1e-9 else within
    return Found(case, kind, distance, steps, below / len(chosen.row.utility))


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    networks: int = NETWORKS,
    worst: int = WORST,
    boxes: tuple[int, int] = BOXES,
) -> list[FigureRow]:
    """Each run has that many networks of its own."""
    total = runs * networks + worst
    by_run: list[list[Found]] = []
    for run in range(runs):
        found = []
        for number, case in enumerate(cases(networks, seed + run, boxes)):
            progress(run * networks + number, total, "against the optimum")
            found.append(compare(case))
        by_run.append(found)
    rows: list[FigureRow] = []
    for kind in (ALONE, APART, MEETING, JOINS):
        of_kind = [[each for each in found if each.kind == kind] for found in by_run]
        of_kind = [found for found in of_kind if found]
        if not of_kind:
            continue
        for quantile in QUANTILES:
            far = [float(np.percentile([each.distance for each in found], quantile)) for found in of_kind]
            rows.append(spread(quantile, kind, DISTANCE, far))
        near = [100 * float(np.mean([each.steps <= 1 + 1e-6 for each in found])) for found in of_kind]
        rows.append(spread(100.0, kind, WITHIN, near))
        worse = [max(each.below for each in found) for found in of_kind]
        rows.append(spread(100.0, kind, BELOW, worse))
    explained = [each for found in by_run for each in found if not each.case.joins]
    furthest = sorted(explained, key=lambda each: -each.distance)[:worst]
    for rank, each in enumerate(furthest, 1):
        progress(runs * networks + rank - 1, total, f"why number {rank} is far off")
        rows += [
            spread(rank, WORST_ONES, kind, [cost])
            for kind, cost in regrets(each.case.catalog()).items()
            if cost > 1e-6
        ]
    progress(total, total, "done")
    return rows


def draw(rows: Sequence[FigureRow], path: Path) -> None:
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
