"""One operator in virtual time: rows of known cost arrive at known moments, a policy drops some, the rest queue.

This is the plain model, written with the policies themselves: slow, and the one to trust. `operator_kernel` does
the same, compiled, to the last bit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidArgument
from streamshed.policies.load_aware import Delta, LoadAware, Operator

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DROPPED = -1.0
"""Stands in an array of waits for a row that was dropped."""


class RowPolicy(Protocol):
    """Decides row by row; `now` in nanoseconds."""

    def sheds(self, key: int, now: float) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Rows in the order of their arrival: key, cost and moment of arrival, both in nanoseconds."""

    keys: Ints
    costs: Ints
    arrivals: Floats

    def __post_init__(self) -> None:
        if not len(self.keys) == len(self.costs) == len(self.arrivals):
            raise InvalidArgument(
                "a stream needs a key, a cost and an arrival for each row",
                got=f"{len(self.keys)} keys, {len(self.costs)} costs, {len(self.arrivals)} arrivals",
            )
        if len(self.costs) and int(self.costs.min()) <= 0:
            raise InvalidArgument("every row must cost something", got=int(self.costs.min()))
        if len(self.arrivals) and not (self.arrivals[0] >= 0 and np.all(np.diff(self.arrivals) >= 0)):
            raise InvalidArgument("rows must arrive one after the other, from moment 0 on")

    def __len__(self) -> int:
        return len(self.keys)


class _Server:
    """Works off rows one by one, in the order of their arrival."""

    def __init__(self) -> None:
        self.free_at = 0.0

    def take(self, now: float, cost: int) -> float:
        """How long the row waits."""
        start = max(now, self.free_at)
        self.free_at = start + cost
        return start - now


def run(stream: Stream, policy: RowPolicy) -> Floats:
    """The wait of every row, or DROPPED.

    >>> from streamshed.policies.queue_check import Absolute
    >>> from streamshed.policies.straw_man import StrawMan
    >>> stream = Stream(np.zeros(4, np.int64), np.full(4, 10), np.arange(4.0))
    >>> run(stream, StrawMan(Absolute(10.0), mean=10.0)).tolist()
    [0.0, 9.0, -1.0, -1.0]
    """
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

    def learn(self, warm_up: Stream) -> float:
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

    def run(self, stream: Stream, start: float = 0.0) -> Floats:
        """The waits of a stream that begins at a moment."""
        return np.array([self.arrives(key, cost, start + now) for key, cost, now in _rows(stream)])


def _rows(stream: Stream) -> zip[tuple[int, int, float]]:
    return zip(stream.keys.tolist(), stream.costs.tolist(), stream.arrivals.tolist(), strict=True)
