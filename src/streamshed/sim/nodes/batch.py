"""Batches: what goes between operators, and what is kept or shed as a whole (DISSP 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

from streamshed.quality.source_time_window import Mass
from streamshed.sim.network.rows import Rows


@dataclass(slots=True)
class Batch:
    """Rows on their way to a box or an output, with the information that went into them.

    A filter may leave no rows: then the batch is empty, and carries its information all the same.
    """

    query: int
    to: str
    side: int
    """Which of the box's inputs it came along."""
    rows: Rows
    mass: Mass
    """Rows of the sources that went into it, by source and slide."""
    sic: float
    """The same as one number, counted where the rows were sent."""
    sent: float
    """When the newest of its sources' rows was sent."""
    received: float = 0.0
    """When it came to the node."""

    @property
    def tuples(self) -> int:
        return len(self.rows)
