"""How fast rows arrive: steady against sources that deliver in lumps, and not slow to follow a change."""

from __future__ import annotations

from collections import deque
from statistics import median


class ArrivalRate:
    """Rows per second: the median of the mean over the last `window` seconds and of the last two intervals.

    Many sources deliver in lumps (a file every second, a poll of a partition), so one interval may hold one lump
    more than its length says: a lump too many here is one too few next door, and the mean is right. But what the
    last two intervals both had, more or less than the mean, is believed: a change is not averaged with what was
    before it.

    >>> rate = ArrivalRate(window=2.0)
    >>> for rows in (100, 200, 0, 100):      # lumps of 100 a second, in intervals of a second
    ...     rate.observe(rows, gap=1.0)
    >>> rate.value
    50.0
    >>> for rows in (1000, 800):
    ...     rate.observe(rows, gap=1.0)
    >>> rate.value
    900.0
    >>> for rows in (100, 120):
    ...     rate.observe(rows, gap=1.0)
    >>> rate.value
    110.0
    """

    def __init__(self, window: float) -> None:
        self.window = window
        self._seen: deque[tuple[float, float]] = deque()

    @property
    def value(self) -> float:
        """Rows per second; 0 while nothing is known."""
        seconds = sum(gap for _, gap in self._seen)
        if seconds <= 0:
            return 0.0
        steady = sum(rows for rows, _ in self._seen) / seconds
        if len(self._seen) < 2:
            return steady
        return median((steady, *(rows / gap for rows, gap in list(self._seen)[-2:])))

    def observe(self, rows: float, gap: float) -> None:
        if gap <= 0:
            return
        self._seen.append((rows, gap))
        # At least two intervals, so that there is always one to compare the last with.
        while len(self._seen) > 2 and sum(g for _, g in self._seen) - self._seen[0][1] >= self.window:
            self._seen.popleft()
