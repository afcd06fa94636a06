"""How fast rows arrive, where they arrive one by one and not in lumps: the simulator's estimate."""

from __future__ import annotations

_SURPRISE = 4.0
"""A count this many standard deviations (of a Poisson count) off the estimate means that the rate changed."""


class SteadyRate:
    """The mean rate since it last changed: steady while it is steady, and new at once when it jumps.

    >>> estimate = SteadyRate()
    >>> for count in (100, 110, 90, 400, 404):
    ...     estimate.observe(count, 1.0)
    ...     print(estimate.value)
    100.0
    105.0
    100.0
    400.0
    402.0
    """

    def __init__(self) -> None:
        self._rows = 0.0
        self._seconds = 0.0

    @property
    def value(self) -> float:
        """Rows per second; 0 while nothing is known."""
        return self._rows / self._seconds if self._seconds > 0 else 0.0

    def observe(self, rows: float, gap: float) -> None:
        if self._seconds > 0:
            expected = self.value * gap
            noise = max(expected, 1.0) * (1 + gap / self._seconds)
            if abs(rows - expected) > _SURPRISE * noise**0.5:
                self._rows = self._seconds = 0.0
        self._rows += rows
        self._seconds += gap
