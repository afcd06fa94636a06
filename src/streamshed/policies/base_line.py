"""Base Line: drops a fraction of the rows at random, the one by which the operator is too slow (LAS V-A)."""

from __future__ import annotations

from collections.abc import Callable

from streamshed.errors import InvalidArgument


class BaseLine:
    """Drops a share of the rows; `coin` gives a new number in [0, 1) at each call.

    >>> coins = iter([0.1, 0.7, 0.2])
    >>> policy = BaseLine(0.25, lambda: next(coins))
    >>> [policy.sheds(key=0, now=0.0) for _ in range(3)]
    [True, False, True]
    """

    def __init__(self, share: float, coin: Callable[[], float]) -> None:
        if not 0 <= share <= 1:
            raise InvalidArgument("a share of rows is between 0 and 1", got=share)
        self.share = share
        self.coin = coin

    def sheds(self, key: int, now: float) -> bool:
        return self.coin() < self.share
