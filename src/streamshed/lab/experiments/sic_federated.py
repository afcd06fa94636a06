"""Fairness over several nodes: Jain's index by how old the coordinators' feedback is.

4 to 16 nodes at twice their capacity, six queries a node, each spread over 1 to 3 of them; coordinators tell every
second. Nodes are loaded evenly, or any part of a query is on any node (uneven): there not even the best shedding
makes all equal, since a node that has little to do cannot help another's queries. `fair` counts what a node let in
since; `as told` takes the SIC as it is told; `no feedback` has no coordinator. `all-knowing` is no run: it is what
somebody would give the queries who knew all loads, raising all alike until a node of theirs is full.

What must come out, written before the first run: at the default delay Jain's index of `fair` at least 0.97 on
nodes loaded evenly; feedback taken as told gets worse with its age, and counting what is on its way hardly does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, Progress
from streamshed.lab.experiments.sic import Reading, read
from streamshed.lab.experiments.sic_queries import mixed
from streamshed.network.catalog import Catalog
from streamshed.quality.sic import jain
from streamshed.sim.nodes.deployment import FederatedQuery, FederationSettings

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
ALL_KNOWING = "all-knowing"


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
    throughput: float | None
    """Tuples worked on per second; of what was not run, nothing."""


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
    for count, load in ((count, load) for count in nodes for load in loads):
        names = [f"node {each}" for each in range(count)]
        best = [
            max_min(mixed(queries * count, names, OVERLOAD, seed + run, spread=(1, 3), even=load == EVEN), names)
            for run in range(runs)
        ]
        rows += [
            FederatedRow(
                delay, count, load, ALL_KNOWING, float(np.mean([jain(each) for each in best])),
                float(np.mean(best)), float(np.min(best)), float(np.max(best)), None,
            )
            for delay in delays
        ]  # fmt: skip
    progress(total, total, "done")
    return rows


def max_min(queries: Sequence[FederatedQuery], nodes: Sequence[str]) -> np.ndarray:
    """The SIC of each query if all are raised alike until all of their rows, or one of their nodes, is used up.

    No other choice gives anybody more without taking from somebody who has no more. Nodes have a capacity of 1.
    """
    load = np.zeros((len(nodes), len(queries)))
    for number, query in enumerate(queries):
        rates = Catalog.of(query.network).arc_rates
        for box in query.network.order:
            rows = sum(rates[on] for on in query.network.arcs_into(box.name))
            load[nodes.index(query.nodes[box.name]), number] += box.cost * rows
    kept, rising = np.zeros(len(queries)), np.ones(len(queries), bool)
    while rising.any():
        growth = load[:, rising].sum(axis=1)
        room = (1.0 - load @ kept)[growth > 0] / growth[growth > 0]
        kept[rising] += min(room.min(initial=math.inf), (1.0 - kept[rising]).min())
        full = load @ kept > 1.0 - 1e-9
        rising &= ~(load[full] > 0).any(axis=0) & (kept < 1.0 - 1e-9)
    return kept


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
                    for way in (*WAYS, ALL_KNOWING)
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
