"""What rows cost, learned: the operator's matrices, and when they are sent. Compiled, for simulators and Spark.

Rivetti et al., Load-Aware Shedding, Listing III.1 and Figure 2:

    START ─(N rows)─► STABILIZING ─(N rows, η ≤ μ: send F and W, reset)─► START
                          └──(N rows, η > μ: new snapshot)──┘
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamshed.jit import inlined, quick
from streamshed.las.settings import LasSettings
from streamshed.sketch.cost import CostSketch, Nanoseconds, mean_of, ratio_of
from streamshed.sketch.count_min import Matrix
from streamshed.sketch.hashing import CarterWegman

START, STABILIZING = range(2)


@inlined
def closes_window(
    frequencies: Matrix, durations: Matrix, snapshot: Nanoseconds, state: int, tolerance: float
) -> bool:
    """N rows are over: whether F and W are to be sent, and START follows. If not, there is a new snapshot, and
    STABILIZING follows.

    η, how much the cells' means have moved since the snapshot (eq. 1), is summed cell by cell, in their order.
    """
    rows, columns = frequencies.shape
    mean = mean_of(frequencies, durations)
    scale, moved = 0.0, 0.0
    for i in range(rows):
        for j in range(columns):
            scale += snapshot[i, j]
            moved += abs(snapshot[i, j] - ratio_of(frequencies[i, j], durations[i, j], mean))
    stable = moved / scale <= tolerance if scale > 0.0 else moved == 0.0
    sends = state == STABILIZING and stable
    if not sends:
        for i in range(rows):
            for j in range(columns):
                snapshot[i, j] = ratio_of(frequencies[i, j], durations[i, j], mean)
    return sends


@quick
def window_closed(
    frequencies: Matrix, durations: Matrix, snapshot: Nanoseconds, state: int, tolerance: float
) -> bool:
    """`closes_window`, to be called from Python."""
    return closes_window(frequencies, durations, snapshot, state, tolerance)


class Operator:
    """The operator's machine, fed with whole sketches instead of rows.

    N rows may end in the middle of a sketch; the machine then moves at the end of it.

    >>> hashes = CarterWegman.draw(4, 55, seed=1)
    >>> operator, timed = Operator(hashes, LasSettings(window=2)), CostSketch(hashes)
    >>> timed.add(7, 100); timed.add(8, 300)
    >>> [operator.absorb(timed) is not None for _ in range(3)]
    [False, True, False]
    """

    def __init__(self, hashes: CarterWegman, settings: LasSettings) -> None:
        self.state = START
        self.sketch = CostSketch(hashes)
        self.window = settings.window
        self.tolerance = settings.tolerance
        self.executed = 0
        self._snapshot: NDArray[np.float64] = np.zeros((hashes.rows, hashes.columns))

    def absorb(self, timed: CostSketch) -> CostSketch | None:
        """Take in what was timed; the matrices to be sent to the shedder, if they are stable now."""
        windows = self.executed // self.window
        self.executed += timed.seen
        self.sketch.merge(timed)
        if self.executed // self.window == windows:
            return None
        matrices = self.sketch.frequencies, self.sketch.durations
        if not window_closed(*matrices, self._snapshot, self.state, self.tolerance):
            self.state = STABILIZING
            return None
        stable = self.sketch.copy()
        self.sketch.clear()
        self.state = START
        return stable
