"""LAS V-B, Figure 4: queuing latency and dropped rows by under-provisioning, from 90 % to −10 %."""

from __future__ import annotations

from streamshed.lab.experiments import las
from streamshed.lab.experiments.las import Point
from streamshed.sim.operator.streams import StreamShape

UNDER_PROVISIONING = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.0, -0.1)
POINTS = tuple(Point(100 * u, StreamShape(under_provisioning=u)) for u in UNDER_PROVISIONING)

EXPERIMENT = las.sweep(
    "las-throughput",
    "Queuing latency by under-provisioning",
    "LAS Figure 4",
    POINTS,
    heading="Load-aware shedding by under-provisioning",
    x="under-provisioning (%)",
)
