"""Queries come and go, a node slows down, a node dies: the SIC of all queries, second by second.

Three nodes, 24 queries from the start at 1.6 times the capacity. What must come out: after each change the queries
whose nodes are all up are equal again within two source time windows (20 s), as far as the nodes are loaded alike:
no node can give another its time. Those of the node that died have nothing, and what they used elsewhere goes to
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, Progress
from streamshed.lab.experiments.sic_queries import mixed
from streamshed.quality.sic import jain
from streamshed.sim.nodes.deployment import FederatedQuery, FederationSettings, Incident
from streamshed.sim.nodes.federation import Federation

NODES = ("a", "b", "c")
FIRST, GUESTS = 24, 12
COME, GO, SLOW, FAST, DIE, END = 40.0, 90.0, 130.0, 170.0, 210.0, 250.0
MARKS = (
    (COME, "12 queries come"),
    (GO, "they go"),
    (SLOW, "node b at half its speed"),
    (FAST, "b is back"),
    (DIE, "node c dies"),
)
ALGORITHMS = ("fair", "random")
EVERY = 2.0


@dataclass(frozen=True, slots=True)
class TimelineRow:
    x: float
    """Seconds."""
    algorithm: str
    queries: int
    jain: float
    """Over the queries whose nodes are all up."""
    sic_mean: float
    sic_min: float
    sic_max: float
    broken: int
    """Queries with a part on a node that died."""


def queries(seed: int) -> list[FederatedQuery]:
    steady = mixed(FIRST, NODES, 1.6, seed, spread=(1, 2))
    guests = [
        replace(each, network=replace(each.network, name=f"guest {number}"), starts=COME, ends=GO)
        for number, each in enumerate(mixed(GUESTS, NODES, 0.8, seed + 1, spread=(1, 2)))
    ]
    return steady + guests


def measure(runs: int, seed: int, progress: Progress, *, until: float = END) -> list[TimelineRow]:
    rows = []
    total = len(ALGORITHMS) * runs * round(until)
    for number, name in enumerate(ALGORITHMS):
        found: dict[float, list[TimelineRow]] = {}
        for run in range(runs):
            asked = queries(seed + run)
            incidents = [Incident(SLOW, "b", 0.5), Incident(FAST, "b", 1.0), Incident(DIE, "c")]
            federation = Federation(
                dict.fromkeys(NODES, 1.0), asked, FederationSettings(shedder=name, seed=seed + run), incidents
            )
            before = (number * runs + run) * round(until)
            federation.run(until, lambda now, start=before: progress(start + int(now), total, "a timeline"))  # type: ignore[misc]
            on_c = {each.name for each in asked if "c" in each.places}
            for moment in federation.history:
                if moment.at % EVERY:
                    continue
                broken = on_c & set(moment.sic) if moment.at > DIE else set()
                sic = [share for query, share in moment.sic.items() if query not in broken]
                found.setdefault(moment.at, []).append(
                    TimelineRow(
                        moment.at,
                        name,
                        len(moment.sic),
                        jain(sic),
                        float(np.mean(sic)),
                        min(sic),
                        max(sic),
                        len(broken),
                    )
                )
        rows += [_mean(each) for each in found.values()]
    progress(total, total, "done")
    return rows


def _mean(rows: Sequence[TimelineRow]) -> TimelineRow:
    """Of several runs at one time."""
    return replace(
        rows[0],
        jain=float(np.mean([row.jain for row in rows])),
        sic_mean=float(np.mean([row.sic_mean for row in rows])),
        sic_min=min(row.sic_min for row in rows),
        sic_max=max(row.sic_max for row in rows),
    )


def draw(rows: Sequence[TimelineRow], path: Path) -> None:
    chart.curves(
        [
            chart.Panel(
                "Jain's index of SIC" if first else "SIC: least, mean, most",
                "seconds",
                [
                    chart.Curve(
                        name,
                        [
                            (row.x, row.jain) if first else (row.x, row.sic_mean, row.sic_min, row.sic_max)
                            for row in rows
                            if row.algorithm == name
                        ],
                        markers=False,
                    )
                    for name in ALGORITHMS
                ],
                (0.5, 1.01) if first else (0.0, 1.02),
                MARKS,
            )
            for first in (True, False)
        ],
        path,
        title="Queries come and go, a node slows down, a node dies",
        note="three nodes, 24 queries at 1.6 times the capacity; queries whose nodes are all up",
        columns=1,
    )


EXPERIMENT = Experiment("sic-timeline", "SIC as queries and nodes come and go", "DISSP 4.3", 1, measure, draw)
