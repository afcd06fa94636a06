"""The shedder's picture of the operator's queue: when will it have worked off all that was let in?

LAS keeps Ĉ, the summed estimates of what was let in, and reads a row's wait as Ĉ − elapsed time. Taken literally,
idle time then runs up a credit, and a burst after it is let in whole. Kept here is the moment at which the
operator will be free: free_at ← max(free_at, now) + ŵ. While there is work this is Ĉ; idle time adds nothing.
"""

from __future__ import annotations

import math


class QueueModel:
    """Times in nanoseconds, by any clock.

    >>> queue = QueueModel()
    >>> queue.push(0.0, 5.0); queue.push(1.0, 5.0)
    >>> queue.wait(2.0), queue.wait(12.0)
    (8.0, 0.0)
    """

    __slots__ = ("free_at",)

    def __init__(self) -> None:
        self.free_at = -math.inf

    def wait(self, now: float) -> float:
        """q̂: how long a row that arrives now would wait."""
        return max(0.0, self.free_at - now)

    def push(self, now: float, cost: float) -> None:
        """A row of this cost was let in."""
        self.free_at = max(self.free_at, now) + cost

    def shift(self, delta: float) -> None:
        """The operator is later (or, if negative, earlier) than thought."""
        self.free_at += delta
