"""LAS V-B, Figure 5: queuing latency and shedding ratio by the threshold τ.

The paper also has τ = 0, which lets in no row that would wait at all; a threshold must be above 0 here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.experiments import las
from streamshed.experiments.las import Point, QueueRow
from streamshed.experiments.registry import Experiment, Progress

THRESHOLDS_MS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
POINTS = tuple(Point(tau, threshold_ms=tau) for tau in THRESHOLDS_MS)


def measure(runs: int, seed: int, progress: Progress, *, points: Sequence[Point] = POINTS) -> list[QueueRow]:
    return las.measure(points, runs, seed, progress)


def draw(rows: Sequence[QueueRow], path: Path) -> None:
    las.draw(
        rows,
        path,
        title="Load-aware shedding by the threshold",
        x="threshold τ (ms)",
        targets=lambda x: x,
        log_x=True,
        ticks=lambda x: f"{x:g}",
    )


EXPERIMENT = Experiment(
    "las-threshold", "Queuing latency by the threshold", "LAS Figure 5", las.RUNS, measure, draw
)
