"""How fast rows arrive: steady against sources that deliver in lumps, quick to believe a burst."""

from __future__ import annotations

from collections import deque

_BURST = 2.2  # above this many times the steady rate, one interval alone is believed


class ArrivalRate:
    """Rows per second over the last `window` seconds, or of the last intervals if they are a burst.

    Many sources deliver in lumps (a file every second, a poll of a partition), so one interval may
    hold one lump more than its length says: up to twice the true rate. More than that is a burst.
    A lump too many here is one too few next door, so what the last two intervals both had is believed
    as well: a burst is not averaged with the calm before it until that has left the window.

    >>> rate = ArrivalRate(window=2.0)
    >>> for rows in (100, 200, 100, 100):    # lumps of 100 a second, in intervals of a second
    ...     rate.observe(rows, gap=1.0)
    >>> rate.value
    100.0
    >>> rate.observe(1000, gap=1.0)
    >>> rate.value
    1000.0
    >>> rate.observe(800, gap=1.0)
    >>> rate.value
    900.0
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
        if len(self._seen) == 1:
            return steady
        *earlier, (rows, gap) = self._seen
        last = rows / gap
        if last > _BURST * sum(rows for rows, _ in earlier) / sum(gap for _, gap in earlier):
            return last
        before = earlier[-1][0] / earlier[-1][1]
        return max(steady, min(last, before))

    def observe(self, rows: float, gap: float) -> None:
        if gap <= 0:
            return
        self._seen.append((rows, gap))
        # At least two intervals, so that there is always one to compare the last with.
        while len(self._seen) > 2 and sum(g for _, g in self._seen) - self._seen[0][1] >= self.window:
            self._seen.popleft()
