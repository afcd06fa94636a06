"""LAS V-B, Figure 8: queuing latency and dropped ratio by the precision ε of the sketches.

The other algorithms do not depend on ε; they stand there for comparison.
"""

from __future__ import annotations

from streamshed.lab.experiments import las
from streamshed.lab.experiments.las import Point
from streamshed.las.settings import LasSettings

EPSILON = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
POINTS = tuple(Point(epsilon, settings=LasSettings(epsilon=epsilon)) for epsilon in EPSILON)

EXPERIMENT = las.sweep(
    "las-precision",
    "Queuing latency by the precision of the sketches",
    "LAS Figure 8",
    POINTS,
    heading="Load-aware shedding by the precision of its sketches",
    x="precision ε",
    log_x=True,
)
