"""LSRM 6.2, Figure 10: loss of value utility against the input rate, for six algorithms.

Value utility is measured: what the values of the rows that were delivered are worth to their outputs, over
what the values of all rows would have been worth.
"""

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
            found.append(lsrm.losses(network, ALGORITHMS, seed + run, seconds).values)
        for name in ALGORITHMS:
            rows.append(spread(lsrm.mean_rate(load), "", name, [losses[name] for losses in found]))
    progress(len(excess) * runs, len(excess) * runs, "done")
    return rows


def draw(rows: Sequence[Row], path: Path) -> None:
    chart.lines(
        rows,
        path,
        title="Value utility lost, by input rate",
        note="5 queries, 34 filters, 13 unions, 18 inputs; mean of the runs, whiskers from least to most",
        x="mean rate (rows per unit of time and input), and excess load",
        y="value utility lost (%)",
        by=lambda row: row.algorithm,
        ticks=lsrm.rate_tick,
    )


EXPERIMENT = Experiment("lsrm-value-utility", "Value utility loss by rate", "LSRM Figure 10", 10, measure, draw)
