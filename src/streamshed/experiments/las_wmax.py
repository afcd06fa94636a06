"""LAS V-B, Figure 6: queuing latency and shedding ratio by the highest cost, with τ equal to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.experiments import las
from streamshed.experiments.las import Point, QueueRow
from streamshed.experiments.registry import Experiment, Progress
from streamshed.sim.operator_streams import Shape

MOST_MS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2)
POINTS = tuple(Point(most, Shape(most_ms=most), threshold_ms=most) for most in MOST_MS)


def measure(runs: int, seed: int, progress: Progress, *, points: Sequence[Point] = POINTS) -> list[QueueRow]:
    return las.measure(points, runs, seed, progress)


def draw(rows: Sequence[QueueRow], path: Path) -> None:
    las.draw(
        rows,
        path,
        title="Load-aware shedding by the highest cost",
        x="highest cost = τ (ms)",
        targets=lambda x: x,
        log_x=True,
        ticks=lambda x: f"{x:g}",
    )


EXPERIMENT = Experiment("las-wmax", "Queuing latency by the highest cost", "LAS Figure 6", las.RUNS, measure, draw)
