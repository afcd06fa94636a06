"""LSRM 6.3, Figure 11: how much more value the random road map loses than the semantic one, by skew.

The lower value interval of each output has a utility given by Zipf: the more skew, the more outputs have many
rows of little worth, which only the semantic road map can tell from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.experiments import chart, lsrm
from streamshed.experiments.registry import Experiment, Progress, Row, spread
from streamshed.network.generate import Shape, generate

ALGORITHMS = lsrm.QOS_DRIVEN
RATIO = "/".join(ALGORITHMS)
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
) -> list[Row]:
    rows = []
    done, total = 0, len(skew) * len(excess) * runs
    for load in excess:
        series = f"rate {lsrm.mean_rate(load):.2f} (+{load:.0%})"
        for theta in skew:
            found: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
            for run in range(runs):
                progress(done, total, f"+{load:.0%} load, skew {theta}, run {run + 1}")
                network = generate(Shape(excess=load, skew=theta, ranked=True), seed=seed + run)
                values = lsrm.losses(network, ALGORITHMS, seed + run, seconds).values
                for name in ALGORITHMS:
                    found[name].append(values[name])
                done += 1
            rows += [spread(theta, series, name, found[name]) for name in ALGORITHMS]
            rows.append(spread(theta, series, RATIO, lsrm.ratios(*found.values())))
    progress(total, total, "done")
    return rows


def draw(rows: Sequence[Row], path: Path) -> None:
    chart.lines(
        [row for row in rows if row.algorithm == RATIO],
        path,
        title="Random over semantic road map: value utility lost, by skew",
        note="5 queries, 34 filters, 13 unions, 18 inputs; mean of the runs, whiskers from least to most",
        x="skew θ of the utilities",
        y="loss of lsrm-random / loss of lsrm-semantic",
        by=lambda row: row.series,
        log=True,
        reference=1.0,
    )


EXPERIMENT = Experiment("lsrm-skew", "Random over semantic loss by skew", "LSRM Figure 11", 10, measure, draw)
