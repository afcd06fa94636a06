"""LSRM 6.3, Figure 11: how much more value the random road map loses than the semantic one, by skew.

The lower value interval of each output has a utility given by Zipf: the more skew, the more outputs have many
rows of little worth, which only the semantic road map can tell from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.lab.experiments import chart, lsrm
from streamshed.lab.experiments.registry import Experiment, FigureRow, Progress
from streamshed.network.generate import NetworkShape

ALGORITHMS = lsrm.QOS_DRIVEN
RATIO = lsrm.ratio_of(ALGORITHMS)
SKEW = (0.0, 0.5, 1.0, 1.5, 2.0)
EXCESS = (0.5, 1.0, 2.0, 3.07)


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    skew: Sequence[float] = SKEW,
    excess: Sequence[float] = EXCESS,
    seconds: float = lsrm.SECONDS,
) -> list[FigureRow]:
    points = [
        lsrm.LoadPoint(
            theta,
            f"rate {lsrm.mean_rate(load):.2f} (+{load:.0%})",
            load,
            lsrm.generated(NetworkShape(excess=load, skew=theta, ranked=True)),
        )
        for load in excess
        for theta in skew
    ]
    return lsrm.measure(
        points,
        ALGORITHMS,
        lambda lost: lost.values,
        runs=runs,
        seed=seed,
        seconds=seconds,
        progress=progress,
        ratio=True,
    )


def draw(rows: Sequence[FigureRow], path: Path) -> None:
    chart.lines(
        [row for row in rows if row.algorithm == RATIO],
        path,
        chart.Labels(
            title="Random over semantic road map: value utility lost, by skew",
            x="skew θ of the utilities",
            y="loss of lsrm-random / loss of lsrm-semantic",
            note=lsrm.NOTE,
        ),
        by=lambda row: row.series,
        log=True,
        reference=1.0,
    )


EXPERIMENT = Experiment("lsrm-skew", "Random over semantic loss by skew", "LSRM Figure 11", 10, measure, draw)
