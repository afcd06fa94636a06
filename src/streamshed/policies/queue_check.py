"""What a latency target asks of one row: may it join the queue, given how long it would wait there?

Rivetti et al., Load-Aware Shedding, V-A and Listing III.2 (CHECK). A row is admitted when the condition still
holds *with* it, as the text says; the listing leaves its own wait out of the sum.

Whatever was admitted before, a row that need not wait is always admitted: no check can lock a stream out.
"""

from __future__ import annotations

import math
import re
from collections import deque
from typing import Protocol

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument

NANOSECONDS = 1e9


class Check(Protocol):
    """A condition on queuing latencies, in nanoseconds."""

    threshold: float

    def admits(self, wait: float) -> bool:
        """Whether a row that would wait so long may go in; if so, it counts from now on."""
        ...


class Average:
    """AVG(τ): the mean wait of all rows admitted so far stays at most τ: (Q + q̂)/(ℓ + 1) ≤ τ.

    >>> check = Average(10.0)
    >>> [check.admits(wait) for wait in (4.0, 16.0, 1.0, 20.0)]
    [True, True, True, False]
    """

    __slots__ = ("count", "threshold", "total")

    def __init__(self, threshold: float) -> None:
        self.threshold = positive(threshold)
        self.total = 0.0
        self.count = 0

    def admits(self, wait: float) -> bool:
        if (self.total + wait) / (self.count + 1) > self.threshold:
            return False
        self.total += wait
        self.count += 1
        return True


class Absolute:
    """ABS(τ): no row waits longer than τ.

    >>> [Absolute(10.0).admits(wait) for wait in (10.0, 10.5)]
    [True, False]
    """

    __slots__ = ("threshold",)

    def __init__(self, threshold: float) -> None:
        self.threshold = positive(threshold)

    def admits(self, wait: float) -> bool:
        return wait <= self.threshold


class SlidingAverage:
    """AVG(τ) over the last `span` admitted rows, this one among them: calm times long ago earn no credit.

    >>> check = SlidingAverage(10.0, span=2)
    >>> [check.admits(wait) for wait in (0.0, 0.0, 20.0, 1.0, 0.0)]
    [True, True, True, False, True]
    """

    __slots__ = ("recent", "span", "threshold", "total")

    def __init__(self, threshold: float, span: int) -> None:
        if isinstance(span, bool) or not isinstance(span, int) or span < 1:
            raise InvalidArgument("a sliding average needs a whole number of rows, at least 1", got=span)
        self.threshold = positive(threshold)
        self.span = span
        self.recent: deque[float] = deque()
        self.total = 0.0

    def admits(self, wait: float) -> bool:
        full = len(self.recent) == self.span
        total = self.total - self.recent[0] + wait if full else self.total + wait
        if total / (self.span if full else len(self.recent) + 1) > self.threshold:
            return False
        if full:
            self.recent.popleft()
        self.recent.append(wait)
        self.total = total
        return True


_FORM = re.compile(r"\s*(avg|abs)\s+(.+?)(?:\s+over\s+(\d+)\s+rows)?\s*", re.IGNORECASE)


def parse(target: str) -> Check:
    """A check from words: "avg 2 seconds", "abs 500 ms", "avg 2 seconds over 4000 rows".

    >>> parse("avg 6.4 ms").threshold
    6400000.0
    >>> parse("avg 2 seconds over 4000 rows").span
    4000
    """
    found = _FORM.fullmatch(target) if isinstance(target, str) else None
    if found is None or (found[3] and found[1].lower() == "abs"):
        raise InvalidArgument(
            "a latency target says how waits are judged, and the limit",
            got=repr(target),
            hint='like "avg 2 seconds", "abs 500 ms" or "avg 2 seconds over 4000 rows"',
        )
    threshold = seconds(found[2], "a latency target") * NANOSECONDS
    if found[1].lower() == "abs":
        return Absolute(threshold)
    return SlidingAverage(threshold, int(found[3])) if found[3] else Average(threshold)


def positive(threshold: float) -> float:
    """A threshold that can be met: above 0 and finite."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < math.inf:
        raise InvalidArgument("a latency threshold must be above 0 and finite", got=threshold)
    return float(threshold)
