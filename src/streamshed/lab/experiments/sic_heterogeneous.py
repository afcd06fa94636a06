"""Light and heavy queries together: what each kind keeps, by how much heavier the heavy ones are.

One node at twice its capacity; of 40 queries half are light (20 tuples a second from each source) and half are
heavy, by the factor on the x axis. What must come out: with `fair` both keep half; `random` keeps half of both on
average, but single light queries fall far from it; `input-uniform`, which takes the same from each, leaves light
queries nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, Progress
from streamshed.lab.experiments.sic import ALGORITHMS, SECONDS, SETTLED, read
from streamshed.lab.experiments.sic_queries import mixed
from streamshed.sim.nodes.deployment import FederationSettings

FACTORS = (1.0, 2.0, 5.0, 10.0, 20.0)
QUERIES = 40
OVERLOAD = 2.0
LIGHT = 20.0


@dataclass(frozen=True, slots=True)
class WeightRow:
    x: float
    """How much heavier the heavy queries are."""
    algorithm: str
    jain: float
    sic_mean: float
    sic_min: float
    sic_max: float
    sic_light: float
    sic_heavy: float
    throughput: float


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    factors: Sequence[float] = FACTORS,
    queries: int = QUERIES,
    seconds: float = SECONDS,
    settled: float = SETTLED,
) -> list[WeightRow]:
    rows = []
    cases = [(factor, name) for factor in factors for name in ALGORITHMS]
    for number, (factor, name) in enumerate(cases):
        found = []
        for run in range(runs):
            progress(number * runs + run, len(cases) * runs, f"{factor:g} times as heavy, {name}")
            rates = [LIGHT if each < queries // 2 else LIGHT * factor for each in range(queries)]
            asked = mixed(queries, ["node"], OVERLOAD, seed + run, exact=rates, costs=(1.0, 1.0))
            settings = FederationSettings(shedder=name, seed=seed + run)
            found.append(read(["node"], asked, settings, seconds=seconds, settled=settled))
        light, heavy = (
            float(np.mean([sic for each in found for sic in [*each.by_query.values()][half]]))
            for half in (slice(queries // 2), slice(queries // 2, None))
        )
        rows.append(
            WeightRow(
                factor,
                name,
                float(np.mean([each.jain for each in found])),
                float(np.mean([each.sic_mean for each in found])),
                min(each.sic_min for each in found),
                max(each.sic_max for each in found),
                light,
                heavy,
                float(np.mean([each.throughput for each in found])),
            )
        )
    progress(len(cases) * runs, len(cases) * runs, "done")
    return rows


def draw(rows: Sequence[WeightRow], path: Path) -> None:
    def curves(pick: str) -> list[chart.Curve]:
        return [
            chart.Curve(name, [(row.x, getattr(row, pick)) for row in rows if row.algorithm == name])
            for name in ALGORITHMS
        ]

    x = "how much heavier the heavy queries are"
    chart.curves(
        [
            chart.Panel("Jain's index of SIC", x, curves("jain"), (0.0, 1.02)),
            chart.Panel("SIC of light queries", x, curves("sic_light"), (0.0, 1.02)),
            chart.Panel("SIC of heavy queries", x, curves("sic_heavy"), (0.0, 1.02)),
        ],
        path,
        title="Light and heavy queries on one node, at twice its capacity",
        note="20 light and 20 heavy queries; mean of the runs, over 20 s after settling",
        columns=3,
    )


EXPERIMENT = Experiment("sic-heterogeneous", "Light and heavy queries", "DISSP 5.1", 2, measure, draw)
