"""LSRM 6.1 and 6.2, Figures 9 and 10: loss of utility against the input rate, for six algorithms.

Figure 9 is of tuple utility: the loss graph at the share that was delivered. Figure 10 is of value utility,
and measured: what the values of the delivered rows are worth to their outputs, over what the values of all
rows would have been worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from streamshed.lab.experiments import chart, lsrm
from streamshed.lab.experiments.registry import Experiment, FigureRow, Progress
from streamshed.network.generate import NetworkShape

ALGORITHMS = (*lsrm.ADMISSION, *lsrm.QOS_DRIVEN)
Utility = Callable[[lsrm.Losses], Mapping[str, float]]


def measure(
    utility: Utility,
    runs: int,
    seed: int,
    progress: Progress,
    *,
    excess: Sequence[float] = lsrm.EXCESS,
    seconds: float = lsrm.SECONDS,
) -> list[FigureRow]:
    points = [
        lsrm.LoadPoint(lsrm.mean_rate(load), "", load, lsrm.generated(NetworkShape(excess=load)))
        for load in excess
    ]
    return lsrm.measure(points, ALGORITHMS, utility, runs=runs, seed=seed, seconds=seconds, progress=progress)


def draw(kind: str, rows: Sequence[FigureRow], path: Path) -> None:
    chart.lines(
        rows,
        path,
        chart.Labels(
            title=f"{kind.capitalize()} utility lost, by input rate",
            x="mean rate (rows per unit of time and input), and excess load",
            y=f"{kind} utility lost (%)",
            note=lsrm.NOTE,
        ),
        by=lambda row: row.algorithm,
        ticks=lsrm.rate_tick,
    )


def _experiment(kind: str, figure: str, utility: Utility) -> Experiment:
    title = f"{kind.capitalize()} utility loss by rate"
    return Experiment(f"lsrm-{kind}-utility", title, figure, 10, partial(measure, utility), partial(draw, kind))


TUPLE_UTILITY = _experiment("tuple", "LSRM Figure 9", lambda lost: lost.tuples)
VALUE_UTILITY = _experiment("value", "LSRM Figure 10", lambda lost: lost.values)
