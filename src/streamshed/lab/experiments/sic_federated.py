"""Fairness over several nodes: Jain's index by how old the coordinators' feedback is.

4 to 16 nodes at twice their capacity, six queries a node, each spread over 1 to 3 of them; coordinators tell every
second. Nodes are loaded evenly, or any part of a query is on any node (uneven): there not even the best shedding
makes all equal, since a node that has little to do cannot help another's queries. `fair` counts what a node let in
since; `as told` takes the SIC as it is told; `no feedback` has no coordinator.

What must come out, written before the first run: at the default delay Jain's index of `fair` at least 0.97 on
nodes loaded evenly; feedback taken as told gets worse with its age, and counting what is on its way hardly does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, Progress
from streamshed.lab.experiments.sic import Reading, read
from streamshed.lab.experiments.sic_queries import mixed
from streamshed.sim.nodes.deployment import FederationSettings

DELAYS = (0.05, 1.0, 5.0, 10.0)
NODES = (4, 8, 16)
QUERIES_A_NODE = 6
OVERLOAD = 2.0
SECONDS, SETTLED = 50.0, 30.0
EVEN, UNEVEN = "even", "uneven"
WAYS: dict[str, dict[str, Any]] = {
    "fair": {},
    "fair, as told": {"predicting": False},
    "fair, no feedback": {"feedback": None},
    "random": {"shedder": "random", "feedback": None},
}


@dataclass(frozen=True, slots=True)
class FederatedRow:
    x: float
    """Seconds that a coordinator's message takes."""
    nodes: int
    load: str
    algorithm: str
    jain: float
    sic_mean: float
    sic_min: float
    sic_max: float
    throughput: float


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    delays: Sequence[float] = DELAYS,
    nodes: Sequence[int] = NODES,
    loads: Sequence[str] = (EVEN, UNEVEN),
    queries: int = QUERIES_A_NODE,
    seconds: float = SECONDS,
    settled: float = SETTLED,
) -> list[FederatedRow]:
    rows = []
    cases = [(count, load, way) for count in nodes for load in loads for way in WAYS]
    total = len(cases) * len(delays) * runs
    for number, (count, load, way) in enumerate(cases):
        names = [f"node {each}" for each in range(count)]
        done: dict[float, Reading] = {}
        for place, delay in enumerate(delays):
            if "feedback" not in WAYS[way] or not done:  # without feedback, its delay makes no difference
                readings = []
                for run in range(runs):
                    step = (number * len(delays) + place) * runs + run
                    progress(step, total, f"{count} nodes, {load} load, {way}, told {delay:g} s late")
                    asked = mixed(queries * count, names, OVERLOAD, seed + run, spread=(1, 3), even=load == EVEN)
                    settings = FederationSettings(seed=seed + run, feedback_delay=delay, **WAYS[way])
                    readings.append(read(names, asked, settings, seconds=seconds, settled=settled))
                done[delay] = Reading.mean(readings)
            else:
                done[delay] = done[delays[0]]
            found = done[delay]
            rows.append(
                FederatedRow(
                    delay, count, load, way,
                    found.jain, found.sic_mean, found.sic_min, found.sic_max, found.throughput,
                )
            )  # fmt: skip
    progress(total, total, "done")
    return rows


def draw(rows: Sequence[FederatedRow], path: Path) -> None:
    counts = sorted({row.nodes for row in rows})
    chart.curves(
        [
            chart.Panel(
                f"Jain's index, {count} nodes, {load} load",
                "seconds that feedback takes",
                [
                    chart.Curve(
                        way,
                        [
                            (row.x, row.jain)
                            for row in rows
                            if (row.nodes, row.load, row.algorithm) == (count, load, way)
                        ],
                    )
                    for way in WAYS
                ],
                (0.5, 1.01),
            )
            for load in dict.fromkeys(row.load for row in rows)
            for count in counts
        ],
        path,
        title="Fair shedding over several nodes, by the age of the feedback",
        note="six queries a node, each on 1 to 3 nodes, twice the capacity; mean of the runs",
        columns=len(counts),
    )


EXPERIMENT = Experiment("sic-federated", "Fairness over several nodes", "DISSP 4.3 and 5.3", 1, measure, draw)
