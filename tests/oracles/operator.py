"""One operator in virtual time: rows of known cost arrive at known moments, a policy drops some, the rest queue.

This is the plain model; `sim.operator.kernel` does the same, compiled, to the last bit.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

import numpy as np

from streamshed.sim.operator.streams import DROPPED, Floats, TimedRows
from tests.oracles.load_aware import Delta, LoadAware, Operator


class RowPolicy(Protocol):
    """Decides row by row; `now` in nanoseconds."""

    def sheds(self, key: int, now: float) -> bool: ...


class _Server:
    """Works off rows one by one, in the order of their arrival."""

    def __init__(self) -> None:
        self.free_at = 0.0

    def take(self, now: float, cost: int) -> float:
        """How long the row waits."""
        start = max(now, self.free_at)
        self.free_at = start + cost
        return start - now


def run(stream: TimedRows, policy: RowPolicy) -> Floats:
    """The wait of every row, or DROPPED."""
    server = _Server()
    waits = np.full(len(stream), DROPPED)
    for i, (key, cost, now) in enumerate(_rows(stream)):
        if not policy.sheds(key, now):
            waits[i] = server.take(now, cost)
    return waits


class _Pending(NamedTuple):
    key: int
    cost: int
    done: float
    ask: float | None


class LearningOperator:
    """An operator that learns, with its shedder; messages between the two take no time."""

    def __init__(self, shedder: LoadAware, operator: Operator) -> None:
        self.shedder = shedder
        self.operator = operator
        self.server = _Server()
        self.synchronised = False
        self._pending: deque[_Pending] = deque()

    def arrives(self, key: int, cost: int, now: float) -> float:
        """The wait of a row, or DROPPED."""
        self.catch_up(now)
        verdict = self.shedder.decide(key, now)
        if verdict.shed:
            return DROPPED
        wait = self.server.take(now, cost)
        self._pending.append(_Pending(key, cost, self.server.free_at, verdict.ask))
        return wait

    def catch_up(self, now: float) -> None:
        """Finish what is done by now; the shedder learns of it before it decides on a row that arrives now."""
        while self._pending and self._pending[0].done <= now:
            row = self._pending.popleft()
            for message in self.operator.finished(row.key, row.cost, row.done, row.ask):
                self.shedder.receive(message)
                self.synchronised |= isinstance(message, Delta)

    def learn(self, warm_up: TimedRows) -> float:
        """Run rows that are not measured, until the shedder has matrices and is synchronised once.

        The moment from which the measured stream may start: when the last of these rows is done.
        """
        now = 0.0
        for key, cost, now in _rows(warm_up):
            self.catch_up(now)
            if self.synchronised:
                break
            self.arrives(key, cost, now)
        start = max(now, self.server.free_at)
        self.catch_up(start)
        return start

    def run(self, stream: TimedRows, start: float = 0.0) -> Floats:
        """The waits of a stream that begins at a moment."""
        return np.array([self.arrives(key, cost, start + now) for key, cost, now in _rows(stream)])


def _rows(stream: TimedRows) -> zip[tuple[int, int, float]]:
    return zip(stream.keys.tolist(), stream.costs.tolist(), stream.arrivals.tolist(), strict=True)
