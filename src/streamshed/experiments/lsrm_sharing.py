"""LSRM 6.4, Figure 12: twenty queries that share a box; Input-Uniform's loss over the random road map's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.experiments import chart, lsrm
from streamshed.experiments.registry import Experiment, Progress, Row, spread
from streamshed.network.generate import generate_sharing

ALGORITHMS = ("input-uniform", "lsrm-random")
RATIO = "/".join(ALGORITHMS)
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
) -> list[Row]:
    rows = []
    done, total = 0, len(skew) * len(excess) * runs
    for load in excess:
        for theta in skew:
            found: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
            for run in range(runs):
                progress(done, total, f"+{load:.0%} load, skew {theta}, run {run + 1}")
                network = generate_sharing(queries, seed=seed + run, skew=theta, excess=load)
                tuples = lsrm.losses(network, ALGORITHMS, seed + run, seconds).tuples
                for name in ALGORITHMS:
                    found[name].append(tuples[name])
                done += 1
            series = f"skew θ = {theta:g}"
            rows += [spread(round(100 * load), series, name, found[name]) for name in ALGORITHMS]
            rows.append(spread(round(100 * load), series, RATIO, lsrm.ratios(*found.values())))
    progress(total, total, "done")
    return rows


def draw(rows: Sequence[Row], path: Path) -> None:
    chart.bars(
        [row for row in rows if row.algorithm == RATIO],
        path,
        title="All queries share: tuple utility lost, Input-Uniform over road map",
        note=f"{QUERIES} queries behind one common box; mean of the runs, whiskers from least to most",
        x="excess load",
        y="loss of input-uniform / loss of lsrm-random",
        by=lambda row: row.series,
        ticks=lambda excess: f"+{excess:g} %",
        reference=1.0,
    )


EXPERIMENT = Experiment(
    "lsrm-sharing", "Input-Uniform over road map when all share", "LSRM Figure 12", 10, measure, draw
)
