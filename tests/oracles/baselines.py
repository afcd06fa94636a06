"""The shedders that the paper compares LAS with, row by row (LAS V-A)."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracles.check import Check, Gate
from tests.oracles.queue_model import QueueModel


class Believing:
    """LAS's shedding with costs that are believed: all equal for Straw-Man, the truth for Full Knowledge."""

    def __init__(self, check: Check, cost: Callable[[int], float], floor: float = 0.0) -> None:
        self.gate = Gate(check, floor)
        self.cost = cost
        self.queue = QueueModel()

    def sheds(self, key: int, now: float) -> bool:
        if not self.gate.admits(self.queue.wait(now)):
            return True
        self.queue.push(now, self.cost(key))
        return False


class BaseLine:
    """Drops a share of the rows at random; `coin` gives a new number in [0, 1) at each call."""

    def __init__(self, share: float, coin: Callable[[], float]) -> None:
        self.share = share
        self.coin = coin

    def sheds(self, key: int, now: float) -> bool:
        return self.coin() < self.share
