"""LAS V-B, Figure 7: queuing latency and shedding ratio by the skew of the keys, from uniform to Zipf-3."""

from __future__ import annotations

from streamshed.lab.experiments import las
from streamshed.lab.experiments.las import Point
from streamshed.sim.operator.streams import StreamShape

SKEW = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
POINTS = tuple(Point(skew, StreamShape(skew=skew)) for skew in SKEW)

EXPERIMENT = las.sweep(
    "las-distribution",
    "Queuing latency by the skew of the keys",
    "LAS Figure 7",
    POINTS,
    heading="Load-aware shedding by the skew of the keys",
    x="skew α of the keys (Zipf; 0 is uniform)",
)
