"""Virtual time: actions in the order of their times, and of equal times in the order in which they were asked
for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Events:
    """The clock of a simulation.

    >>> events, seen = Events(), []
    >>> events.at(2.0, lambda: seen.append("late"))
    >>> events.at(1.0, lambda: events.at(2.0, lambda: seen.append("later still")))
    >>> events.run(until=3.0)
    >>> seen, events.now
    (['late', 'later still'], 3.0)
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = count()

    def at(self, time: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._waiting, (max(time, self.now), next(self._serial), action))

    def run(self, until: float) -> None:
        """All that is to happen before a time, or at it."""
        while self._waiting and self._waiting[0][0] <= until:
            self.now, _, action = heapq.heappop(self._waiting)
            action()
        self.now = until
