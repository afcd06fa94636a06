"""Full Knowledge: LAS's shedding, told the true cost of every row (LAS V-A). The best an online shedder can do."""

from __future__ import annotations

from collections.abc import Callable

from streamshed.policies.queue_check import Check
from streamshed.policies.queue_model import QueueModel


class FullKnowledge:
    """Foresees the queue exactly; `cost` gives a key's nanoseconds.

    >>> from streamshed.policies.queue_check import Absolute
    >>> policy = FullKnowledge(Absolute(10.0), cost=lambda key: 20.0 if key else 1.0)
    >>> [policy.sheds(key, now) for key, now in ((0, 0.0), (1, 1.0), (0, 2.0), (0, 11.0))]
    [False, False, True, False]
    """

    def __init__(self, check: Check, cost: Callable[[int], float]) -> None:
        self.check = check
        self.cost = cost
        self.queue = QueueModel()

    def sheds(self, key: int, now: float) -> bool:
        if not self.check.admits(self.queue.wait(now)):
            return True
        self.queue.push(now, self.cost(key))
        return False
