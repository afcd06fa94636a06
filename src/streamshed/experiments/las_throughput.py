"""LAS V-B, Figure 4: queuing latency and dropped rows by under-provisioning, from 90 % to −10 %."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamshed.experiments import las
from streamshed.experiments.las import Point, QueueRow
from streamshed.experiments.registry import Experiment, Progress
from streamshed.sim.operator_streams import Shape

UNDER_PROVISIONING = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.0, -0.1)
POINTS = tuple(Point(100 * u, Shape(under_provisioning=u)) for u in UNDER_PROVISIONING)


def measure(runs: int, seed: int, progress: Progress, *, points: Sequence[Point] = POINTS) -> list[QueueRow]:
    return las.measure(points, runs, seed, progress)


def draw(rows: Sequence[QueueRow], path: Path) -> None:
    las.draw(
        rows,
        path,
        title="Load-aware shedding by under-provisioning",
        x="under-provisioning (%)",
        targets=lambda x: las.THRESHOLD_MS,
    )


EXPERIMENT = Experiment(
    "las-throughput", "Queuing latency by under-provisioning", "LAS Figure 4", las.RUNS, measure, draw
)
