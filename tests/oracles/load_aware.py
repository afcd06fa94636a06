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
the shedder thinks a row will be done, and when it was. While there is work, the two
differ by a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from streamshed.las.settings import LasSettings
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import CarterWegman
from tests.oracles.check import Check, Gate
from tests.oracles.queue_model import QueueModel


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
    """

    def __init__(self, hashes: CarterWegman, window: int = 1024, tolerance: float = 0.05) -> None:
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

    Each estimate counts 1 + ε times. With `resync` it asks again after so many rows let in, not only after new
    matrices; without, it is the paper's, to the letter.
    """

    def __init__(self, check: Check, settings: LasSettings) -> None:
        self.state = ShedderState.NOP
        self.gate = Gate(check, settings.floor)
        self.epsilon = settings.epsilon
        self.queue = QueueModel()
        self.sketch: CostSketch | None = None
        self.resync = settings.resync
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
        if not self.gate.admits(self.queue.wait(now)):
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
