"""What a node tells of itself once a minute (DISSP 4.3, statistics manager)."""

from __future__ import annotations

from dataclasses import dataclass

STATISTICS_INTERVAL = 60.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """One node over one interval."""

    node: str
    at: float
    """When the interval ended, seconds."""
    sic_mean: float
    """Of the queries with a part on this node, what they have in the end; 1 if there are none."""
    shed: float
    """Tuples dropped per second."""
    throughput: float
    """Tuples worked on per second."""
    latency: float
    """Seconds from when a batch was received until it was done, mean."""
    running: int
    """Subqueries on this node."""
    connected: int
    """Those of them whose links all lead to nodes that are up: fewer than `running` means broken queries."""
