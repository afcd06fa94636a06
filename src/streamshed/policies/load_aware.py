"""Load-Aware Shedding: learn what each row costs, foresee its wait, drop it if the target would be missed.

N. Rivetti, E. Anceaume, Y. Busnel, L. Querzoni, B. Sericola, Load-Aware Shedding in Stream Processing Systems,
2016. Two state machines that send each other messages; they share the hashes of the sketch and nothing else.

    Operator   START ─(N rows)─► STABILIZING ─(N rows, η ≤ μ: send F, W, reset)─► START         Figure 2
                                     └──(N rows, η > μ: new snapshot)──┘

    Shedder    NOP ─(F, W)─► SEND ─(next row let in: ask)─► RUN ─(F, W)─► SEND                  Figure 3

One thing is not in the paper. When matrices come faster than a row passes the queue, a second question leaves
before the first is answered; both answers then hold the same skew, and adding both corrects it twice (after a jump
of the costs the shedder then drops everything for as long as the queue was). So a question leaves out what earlier
answers have corrected, and its answer takes their place. With one question at a time this is the listing.

Times are nanoseconds on one clock. Where the paper has Ĉ and C, sums of execution times, this has moments: when
the shedder thinks a row will be done, and when it was (`queue_model` says why). While there is work, the two
differ by a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidArgument
from streamshed.policies.queue_check import Check
from streamshed.policies.queue_model import QueueModel
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.count_min import Size
from streamshed.sketch.hashing import CarterWegman

WINDOW = 1024
TOLERANCE = 0.05
EPSILON = 0.05
DELTA = 0.1
RESYNC = 16
"""Rows let in between two questions; not in the paper, which asks after new matrices only."""


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """Operator ─► shedder: F and W, found stable."""

    sketch: CostSketch


@dataclass(frozen=True, slots=True)
class Delta:
    """Operator ─► shedder: how much later the row was done that carried the question than the question said."""

    nanoseconds: float


Message = Matrices | Delta


class OperatorState(Enum):
    START = "start"
    STABILIZING = "stabilizing"


class ShedderState(Enum):
    NOP = "nop"
    SEND = "send"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a row."""

    shed: bool
    ask: float | None = None
    """To be sent along with the row: when it would be done by the estimates alone, uncorrected."""


class Operator:
    """Times the rows and tells the shedder when it knows their costs (Listing III.1).

    `window` is N, in rows; `tolerance` is μ, the change of the snapshot below which it counts as stable.

    >>> operator = Operator(CarterWegman.draw(4, 55, seed=1), window=2)
    >>> [len(operator.finished(key=7, took=100, now=100.0 * n)) for n in (1, 2, 3, 4)]
    [0, 0, 0, 1]
    """

    def __init__(self, hashes: CarterWegman, window: int = WINDOW, tolerance: float = TOLERANCE) -> None:
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise InvalidArgument("the window must be a whole number of rows, at least 1", got=window)
        if not 0 < tolerance < 1:
            raise InvalidArgument("the tolerance must be above 0 and below 1", got=tolerance)
        self.state = OperatorState.START
        self.sketch = CostSketch(hashes)
        self.window = window
        self.tolerance = tolerance
        self.executed = 0
        self._snapshot = self.sketch.ratios()

    def finished(self, key: int, took: int, now: float, ask: float | None = None) -> tuple[Message, ...]:
        """A row took so long and is done now; what the shedder is to be told."""
        messages: list[Message] = []
        self.executed += 1
        if ask is not None:
            messages.append(Delta(now - ask))
        if self.executed % self.window == 0:
            if self.state is OperatorState.START:
                self._snapshot = self.sketch.ratios()
                self.state = OperatorState.STABILIZING
            elif self.error() <= self.tolerance:
                messages.append(Matrices(self.sketch.copy()))
                self.sketch.clear()
                self.state = OperatorState.START
            else:
                self._snapshot = self.sketch.ratios()
        # After the test, as in the listing: the row that closes a window is the first of the next.
        self.sketch.add(key, took)
        return tuple(messages)

    def error(self) -> float:
        """η, how much the cells' means have moved since the snapshot (eq. 1)."""
        scale = _in_order(self._snapshot)
        moved = _in_order(np.abs(self._snapshot - self.sketch.ratios()))
        return moved / scale if scale > 0 else 0.0 if moved == 0 else float("inf")


class LoadAware:
    """Drops the rows that would break the target (Listing III.2).

    `epsilon` is the sketch's, which also sets the caution: each estimate counts 1 + ε times. `resync`, which the
    paper does not have, asks again after so many rows let in, not only after new matrices: the picture of the
    queue is then right to within what went wrong since, also while costs change faster than they are learned.
    With `resync=None` it is the paper's, to the letter.

    >>> from streamshed.policies.queue_check import Absolute
    >>> shedder = LoadAware(Absolute(150.0), epsilon=0.05)
    >>> shedder.decide(key=7, now=0.0)
    Verdict(shed=False, ask=None)
    >>> sketch = CostSketch.sized(0.05, 0.1, seed=1)
    >>> sketch.add(7, 100)
    >>> shedder.receive(Matrices(sketch))
    >>> [shedder.decide(key=7, now=0.0) for _ in range(3)]
    [Verdict(shed=False, ask=105.0), Verdict(shed=False, ask=None), Verdict(shed=True, ask=None)]
    """

    def __init__(self, check: Check, epsilon: float = EPSILON, resync: int | None = RESYNC) -> None:
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < 1:
            raise InvalidArgument("epsilon must be above 0 and below 1", got=epsilon)
        if resync is not None and (isinstance(resync, bool) or not isinstance(resync, int) or resync < 1):
            raise InvalidArgument("resync must be a whole number of rows, at least 1, or None", got=resync)
        self.state = ShedderState.NOP
        self.check = check
        self.epsilon = epsilon
        self.queue = QueueModel()
        self.sketch: CostSketch | None = None
        self.resync = resync
        self.correction = 0.0
        self._since_asked = 0

    def receive(self, message: Message) -> None:
        if isinstance(message, Delta):
            self.queue.shift(message.nanoseconds - self.correction)
            self.correction = message.nanoseconds
        else:
            self.sketch = message.sketch
            self.state = ShedderState.SEND

    def decide(self, key: int, now: float) -> Verdict:
        if self.sketch is None:
            return Verdict(shed=False)
        if not self.check.admits(self.queue.wait(now)):
            return Verdict(shed=True)
        self.queue.push(now, self.sketch.estimate(key) * (1 + self.epsilon))
        self._since_asked += 1
        if self.state is ShedderState.SEND or self._since_asked == self.resync:
            self.state = ShedderState.RUN
            self._since_asked = 0
            return Verdict(shed=False, ask=self.queue.free_at - self.correction)
        return Verdict(shed=False)


def _in_order(cells: NDArray[np.float64]) -> float:
    """The sum taken cell by cell: the compiled simulator adds the same way, to the last bit."""
    return float(np.add.accumulate(cells.ravel())[-1])


def hashes(epsilon: float = EPSILON, delta: float = DELTA, *, seed: int) -> CarterWegman:
    """The functions that an operator and its shedder share, for a precision and a certainty."""
    size = Size.of(epsilon, delta)
    return CarterWegman.draw(size.rows, size.columns, seed)
