"""Straw-Man: LAS's shedding, with one mean cost for every row (LAS V-A)."""

from __future__ import annotations

from streamshed.errors import InvalidArgument
from streamshed.policies.queue_check import Check
from streamshed.policies.queue_model import QueueModel


class StrawMan:
    """Foresees the queue as if every row took W̄ nanoseconds.

    It is right about the load and wrong about each row, and nothing ever corrects it: its errors add up.

    >>> from streamshed.policies.queue_check import Absolute
    >>> policy = StrawMan(Absolute(10.0), mean=8.0)
    >>> [policy.sheds(key=0, now=now) for now in (0.0, 1.0, 2.0, 9.0)]
    [False, False, True, False]
    """

    def __init__(self, check: Check, mean: float) -> None:
        if not mean > 0:
            raise InvalidArgument("the mean cost of a row must be above 0", got=mean)
        self.check = check
        self.mean = mean
        self.queue = QueueModel()

    def sheds(self, key: int, now: float) -> bool:
        if not self.check.admits(self.queue.wait(now)):
            return True
        self.queue.push(now, self.mean)
        return False
