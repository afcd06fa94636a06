"""How fast rows arrive: steady against sources that deliver in lumps, quick to believe a burst."""

from __future__ import annotations

from collections import deque

_BURST = 2.2  # above this many times the steady rate, one interval alone is believed


class ArrivalRate:
    """Rows per second over the last `window` seconds, or of the last interval if that is a burst.

    Many sources deliver in lumps (a file every second, a poll of a partition), so one interval may
    hold one lump more than its length says: up to twice the true rate. More than that is a burst.

    >>> rate = ArrivalRate(window=2.0)
    >>> for rows in (100, 200, 100, 100):    # lumps of 100 a second, in intervals of a second
    ...     rate.observe(rows, gap=1.0)
    >>> rate.value
    100.0
    >>> rate.observe(1000, gap=1.0)
    >>> rate.value
    1000.0
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
        earlier_seconds = seconds - self._seen[-1][1]
        if earlier_seconds <= 0:
            return steady
        earlier = (sum(rows for rows, _ in self._seen) - self._seen[-1][0]) / earlier_seconds
        last = self._seen[-1][0] / self._seen[-1][1]
        return last if last > _BURST * earlier else steady

    def observe(self, rows: float, gap: float) -> None:
        if gap <= 0:
            return
        self._seen.append((rows, gap))
        # At least two intervals, so that there is always one to compare the last with.
        while len(self._seen) > 2 and sum(g for _, g in self._seen) - self._seen[0][1] >= self.window:
            self._seen.popleft()
