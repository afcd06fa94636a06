"""What comes behind the drop: shuffle, state, sink, commit. How long does it take for so many rows?"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

_REMEMBERED = 30  # intervals
_LARGER = 2.0  # an interval with so many times the usual rows tells what a row costs behind the drop
_FADING = 0.995  # the largest is as much smaller after each interval, so that another can take its place
_BEYOND = 1.5  # times the most rows that were seen to pass: nobody knows what is further on


class TailTime:
    """t = t₀ + t₁·max(0, kept − k₀): the usual time t₀ for the usual number k₀, and more for larger intervals.

    Medians, since a sink that sleeps once is no slow sink; and t₁ from the largest interval alone, since of
    intervals all of one size nobody can tell what is fixed and what is owed to rows.

    >>> tails = TailTime()
    >>> for kept, tail in ((100, 0.2), (110, 0.2), (90, 3.0), (100, 0.2), (1000, 1.1)):
    ...     tails.observe(tail, kept)
    >>> f"{tails.predict(0):.2f} {tails.predict(500):.2f} {tails.predict(1500):.2f}"
    '0.20 0.60 1.60'
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)
        self._largest = (0.0, 0.0)

    def observe(self, tail: float, kept: float) -> None:
        if tail > 0 and kept > 0:
            self._seen.append((kept, tail))
            self._largest = max((_FADING * self._largest[0], self._largest[1]), (kept, tail))

    def predict(self, kept: float) -> float:
        """Seconds; 0 while nothing is known."""
        if not self._seen:
            return 0.0
        usual = median(rows for rows, _ in self._seen)
        at_least = median(tail for rows, tail in self._seen if rows <= usual)
        most, longest = self._largest
        if most < _LARGER * usual:
            return at_least
        a_row = max(0.0, longest - at_least) / (most - usual)
        return at_least + a_row * max(0.0, min(kept, _BEYOND * most) - usual)

    def remember(self) -> dict[str, Any]:
        return {"seen": [list(pair) for pair in self._seen], "largest": list(self._largest)}

    def recall(self, learned: Mapping[str, Any]) -> None:
        *pairs, largest = [(float(kept), float(tail)) for kept, tail in (*learned["seen"], learned["largest"])]
        if not all(0.0 <= number < math.inf for pair in (*pairs, largest) for number in pair):
            raise ValueError("no times")
        self._seen.extend(pairs)
        self._largest = largest
