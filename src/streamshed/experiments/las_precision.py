"""LAS V-B, Figure 8: queuing latency and dropped ratio by the precision ε of the sketches.

The other algorithms do not depend on ε; they stand there for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.experiments import las
from streamshed.experiments.las import Point, QueueRow
from streamshed.experiments.registry import Experiment, Progress
from streamshed.sim.operator_kernel import LasSettings

EPSILON = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
POINTS = tuple(Point(epsilon, settings=LasSettings(epsilon=epsilon)) for epsilon in EPSILON)


def measure(runs: int, seed: int, progress: Progress, *, points: Sequence[Point] = POINTS) -> list[QueueRow]:
    return las.measure(points, runs, seed, progress)


def draw(rows: Sequence[QueueRow], path: Path) -> None:
    las.draw(
        rows,
        path,
        title="Load-aware shedding by the precision of its sketches",
        x="precision ε",
        targets=lambda x: las.THRESHOLD_MS,
        log_x=True,
        ticks=lambda x: f"{x:g}",
    )


EXPERIMENT = Experiment(
    "las-precision", "Queuing latency by the precision of the sketches", "LAS Figure 8", las.RUNS, measure, draw
)
