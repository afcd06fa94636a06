"""What a row costs, by its key: two Count-Min matrices with the same hashes (LAS III-C).

F counts how often a key ran, W adds up how long it took, in whole nanoseconds. A key's mean cost is W/F, read at
the row where F is least, the one with the fewest other keys in the cell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidArgument
from streamshed.jit import inlined, quick
from streamshed.sketch.count_min import CountMin, Matrix, Size, check_mergeable, check_weights
from streamshed.sketch.hashing import CarterWegman, Digests, cell_of, check_digests

Nanoseconds = NDArray[np.float64]


class CostSketch:
    """ŵ(key) in nanoseconds.

    >>> sketch = CostSketch.sized(epsilon=0.05, delta=0.1, seed=1)
    >>> sketch.add(7, 2_000_000); sketch.add(7, 4_000_000); sketch.add(8, 6_000_000)
    >>> sketch.estimate(7), sketch.estimate(8)
    (3000000.0, 6000000.0)

    A key in a cell that nothing has reached yet gets the mean of all:

    >>> sketch.estimate(9)
    4000000.0
    """

    __slots__ = ("durations", "frequencies", "hashes")

    def __init__(
        self, hashes: CarterWegman, frequencies: Matrix | None = None, durations: Matrix | None = None
    ) -> None:
        self.hashes = hashes
        self.frequencies: Matrix = CountMin(hashes, frequencies).counts
        self.durations: Matrix = CountMin(hashes, durations).counts

    @classmethod
    def sized(cls, epsilon: float, delta: float, seed: int) -> CostSketch:
        size = Size.of(epsilon, delta)
        return cls(CarterWegman.draw(size.rows, size.columns, seed))

    @property
    def seen(self) -> int:
        """How many rows were timed."""
        return int(self.frequencies[0].sum())

    @property
    def mean(self) -> float:
        """The mean cost of all rows; 0 before the first."""
        return int(self.durations[0].sum()) / max(self.seen, 1)

    def add(self, key: int, nanoseconds: int) -> None:
        """A row of this key took so long."""
        if nanoseconds < 0:
            raise InvalidArgument("a duration must not be negative", got=nanoseconds)
        for row, cell in enumerate(self.hashes.cells_of(key)):
            self.frequencies[row, cell] += 1
            self.durations[row, cell] += nanoseconds

    def add_many(self, keys: Digests, nanoseconds: Matrix) -> None:
        check_digests(keys)
        check_weights(keys, nanoseconds)
        time_each(self.frequencies, self.durations, self.hashes.a, self.hashes.b, keys, nanoseconds)

    def estimate(self, key: int) -> float:
        """W/F at the row with the least F, the first such row if there are several."""
        cells = self.hashes.cells_of(key)
        row = min(range(len(cells)), key=lambda i: self.frequencies[i, cells[i]])
        often = int(self.frequencies[row, cells[row]])
        return int(self.durations[row, cells[row]]) / often if often else self.mean

    def estimate_many(self, keys: Digests) -> Nanoseconds:
        check_digests(keys)
        return estimate_each(self.frequencies, self.durations, self.hashes.a, self.hashes.b, keys, self.mean)

    def ratios(self) -> Nanoseconds:
        """W/F of every cell, the mean of all where nothing was seen: the operator's snapshot (LAS eq. 1)."""
        return np.where(self.frequencies > 0, self.durations / np.maximum(self.frequencies, 1), self.mean)

    def merge(self, other: CostSketch) -> None:
        """Take in what another sketch with the same hashes has seen; exact, in any order."""
        check_mergeable(self.hashes, other.hashes)
        self.frequencies += other.frequencies
        self.durations += other.durations

    def copy(self) -> CostSketch:
        return CostSketch(self.hashes, self.frequencies.copy(), self.durations.copy())

    def clear(self) -> None:
        self.frequencies[:] = 0
        self.durations[:] = 0

    def to_bytes(self) -> bytes:
        """F and W, one after the other, each a Count-Min sketch of its own."""
        pair = (self.frequencies, self.durations)
        return b"".join(CountMin(self.hashes, matrix).to_bytes() for matrix in pair)

    @classmethod
    def from_bytes(cls, data: bytes) -> CostSketch:
        half = len(data) // 2
        frequencies, durations = CountMin.from_bytes(data[:half]), CountMin.from_bytes(data[half:])
        check_mergeable(frequencies.hashes, durations.hashes)
        return cls(frequencies.hashes, frequencies.counts, durations.counts)


@quick
def estimate_each(
    frequencies: Matrix,
    durations: Matrix,
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    keys: Digests,
    mean: float,
) -> Nanoseconds:
    """ŵ of each key; `mean` where its least F is 0."""
    found = np.empty(len(keys), np.float64)
    for n in range(len(keys)):
        found[n] = estimate_one(frequencies, durations, a, b, keys[n], mean)
    return found


@inlined
def estimate_one(
    frequencies: Matrix,
    durations: Matrix,
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    key: int,
    mean: float,
) -> float:
    rows, columns = frequencies.shape
    least, took = np.int64(-1), np.int64(0)
    for i in range(rows):
        cell = cell_of(a[i], b[i], key, columns)
        if least < 0 or frequencies[i, cell] < least:
            least, took = frequencies[i, cell], durations[i, cell]
    return float(took / least) if least > 0 else mean


@inlined
def mean_of(frequencies: Matrix, durations: Matrix) -> float:
    """The mean cost of all rows; 0 before the first."""
    return float(durations[0].sum() / max(frequencies[0].sum(), 1))


@inlined
def ratio_of(often: int, took: int, mean: float) -> float:
    """W/F of a cell; the mean of all where nothing was seen."""
    return took / often if often > 0 else mean


@inlined
def time_one(
    frequencies: Matrix, durations: Matrix, a: NDArray[np.int64], b: NDArray[np.int64], key: int, took: int
) -> None:
    """A row of this key took so long."""
    rows, columns = frequencies.shape
    for i in range(rows):
        cell = cell_of(a[i], b[i], key, columns)
        frequencies[i, cell] += 1
        durations[i, cell] += took


@quick
def time_each(
    frequencies: Matrix,
    durations: Matrix,
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    keys: Digests,
    nanoseconds: Matrix,
) -> None:
    """Rows of these keys took so long."""
    for n in range(len(keys)):
        time_one(frequencies, durations, a, b, keys[n], nanoseconds[n])
