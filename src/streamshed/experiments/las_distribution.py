"""LAS V-B, Figure 7: queuing latency and shedding ratio by the skew of the keys, from uniform to Zipf-3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.experiments import las
from streamshed.experiments.las import Point, QueueRow
from streamshed.experiments.registry import Experiment, Progress
from streamshed.sim.operator_streams import Shape

SKEW = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
POINTS = tuple(Point(skew, Shape(skew=skew)) for skew in SKEW)


def measure(runs: int, seed: int, progress: Progress, *, points: Sequence[Point] = POINTS) -> list[QueueRow]:
    return las.measure(points, runs, seed, progress)


def draw(rows: Sequence[QueueRow], path: Path) -> None:
    las.draw(
        rows,
        path,
        title="Load-aware shedding by the skew of the keys",
        x="skew α of the keys (Zipf; 0 is uniform)",
        targets=lambda x: las.THRESHOLD_MS,
    )


EXPERIMENT = Experiment(
    "las-distribution", "Queuing latency by the skew of the keys", "LAS Figure 7", las.RUNS, measure, draw
)
