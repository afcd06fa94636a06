"""LAS V-B, Figure 6: queuing latency and shedding ratio by the highest cost, with τ equal to it."""

from __future__ import annotations

from streamshed.lab.experiments import las
from streamshed.lab.experiments.las import Point
from streamshed.sim.operator.streams import StreamShape

MOST_MS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2)
POINTS = tuple(Point(most, StreamShape(most_ms=most), threshold_ms=most) for most in MOST_MS)

EXPERIMENT = las.sweep(
    "las-wmax",
    "Queuing latency by the highest cost",
    "LAS Figure 6",
    POINTS,
    heading="Load-aware shedding by the highest cost",
    x="highest cost = τ (ms)",
    target=lambda x: x,
    log_x=True,
)
