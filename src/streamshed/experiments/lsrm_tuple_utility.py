"""LSRM 6.1, Figure 9: loss of tuple utility against the input rate, for six algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.experiments import chart, lsrm
from streamshed.experiments.registry import Experiment, Progress, Row, spread
from streamshed.network.generate import Shape, generate

ALGORITHMS = (*lsrm.ADMISSION, *lsrm.QOS_DRIVEN)


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    excess: Sequence[float] = lsrm.EXCESS,
    seconds: float = lsrm.SECONDS,
) -> list[Row]:
    rows = []
    for number, load in enumerate(excess):
        found = []
        for run in range(runs):
            progress(number * runs + run, len(excess) * runs, f"+{load:.0%} load, run {run + 1}")
            network = generate(Shape(excess=load), seed=seed + run)
            found.append(lsrm.losses(network, ALGORITHMS, seed + run, seconds).tuples)
        for name in ALGORITHMS:
            rows.append(spread(lsrm.mean_rate(load), "", name, [losses[name] for losses in found]))
    progress(len(excess) * runs, len(excess) * runs, "done")
    return rows


def draw(rows: Sequence[Row], path: Path) -> None:
    chart.lines(
        rows,
        path,
        title="Tuple utility lost, by input rate",
        note="5 queries, 34 filters, 13 unions, 18 inputs; mean of the runs, whiskers from least to most",
        x="mean rate (rows per unit of time and input), and excess load",
        y="tuple utility lost (%)",
        by=lambda row: row.algorithm,
        ticks=lsrm.rate_tick,
    )


EXPERIMENT = Experiment("lsrm-tuple-utility", "Tuple utility loss by rate", "LSRM Figure 9", 10, measure, draw)
