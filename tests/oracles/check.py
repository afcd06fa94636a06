"""What a latency target asks of one row, a class for each kind of target (Rivetti et al., V-A; Listing III.2)."""

from __future__ import annotations

from collections import deque
from typing import Protocol

PAYBACK = 100.0


class Check(Protocol):
    """A condition on queuing latencies, in any unit."""

    threshold: float

    def fits(self, wait: float) -> bool:
        """Whether the target still holds with a row that would wait so long."""
        ...

    def count(self, wait: float) -> None:
        """Such a row was let in."""
        ...


class Average:
    """AVG(τ): the mean wait of all rows admitted so far stays at most τ: (Q + q̂)/(ℓ + 1) ≤ τ."""

    def __init__(self, threshold: float, total: float = 0.0, rows: float = 0.0) -> None:
        self.threshold = threshold
        self.total = total
        self.rows = rows

    def fits(self, wait: float) -> bool:
        if self.rows and self.total / self.rows > self.threshold:
            return wait <= within_debt(self.threshold, self.total - self.threshold * self.rows)
        return (self.total + wait) / (self.rows + 1) <= self.threshold

    def count(self, wait: float) -> None:
        self.total += wait
        self.rows += 1


class FadingAverage(Average):
    """AVG(τ) over about the last `span` rows, without remembering them: a mean row leaves for each that comes."""

    def __init__(self, threshold: float, span: int, total: float = 0.0, rows: float = 0.0) -> None:
        super().__init__(threshold, total, rows)
        self.span = span

    def count(self, wait: float) -> None:
        super().count(wait)
        if self.rows > self.span:
            self.total *= self.span / self.rows
            self.rows = float(self.span)


class SlidingAverage:
    """AVG(τ) over the last `span` admitted rows, this one among them: calm times long ago earn no credit."""

    def __init__(self, threshold: float, span: int) -> None:
        self.threshold = threshold
        self.span = span
        self.recent: deque[float] = deque()
        self.total = 0.0

    def fits(self, wait: float) -> bool:
        seen = len(self.recent)
        if seen and self.total / seen > self.threshold:
            return wait <= within_debt(self.threshold, self.total - self.threshold * seen)
        return self._with(wait) / (self.span if seen == self.span else seen + 1) <= self.threshold

    def count(self, wait: float) -> None:
        self.total = self._with(wait)
        if len(self.recent) == self.span:
            self.recent.popleft()
        self.recent.append(wait)

    def _with(self, wait: float) -> float:
        return self.total - self.recent[0] + wait if len(self.recent) == self.span else self.total + wait


class Absolute:
    """ABS(τ): no row waits longer than τ."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def fits(self, wait: float) -> bool:
        return wait <= self.threshold

    def count(self, wait: float) -> None:
        pass


def within_debt(threshold: float, debt: float) -> float:
    """What a row may wait while the mean is above the target."""
    return threshold - min(threshold / 2, debt / PAYBACK)


class Gate:
    """The check, and a floor under it: of any stretch of n rows at least floor·n go in."""

    def __init__(self, check: Check, floor: float = 0.0) -> None:
        self.check = check
        self.floor = floor
        self.owed = 1.0

    def admits(self, wait: float) -> bool:
        """Whether a row that would wait so long may go in; if so, it counts from now on."""
        admitted = self.check.fits(wait)
        if self.floor:
            self.owed += self.floor
            admitted |= self.owed >= 1
            if admitted:
                self.owed = max(0.0, self.owed - 1)
        if admitted:
            self.check.count(wait)
        return admitted
