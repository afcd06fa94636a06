"""LAS V-B, Figure 5: queuing latency and shedding ratio by the threshold τ.

The paper also has τ = 0, which lets in no row that would wait at all; a threshold must be above 0 here.
"""

from __future__ import annotations

from streamshed.lab.experiments import las
from streamshed.lab.experiments.las import Point

THRESHOLDS_MS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
POINTS = tuple(Point(tau, threshold_ms=tau) for tau in THRESHOLDS_MS)

EXPERIMENT = las.sweep(
    "las-threshold",
    "Queuing latency by the threshold",
    "LAS Figure 5",
    POINTS,
    heading="Load-aware shedding by the threshold",
    x="threshold τ (ms)",
    target=lambda x: x,
    log_x=True,
)
