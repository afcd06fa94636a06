"""What comes behind the drop: shuffle, state, sink, commit. How long does it take for so many rows?"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any

_EACH = 7  # intervals of a size that are remembered
_LONG_AGO = 300  # intervals after which a size that did not come again is forgotten
_FAR = 2.0  # times the rows: then two intervals tell what is owed to them
_BEYOND = 1.5  # times the most rows that were seen to pass: nobody knows what is further on


class TailTime:
    """A line through what intervals of each size took: sizes go by powers of two, and each has its medians.

    Medians, since a sink that sleeps once is no slow sink. By size, since calm intervals are many and alike, and
    of intervals all of one size nobody can tell what is fixed and what is owed to rows. More rows never take
    less: what says otherwise was held up.

    >>> tails = TailTime()
    >>> for kept, tail in ((100, 0.2), (110, 0.2), (90, 3.0), (100, 0.2), (1000, 1.1)):
    ...     tails.observe(tail, kept)
    >>> f"{tails.predict(0):.2f} {tails.predict(500):.2f} {tails.predict(1500):.2f}"
    '0.20 0.60 1.60'
    """

    def __init__(self) -> None:
        self._sizes: dict[int, deque[tuple[float, float]]] = {}
        self._seen: dict[int, int] = {}
        self._count = 0

    def observe(self, tail: float, kept: float) -> None:
        if tail <= 0 or kept <= 0:
            return
        self._count += 1
        size = math.floor(math.log2(kept))
        self._sizes.setdefault(size, deque(maxlen=_EACH)).append((kept, tail))
        self._seen[size] = self._count
        for old in [each for each, last in self._seen.items() if self._count - last > _LONG_AGO]:
            del self._sizes[old], self._seen[old]

    def predict(self, kept: float) -> float:
        """Seconds; 0 while nothing is known."""
        points = self._points()
        if not points:
            return 0.0
        (fewest, least), (most, longest) = points[0], points[-1]
        if kept <= fewest:
            return least
        for (below, low), (above, high) in pairwise(points):
            if kept <= above:
                return low + (high - low) * (kept - below) / (above - below)
        slope = (longest - least) / (most - fewest) if most > fewest else 0.0
        return longest + slope * (min(kept, _BEYOND * most) - most) if kept > most else longest

    @property
    def least(self) -> float:
        """What it takes whatever is in it, at most: nobody was quicker; 0 while nothing is known."""
        return min((tail for pairs in self._sizes.values() for _, tail in pairs), default=0.0)

    @property
    def grows(self) -> bool:
        """Whether it is owed to rows more than not: who had far more of them took far longer.

        >>> slow, fixed = TailTime(), TailTime()
        >>> for kept, tail, always in ((1000, 4.4, 2.3), (2800, 10.1, 2.6)):
        ...     slow.observe(tail, kept)
        ...     fixed.observe(always, kept)
        >>> slow.grows, fixed.grows
        (True, False)
        """
        pairs = [pair for pairs in self._sizes.values() for pair in pairs]
        if not pairs:
            return False
        (fewest, shortest), (most, longest) = min(pairs), max(pairs)
        return most >= _FAR * fewest and longest / shortest > math.sqrt(most / fewest)

    def _points(self) -> list[tuple[float, float]]:
        """Rows and seconds, from the smallest size to the largest."""
        found: list[tuple[float, float]] = []
        limit = math.inf
        for size in sorted(self._sizes, reverse=True):
            rows = median(kept for kept, _ in self._sizes[size])
            limit = min(limit, median(tail for _, tail in self._sizes[size]))
            found.append((rows, limit))
        return found[::-1]

    def remember(self) -> dict[str, Any]:
        return {"seen": [list(pair) for size in sorted(self._sizes) for pair in self._sizes[size]]}

    def recall(self, learned: Mapping[str, Any]) -> None:
        pairs = [(float(kept), float(tail)) for kept, tail in learned["seen"]]
        if not all(0.0 <= number < math.inf for pair in pairs for number in pair):
            raise ValueError("no times")
        for kept, tail in pairs:
            self.observe(tail, kept)
