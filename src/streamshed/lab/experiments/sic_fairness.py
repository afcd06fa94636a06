"""How fair shedding is: Jain's index and the spread of SIC, by overload, for 10 to 200 queries of mixed weight.

One node. Averages, maxima, counts, top-k and joins, of 10 to 200 tuples a second from each source and costs that
differ by four. What must come out, written before the first run: Jain's index of `fair` at least 0.99 everywhere,
that of `random` clearly lower, that of `input-uniform` lower still, and throughput within a hundredth of `random`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, Progress
from streamshed.lab.experiments.sic import ALGORITHMS, SECONDS, SETTLED, Reading, read
from streamshed.lab.experiments.sic_queries import mixed
from streamshed.sim.nodes.deployment import FederationSettings

OVERLOAD = (1.2, 1.5, 2.0, 3.0, 4.0, 5.0)
QUERIES = (10, 50, 200)


@dataclass(frozen=True, slots=True)
class FairnessRow:
    x: float
    """Load over capacity."""
    queries: int
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
    overload: Sequence[float] = OVERLOAD,
    queries: Sequence[int] = QUERIES,
    seconds: float = SECONDS,
    settled: float = SETTLED,
) -> list[FairnessRow]:
    rows = []
    cases = [(count, load, name) for count in queries for load in overload for name in ALGORITHMS]
    for number, (count, load, name) in enumerate(cases):
        readings = []
        for run in range(runs):
            progress(number * runs + run, len(cases) * runs, f"{count} queries, {load:g} times the load, {name}")
            asked = mixed(count, ["node"], load, seed + run)
            settings = FederationSettings(shedder=name, seed=seed + run)
            readings.append(read(["node"], asked, settings, seconds=seconds, settled=settled))
        found = Reading.mean(readings)
        rows.append(
            FairnessRow(
                load, count, name, found.jain, found.sic_mean, found.sic_min, found.sic_max, found.throughput
            )
        )
    progress(len(cases) * runs, len(cases) * runs, "done")
    return rows


def draw(rows: Sequence[FairnessRow], path: Path) -> None:
    counts = sorted({row.queries for row in rows})
    chart.curves(
        [
            chart.Panel(
                f"Jain's index of SIC, {count} queries" if first else f"SIC, {count} queries: least, mean, most",
                "load over capacity",
                [
                    chart.Curve(
                        name,
                        [
                            (row.x, row.jain) if first else (row.x, row.sic_mean, row.sic_min, row.sic_max)
                            for row in rows
                            if row.queries == count and row.algorithm == name
                        ],
                    )
                    for name in ALGORITHMS
                ],
                (0.0, 1.02),
            )
            for first in (True, False)
            for count in counts
        ],
        path,
        title="Fair shedding: every query keeps the same share of its information",
        note="one node, queries of mixed weight; mean of the runs, over 20 s after settling",
        columns=len(counts),
    )


EXPERIMENT = Experiment(
    "sic-fairness", "Jain's index and spread of SIC by overload", "DISSP 5.3", 3, measure, draw
)
