"""Rows on their way to one operator, and the synthetic streams of the LAS evaluation (V-A): skewed keys, costs
tied to keys, evenly spaced arrivals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidArgument

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DROPPED = -1.0
"""Stands in an array of waits for a row that was dropped."""
MILLISECOND = 1e6
"""In nanoseconds."""
WARM_UP_PACE = 2.0
"""Gaps of the warm-up, in mean costs: half of what the operator could do, so that nothing needs to be shed."""


@dataclass(frozen=True, slots=True, eq=False)
class TimedRows:
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

    def completions(self, waits: Floats) -> Floats:
        """Completion latency of each row: its wait and its work. DROPPED for a row that was.

        >>> rows = TimedRows(np.zeros(2, np.int64), np.full(2, 10), np.arange(2.0))
        >>> rows.completions(np.array([9.0, DROPPED])).tolist()
        [19.0, -1.0]
        """
        return np.where(waits >= 0, waits + self.costs, DROPPED)


@dataclass(frozen=True, slots=True)
class StreamShape:
    """What a stream is made from; the paper's defaults.

    >>> StreamShape().values()[:3].tolist(), int(StreamShape().values()[-1])
    ([100000, 200000, 300000], 6400000)
    """

    rows: int = 32_768
    keys: int = 4_096
    """n: how many different keys there are."""
    skew: float = 1.0
    """α of the Zipf distribution of the keys; 0 is uniform."""
    levels: int = 64
    """wₙ: how many different costs there are."""
    least_ms: float = 0.1
    most_ms: float = 6.4
    under_provisioning: float = 0.25
    """u: the gap between arrivals is W̄·(1 − u)."""

    def __post_init__(self) -> None:
        if self.rows < 1 or not 1 <= self.levels <= self.keys:
            raise InvalidArgument(
                "a stream needs rows, and at least as many keys as costs",
                got=f"{self.rows} rows, {self.keys} keys, {self.levels} costs",
            )
        if not 0 < self.least_ms <= self.most_ms:
            raise InvalidArgument(
                "costs go from least to most, above 0", got=f"{self.least_ms} ... {self.most_ms} ms"
            )
        if not self.under_provisioning < 1 or self.skew < 0:
            raise InvalidArgument(
                "under-provisioning must be below 1 and the skew not negative",
                got=f"{self.under_provisioning}, {self.skew}",
            )

    def values(self) -> Ints:
        """The different costs, evenly spaced, in nanoseconds."""
        return np.rint(np.linspace(self.least_ms, self.most_ms, self.levels) * MILLISECOND).astype(np.int64)

    def probabilities(self) -> Floats:
        weights = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.skew
        share: Floats = weights / weights.sum()
        return share


@dataclass(frozen=True, slots=True, eq=False)
class Association:
    """Which key costs how much, drawn at random: every cost goes to as many keys as every other."""

    costs: Ints

    @classmethod
    def draw(cls, shape: StreamShape, seed: NDArray[np.uint32] | int) -> Association:
        levels = np.arange(shape.keys) % shape.levels
        return cls(shape.values()[np.random.default_rng(seed).permutation(levels)])

    def swapped(self) -> Association:
        """The most frequent key, 0, changes places with the rarest one of the highest cost (phase D)."""
        rarest = int(np.flatnonzero(self.costs == self.costs.max())[-1])
        costs = self.costs.copy()
        costs[[0, rarest]] = costs[[rarest, 0]]
        return replace(self, costs=costs)


def draw_keys(shape: StreamShape, rng: np.random.Generator, count: int) -> Ints:
    """Keys 0 … n−1, the most frequent first."""
    edges = np.cumsum(shape.probabilities())
    keys: Ints = np.searchsorted(edges / edges[-1], rng.random(count), side="right")
    return keys


def evenly(keys: Ints, costs: Ints, gap: float) -> TimedRows:
    """A stream with the same gap between all arrivals, in nanoseconds."""
    return TimedRows(keys, costs, np.arange(len(keys), dtype=np.float64) * np.float64(gap))


def stream(shape: StreamShape, association: Association, rng: np.random.Generator) -> TimedRows:
    """A stream at the shape's under-provisioning, W̄ being the mean cost of the rows that were drawn."""
    keys = draw_keys(shape, rng, shape.rows)
    costs = association.costs[keys]
    return evenly(keys, costs, float(costs.mean()) * (1 - shape.under_provisioning))


def warm_up(shape: StreamShape, association: Association, rng: np.random.Generator, rows: int) -> TimedRows:
    """Rows of the same kind, slow enough that none has to be shed."""
    keys = draw_keys(shape, rng, rows)
    costs = association.costs[keys]
    return evenly(keys, costs, float(costs.mean()) * WARM_UP_PACE)
