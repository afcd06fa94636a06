"""Count-Min: how often, or how much in total, for every key of a stream, in constant memory.

G. Cormode and S. Muthukrishnan, An improved data stream summary: the count-min sketch and its applications,
Journal of Algorithms 55, 2005.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidArgument
from streamshed.jit import quick
from streamshed.sketch.hashing import CarterWegman, Digests, cell_of, check_digests

Matrix = NDArray[np.int64]

_HEADER = struct.Struct("<4sHHI")
_MAGIC, _VERSION = b"SSCM", 1


@dataclass(frozen=True, slots=True)
class Size:
    """Rows and columns of a sketch.

    With r = ⌈log₂ 1/δ⌉ rows and c = ⌈e/ε⌉ columns a frequency is over-estimated by more than ε·m with
    probability at most δ, m being the sum of all weights. (By Markov e^−r would do; r is the LAS paper's.)

    >>> Size.of(epsilon=0.05, delta=0.1)
    Size(rows=4, columns=55)
    """

    rows: int
    columns: int

    @classmethod
    def of(cls, epsilon: float, delta: float) -> Size:
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon <= 1:
            hint = "0.05 gives 55 columns; smaller is more exact"
            raise InvalidArgument("epsilon must be above 0 and at most 1", got=epsilon, hint=hint)
        if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
            hint = "0.1 gives 4 rows; smaller is more certain"
            raise InvalidArgument("delta must be above 0 and below 1", got=delta, hint=hint)
        return cls(max(1, math.ceil(math.log2(1 / delta))), math.ceil(math.e / epsilon))


class CountMin:
    """Sums of weights by key. A point query never under-counts.

    Keys are digests (`hashing.digest`) or small whole numbers; weights are whole numbers ≥ 0, so that adding up
    partitions gives exactly what one pass gives, in any order.

    >>> sketch = CountMin.sized(epsilon=0.1, delta=0.1, seed=1)
    >>> sketch.add(7); sketch.add(7, 3); sketch.add_many(np.array([7, 8]))
    >>> sketch.estimate(7), sketch.total
    (5, 6)
    """

    __slots__ = ("counts", "hashes")

    def __init__(self, hashes: CarterWegman, counts: Matrix | None = None) -> None:
        shape = (hashes.rows, hashes.columns)
        if counts is not None and (counts.shape != shape or counts.dtype != np.int64):
            raise InvalidArgument(
                "counts do not fit the hashes", got=f"{counts.shape} of {counts.dtype}", hint=f"{shape} of int64"
            )
        self.hashes = hashes
        self.counts: Matrix = np.zeros(shape, np.int64) if counts is None else counts

    @classmethod
    def sized(cls, epsilon: float, delta: float, seed: int) -> CountMin:
        """A sketch for a precision ε and a certainty 1 − δ, with hashes drawn from a seed."""
        size = Size.of(epsilon, delta)
        return cls(CarterWegman.draw(size.rows, size.columns, seed))

    @property
    def total(self) -> int:
        """The sum of all weights; every row has it."""
        return int(self.counts[0].sum())

    def add(self, key: int, weight: int = 1) -> None:
        if weight < 0:
            raise InvalidArgument("a weight must not be negative", got=weight)
        for row, cell in enumerate(self.hashes.cells_of(key)):
            self.counts[row, cell] += weight

    def add_many(self, keys: Digests, weights: Matrix | None = None) -> None:
        """The same for whole arrays, compiled."""
        check_digests(keys)
        if weights is None:
            weights = np.ones(len(keys), np.int64)
        check_weights(keys, weights)
        add_each(self.counts, self.hashes.a, self.hashes.b, keys, weights)

    def estimate(self, key: int) -> int:
        """At least the sum of the key's weights; seldom much more."""
        return min(int(self.counts[row, cell]) for row, cell in enumerate(self.hashes.cells_of(key)))

    def estimate_many(self, keys: Digests) -> Matrix:
        cells = self.hashes.cells(keys)
        found: Matrix = self.counts[np.arange(self.hashes.rows), cells].min(axis=1)
        return found

    def merge(self, other: CountMin) -> None:
        """Take in what another sketch with the same hashes has seen."""
        check_mergeable(self.hashes, other.hashes)
        self.counts += other.counts

    def clear(self) -> None:
        self.counts[:] = 0

    def to_bytes(self) -> bytes:
        """Hashes and counts; the same bytes on every machine."""
        parts = (self.hashes.a, self.hashes.b, self.counts)
        header = _HEADER.pack(_MAGIC, _VERSION, self.hashes.rows, self.hashes.columns)
        return header + b"".join(part.astype("<i8").tobytes() for part in parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> CountMin:
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise InvalidArgument("these bytes are no Count-Min sketch", got=repr(data[:8]))
        _, version, rows, columns = _HEADER.unpack_from(data)
        expected = _HEADER.size + 8 * rows * (columns + 2)
        if version != _VERSION or len(data) != expected:
            raise InvalidArgument(
                "a Count-Min sketch of another version or length",
                got=f"version {version}, {len(data)} bytes",
                hint=f"version {_VERSION} with {rows}×{columns} cells has {expected} bytes",
            )
        numbers = np.frombuffer(data, "<i8", offset=_HEADER.size).astype(np.int64)
        hashes = CarterWegman(numbers[:rows].copy(), numbers[rows : 2 * rows].copy(), columns)
        return cls(hashes, numbers[2 * rows :].reshape(rows, columns).copy())


def check_mergeable(ours: CarterWegman, theirs: CarterWegman) -> None:
    if not ours.same_as(theirs):
        raise InvalidArgument(
            "only sketches with the same hashes can be merged",
            got=f"{ours.rows}×{ours.columns} and {theirs.rows}×{theirs.columns}",
            hint="draw the hashes once, or from the same seed with the same size",
        )


def check_weights(keys: Digests, weights: Matrix) -> None:
    if weights.dtype != np.int64 or len(weights) != len(keys):
        raise InvalidArgument(
            "one whole number must be given as weight for each key",
            got=f"{len(weights)} of {weights.dtype} for {len(keys)} keys",
        )
    if len(weights) and int(weights.min()) < 0:
        raise InvalidArgument("a weight must not be negative", got=int(weights.min()))


@quick
def add_each(counts: Matrix, a: NDArray[np.int64], b: NDArray[np.int64], keys: Digests, weights: Matrix) -> None:
    """Add every key's weight to its cell of each row."""
    rows, columns = counts.shape
    for n in range(len(keys)):
        for i in range(rows):
            counts[i, cell_of(a[i], b[i], keys[n], columns)] += weights[n]
