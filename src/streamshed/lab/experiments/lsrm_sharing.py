"""LSRM 6.4, Figure 12: twenty queries that share a box; Input-Uniform's loss over the random road map's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from streamshed.lab.experiments import chart, lsrm
from streamshed.lab.experiments.registry import Experiment, FigureRow, Progress
from streamshed.network.generate import generate_sharing
from streamshed.network.graph import Network

ALGORITHMS = ("input-uniform", "lsrm-random")
RATIO = lsrm.ratio_of(ALGORITHMS)
SKEW = (0.0, 1.0, 2.0)
QUERIES = 20


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    skew: Sequence[float] = SKEW,
    excess: Sequence[float] = lsrm.EXCESS,
    seconds: float = lsrm.SECONDS,
    queries: int = QUERIES,
) -> list[FigureRow]:
    points = [
        lsrm.LoadPoint(round(100 * load), f"skew θ = {theta:g}", load, partial(_network, queries, theta, load))
        for load in excess
        for theta in skew
    ]
    return lsrm.measure(
        points,
        ALGORITHMS,
        lambda lost: lost.tuples,
        runs=runs,
        seed=seed,
        seconds=seconds,
        progress=progress,
        ratio=True,
    )


def _network(queries: int, skew: float, excess: float, seed: int) -> Network:
    return generate_sharing(queries, seed=seed, skew=skew, excess=excess)


def draw(rows: Sequence[FigureRow], path: Path) -> None:
    chart.bars(
        [row for row in rows if row.algorithm == RATIO],
        path,
        chart.Labels(
            title="All queries share: tuple utility lost, Input-Uniform over road map",
            x="excess load",
            y="loss of input-uniform / loss of lsrm-random",
            note=f"{QUERIES} queries behind one common box; mean of the runs, whiskers from least to most",
        ),
        by=lambda row: row.series,
        ticks=lambda excess: f"+{excess:g} %",
        reference=1.0,
    )


EXPERIMENT = Experiment(
    "lsrm-sharing", "Input-Uniform over road map when all share", "LSRM Figure 12", 10, measure, draw
)
