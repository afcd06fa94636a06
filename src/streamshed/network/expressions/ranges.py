"""Sets of numbers as unions of half-open intervals `[low, high)`.

A closed or open end is told apart by one floating-point step, so that every comparison has an exact set:
`x > 5` is `[nextafter(5), ∞)`, `x <= 5` is `(−∞, nextafter(5))`. Sets are kept sorted, disjoint and
non-adjacent; equal sets are equal objects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

INF = math.inf


def above(value: float) -> float:
    """The next number up: the end of a half-open interval that contains `value`."""
    return math.nextafter(value, INF)


@dataclass(frozen=True, slots=True)
class Ranges:
    """A set of numbers.

    >>> low = Ranges.between(0, 25)
    >>> print((low | Ranges.between(25, 50)).render("value"))
    value >= 0 AND value < 50
    >>> print((~low).render("value"))
    value < 0 OR value >= 25
    >>> print(Ranges.of(((above(75), INF),)).render("value"))
    value > 75
    """

    intervals: tuple[tuple[float, float], ...] = ()

    @staticmethod
    def of(intervals: Iterable[tuple[float, float]]) -> Ranges:
        """The union of intervals in any order; empty ones vanish, touching ones merge."""
        merged: list[tuple[float, float]] = []
        for low, high in sorted(intervals):
            if not low < high:
                continue
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return Ranges(tuple(merged))

    @staticmethod
    def between(low: float, high: float) -> Ranges:
        """`[low, high)`."""
        return Ranges.of(((low, high),))

    @staticmethod
    def everything() -> Ranges:
        return Ranges(((-INF, INF),))

    @staticmethod
    def nothing() -> Ranges:
        return Ranges()

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return iter(self.intervals)

    def __contains__(self, value: float) -> bool:
        return any(low <= value < high for low, high in self.intervals)

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges.of(self.intervals + other.intervals)

    def __and__(self, other: Ranges) -> Ranges:
        return Ranges.of(
            (max(a, c), min(b, d)) for a, b in self.intervals for c, d in other.intervals if a < d and c < b
        )

    def __invert__(self) -> Ranges:
        edges = [-INF, *(edge for interval in self.intervals for edge in interval), INF]
        return Ranges.of(zip(edges[::2], edges[1::2], strict=True))

    def __sub__(self, other: Ranges) -> Ranges:
        return self & ~other

    def __le__(self, other: Ranges) -> bool:
        """Whether this is a subset of the other."""
        return not self - other

    def render(self, field: str, *, integers: bool = False) -> str:
        """A SQL predicate that is true for exactly these values of `field`.

        For a field of integers, an end between two integers is given as the one below it:

        >>> Ranges.between(75.5, INF).render("value", integers=True)
        'value > 75'
        """
        if not self.intervals:
            return "FALSE"
        if self == Ranges.everything():
            return "TRUE"
        parts = []
        for low, high in self.intervals:
            ends = []
            if low != -INF:
                ends.append(f"{field} {_end(low, integers, '>', '>=')}")
            if high != INF:
                ends.append(f"{field} {_end(high, integers, '<=', '<')}")
            parts.append(" AND ".join(ends))
        if len(parts) == 1:
            return parts[0]
        return " OR ".join(f"({part})" if " AND " in part else part for part in parts)


def _end(value: float, integers: bool, exclusive: str, inclusive: str) -> str:
    if integers and value != math.floor(value):
        return f"{exclusive} {math.floor(value)}"
    before = math.nextafter(value, -INF)
    if len(number(before)) < len(number(value)):
        return f"{exclusive} {number(before)}"
    return f"{inclusive} {number(value)}"


def number(value: float) -> str:
    """A number as SQL takes it, whole ones without a point."""
    return str(int(value)) if abs(value) < 1e15 and value == math.floor(value) else repr(float(value))
