"""What the Load-Aware Shedding experiments share: points, runs, rows and their picture (LAS V-A).

A point is run on 100 associations of keys and costs, each with as many seeds as the number of runs allows: run k
has association k mod 100. All algorithms of a run see the same rows. LAS starts warm (after a warm-up that is not
measured, long enough for the first matrices and a synchronisation) and cold; the others have nothing to learn, so
their two starts are the same.

`las` asks with every 16th row let in. `las-letter` is the
paper's listing to the letter, asking after new matrices only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import StreamshedError
from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, Progress
from streamshed.las.check import average
from streamshed.las.settings import RESYNC, LasSettings
from streamshed.sim.operator.kernel import run_known, run_las, run_random
from streamshed.sim.operator.streams import (
    MILLISECOND,
    Association,
    Floats,
    StreamShape,
    TimedRows,
    stream,
    warm_up,
)
from streamshed.sketch.hashing import CarterWegman

ALGORITHMS = ("las", "las-letter", "straw-man", "base-line", "full-knowledge")
STARTS = ("warm", "cold")
ASSOCIATIONS = 100
RUNS = 500
THRESHOLD_MS = 6.4
_WARM_UP_ROWS = (1 << 15, 1 << 17, 1 << 19)
"""Tried in this order until LAS is warm; the first nearly always does."""

Key = tuple[str, str]
"""Algorithm and start."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One point of one algorithm, over all runs: mean queuing latencies in milliseconds, shares of rows."""

    x: float
    algorithm: str
    start: str
    queue_ms_mean: float | None
    queue_ms_min: float | None
    queue_ms_max: float | None
    """None where no run kept a row."""
    dropped_mean: float
    shedding_ratio: float | None
    """λ: dropped beyond what Base Line drops, as a share of that; none where Base Line drops nothing."""
    completion_ms_mean: float | None
    """Mean completion latency: what rows waited, and what they took. None where no run kept a row."""


@dataclass(frozen=True, slots=True)
class Point:
    """One x of a figure."""

    x: float
    shape: StreamShape = field(default_factory=StreamShape)
    settings: LasSettings = field(default_factory=LasSettings)
    threshold_ms: float = THRESHOLD_MS


def measure(points: Sequence[Point], runs: int, seed: int, progress: Progress) -> list[QueueRow]:
    """All algorithms at each point; runs of the same number share their random numbers at all points."""
    rows: list[QueueRow] = []
    for number, point in enumerate(points):
        waits: dict[Key, list[float]] = {}
        dropped: dict[Key, list[float]] = {}
        completions: dict[Key, list[float]] = {}
        for run in range(runs):
            progress(number * runs + run, len(points) * runs, f"x = {point.x:g}, run {run + 1}")
            arriving, found_by = one_run(point, seed, run)
            for key, found in found_by.items():
                kept = found >= 0
                waits.setdefault(key, []).append(float(found[kept].mean()) / MILLISECOND)
                dropped.setdefault(key, []).append(1 - float(kept.mean()))
                done = arriving.completions(found)[kept]
                completions.setdefault(key, []).append(float(done.mean()) / MILLISECOND)
        rows += [
            _row(point.x, key, waits[key], dropped[key], dropped["base-line", key[1]], completions[key])
            for key in waits
        ]
    progress(len(points) * runs, len(points) * runs, "done")
    return rows


def one_run(point: Point, seed: int, run: int) -> tuple[TimedRows, Mapping[Key, Floats]]:
    """The rows, and their waits under every algorithm and start."""
    association = Association.draw(point.shape, seeded(seed, 0, run % ASSOCIATIONS))
    rng = np.random.default_rng(seeded(seed, 1, run))
    rows = stream(point.shape, association, rng)
    coins = rng.random(len(rows)) < point.shape.under_provisioning
    threshold = point.threshold_ms * MILLISECOND
    found: dict[Key, Floats] = {}
    for name, settings in variants(point.settings).items():
        both = las_both(rows, threshold, settings, point.shape, association, seeded(seed, 2, run))
        found |= {(name, start): waits for start, waits in zip(STARTS, both, strict=True)}
    others = {
        "straw-man": run_known(rows, average(threshold), np.full(len(rows), rows.costs.mean())),
        "base-line": run_random(rows, coins),
        "full-knowledge": run_known(rows, average(threshold), rows.costs.astype(np.float64)),
    }
    return rows, found | {(name, start): waits for name, waits in others.items() for start in STARTS}


def variants(settings: LasSettings | None = None) -> dict[str, LasSettings]:
    """LAS as it is used, and to the letter of the paper."""
    settings = settings or LasSettings()
    return {"las": replace(settings, resync=RESYNC), "las-letter": settings}


def las_both(
    rows: TimedRows,
    threshold: float,
    settings: LasSettings,
    shape: StreamShape,
    association: Association,
    seed: NDArray[np.uint32],
) -> tuple[Floats, Floats]:
    """LAS after a warm-up, and without one, with the same hashes."""
    rng = np.random.default_rng(seed)
    hashes = CarterWegman.draw(settings.size.rows, settings.size.columns, rng)
    cold = run_las(rows, average(threshold), hashes, settings).waits
    for count in _WARM_UP_ROWS:
        first = warm_up(shape, association, rng, count)
        learned = run_las(rows, average(threshold), hashes, settings, first)
        if learned.warm:
            return learned.waits, cold
    raise StreamshedError(
        "the matrices never became stable",
        got=f"{_WARM_UP_ROWS[-1]} rows of warm-up, {settings}",
        hint="a larger tolerance or window",
    )


def seeded(seed: int, purpose: int, number: int) -> NDArray[np.uint32]:
    """Seeds of different purposes and runs never meet."""
    return np.random.SeedSequence([seed, purpose, number]).generate_state(4).astype(np.uint32)


def _row(
    x: float,
    key: Key,
    waits: Sequence[float],
    dropped: Sequence[float],
    base: Sequence[float],
    completions: Sequence[float],
) -> QueueRow:
    ratio = float(np.mean([(d - b) / b for d, b in zip(dropped, base, strict=True)])) if min(base) > 0 else None
    spread = float(np.mean(waits)), min(waits), max(waits)
    return QueueRow(x, *key, *spread, float(np.mean(dropped)), ratio, float(np.mean(completions)))


def name_of(row: QueueRow) -> str | None:
    """How a row is called in a picture; nothing for rows that would be drawn twice."""
    if row.start == "warm":
        return row.algorithm
    return "las (cold)" if row.algorithm == "las" else None


def draw(
    rows: Sequence[QueueRow],
    path: Path,
    *,
    title: str,
    x: str,
    note: str = "",
    targets: Callable[[float], float] | None = None,
    log_x: bool = False,
    ticks: Callable[[float], str] | None = None,
) -> None:
    """Three panels: queuing latency with whiskers to the least and most run, dropped ratio, shedding ratio."""
    chart.panels(
        named(rows),
        path,
        title=title,
        note=note or "mean of all runs; whiskers from the least run to the most",
        x=x,
        columns=COLUMNS,
        reference=targets,
        log_x=log_x,
        ticks=ticks,
    )


def named(rows: Sequence[QueueRow]) -> list[tuple[str, list[QueueRow]]]:
    """The lines of a picture, in the order of the legend."""
    order = ("base-line", "straw-man", "las (cold)", "las-letter", "las", "full-knowledge")
    groups = ((name, [row for row in rows if name_of(row) == name]) for name in order)
    return [(name, group) for name, group in groups if group]


def _waits(row: QueueRow) -> chart.Spread | None:
    if row.queue_ms_mean is None or row.queue_ms_min is None or row.queue_ms_max is None:
        return None
    return row.queue_ms_mean, row.queue_ms_min, row.queue_ms_max


def _dropped(row: QueueRow) -> chart.Spread:
    return row.dropped_mean, row.dropped_mean, row.dropped_mean


def _ratio(row: QueueRow) -> chart.Spread | None:
    ratio = row.shedding_ratio
    return None if ratio is None else (ratio, ratio, ratio)


COLUMNS: Sequence[tuple[str, Callable[[Any], chart.Spread | None]]] = (
    ("queuing latency (ms)", _waits),
    ("dropped ratio α", _dropped),
    ("shedding ratio λ, to Base Line", _ratio),
)


def sweep(
    name: str,
    title: str,
    figure: str,
    points: Sequence[Point],
    *,
    heading: str,
    x: str,
    target: Callable[[float], float] = lambda x: THRESHOLD_MS,
    log_x: bool = False,
) -> Experiment:
    """A figure of V-B: all algorithms at points along one parameter. `target` is the threshold at a point."""
    return Experiment(
        name,
        title,
        figure,
        RUNS,
        partial(measure, points),
        partial(
            draw, title=heading, x=x, targets=target, log_x=log_x, ticks=(lambda x: f"{x:g}") if log_x else None
        ),
    )
