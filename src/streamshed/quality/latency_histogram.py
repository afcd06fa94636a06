"""How late rows were: a histogram that can be added up, saved, and asked for percentiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATIO = 1.04
"""A bin's upper end over its lower end: how far off a percentile may be."""
LEAST = 0.001
"""Seconds; all that is shorter is in one bin."""
_LOG = math.log(RATIO)


def bin_of(latency: float) -> int:
    """The bin of a latency: 0 below `LEAST`, and bin n from LEAST·RATIOⁿ⁻¹ to LEAST·RATIOⁿ."""
    return 0 if latency < LEAST else 1 + math.floor(math.log(latency / LEAST) / _LOG)


def _lower_end(number: int) -> float:
    return LEAST * RATIO ** (number - 1) if number > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LatencyHistogram:
    """Latencies in seconds, weighed by rows, in bins that are each 4 % wider than the one before.

    Mean and worst are exact. A percentile is the middle of the bin that it falls into, so it is off by at most the
    bin's width. Two histograms add up to that of both together, in any order.

    >>> batch = LatencyHistogram.uniform(1.0, 3.0, rows=200)
    >>> both = batch.plus(LatencyHistogram.uniform(5.0, 5.0, rows=100))
    >>> both.mean, both.worst, round(both.percentile(50), 1)
    (3.0, 5.0, 2.5)
    """

    rows: float = 0.0
    total: float = 0.0
    """Seconds, over all rows."""
    worst: float = 0.0
    bins: Mapping[int, float] = field(default_factory=dict)
    """Rows in each bin that has any. Rows of which only sum and worst are known stand in none."""

    @staticmethod
    def of(latencies: NDArray[np.float64]) -> LatencyHistogram:
        """One row for each latency."""
        if len(latencies) == 0:
            return LatencyHistogram()
        seconds = np.maximum(latencies, 0.0)
        numbers = 1 + np.floor(np.log(np.maximum(seconds, LEAST) / LEAST) / _LOG).astype(np.int64)
        numbers[seconds < LEAST] = 0
        counts = np.bincount(numbers)
        filled = np.flatnonzero(counts)
        return LatencyHistogram(
            rows=float(len(seconds)),
            total=float(seconds.sum()),
            worst=float(seconds.max()),
            bins={int(number): float(counts[number]) for number in filled},
        )

    @staticmethod
    def uniform(shortest: float, longest: float, rows: float) -> LatencyHistogram:
        """Rows whose latencies are spread evenly between two."""
        if rows <= 0:
            return LatencyHistogram()
        low = max(0.0, shortest)
        high = max(low, longest)
        total = rows * (low + high) / 2.0
        first, last = bin_of(low), bin_of(high)
        if first == last:
            return LatencyHistogram(rows, total, high, {first: rows})
        ends = [low, *(_lower_end(number) for number in range(first + 1, last + 1)), high]
        parts = zip(range(first, last + 1), ends, ends[1:], strict=False)
        bins = {number: rows * (end - begin) / (high - low) for number, begin, end in parts if end > begin}
        return LatencyHistogram(rows, total, high, bins)

    def plus(self, other: LatencyHistogram) -> LatencyHistogram:
        """The rows of both."""
        bins = dict(self.bins)
        for number, rows in other.bins.items():
            bins[number] = bins.get(number, 0.0) + rows
        return LatencyHistogram(
            self.rows + other.rows, self.total + other.total, max(self.worst, other.worst), bins
        )

    @property
    def mean(self) -> float:
        """Over rows; 0 without any."""
        return self.total / self.rows if self.rows else 0.0

    def percentile(self, percent: float) -> float:
        """The latency that so many percent of the rows did not exceed; 0 without any.

        Where nobody counted bins, it is that of rows spread evenly with this mean and this worst: a guess.
        """
        counted = math.fsum(self.bins.values())
        if counted <= 0.0:
            shortest = max(0.0, 2.0 * self.mean - self.worst)
            return shortest + percent / 100.0 * (self.worst - shortest) if self.rows else 0.0
        wanted, below = percent / 100.0 * counted, 0.0
        numbers = sorted(self.bins)
        for number in numbers:
            below += self.bins[number]
            # Shares of rows do not add up to the last digit.
            if below >= wanted * (1.0 - 1e-12):
                break
        middle = LEAST / 2.0 if number == 0 else _lower_end(number) * math.sqrt(RATIO)
        return min(middle, self.worst)

    def without_bins(self) -> LatencyHistogram:
        """Mean and worst alone: small enough to be remembered of thousands of batches."""
        return LatencyHistogram(self.rows, self.total, self.worst)

    def as_saved(self) -> dict[str, Any]:
        """JSON-able; `from_saved` reads it back."""
        bins = {str(number): rows for number, rows in self.bins.items()}
        return {"rows": self.rows, "total": self.total, "worst": self.worst, "bins": bins}

    @staticmethod
    def from_saved(saved: Mapping[str, Any]) -> LatencyHistogram:
        """A ValueError, TypeError or AttributeError if that is not what it is."""
        bins = {int(number): float(rows) for number, rows in saved.get("bins", {}).items()}
        rows, total, worst = (float(saved.get(name, 0.0)) for name in ("rows", "total", "worst"))
        if not all(map(math.isfinite, [rows, total, worst, *bins.values()])):
            raise ValueError("a histogram with numbers that are none")
        return LatencyHistogram(rows, total, worst, bins)
