"""The source time window (STW): over which time a query's SIC is taken (DISSP 4.2).

A result is made of rows that came at different times, and nobody knows beforehand of which. So the SIC is taken
over a window that slides by small steps, the slides, both where rows are sent and where results come out:

    SIC(t) = 1/|S| · Σₛ (rows of s that went into results) / (rows that s sent),   slides t−D−STW … t−D

D is the query's delay, measured: rows younger than that may still be on their way and are no loss yet. What a
batch carries is therefore not just a number: it is rows by source and slide (`Mass`), of which `row_sic` makes the
number that shedders compare. A source that sent nothing in the window is not counted at all; when none did,
nothing was lost.

The window must be longer than the delay, as DISSP says, or the results of a window's rows come after it is over:
`QueryWindow.too_short` has the measured delay then.

>>> window = SourceTimeWindow(seconds=10, slide=0.5)
>>> query = QueryWindow(window, ["s"])
>>> for second in range(20):
...     mass = query.sent("s", rows=100, at=second)
...     query.delivered(thinned(mass, 0.5), at=second + 1.0)
>>> query.sic(at=20.0), query.delay
(0.5, 1.0)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamshed.errors import InvalidArgument

Mass = Mapping[tuple[str, int], float]
"""Rows that went into something, by source and slide in which they were sent."""


@dataclass(frozen=True, slots=True)
class SourceTimeWindow:
    seconds: float = 10.0
    slide: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.slide <= self.seconds < math.inf:
            raise InvalidArgument(
                "not a source time window",
                got=f"{self.seconds} s, sliding by {self.slide} s",
                hint="seconds above 0, and a slide that is not longer",
            )

    def number(self, at: float) -> int:
        """Of the slide that a time lies in."""
        return math.floor(at / self.slide + 1e-9)

    @property
    def slides(self) -> int:
        return max(1, round(self.seconds / self.slide))


def together(masses: Iterable[Mass]) -> dict[tuple[str, int], float]:
    """What a box passes on: the sum of what came in (eq. 4.1)."""
    found: dict[tuple[str, int], float] = {}
    for mass in masses:
        for key, rows in mass.items():
            found[key] = found.get(key, 0.0) + rows
    return found


def thinned(mass: Mass, share: float) -> dict[tuple[str, int], float]:
    """A part of it: one way out of several, or what a drop leaves."""
    return {key: rows * share for key, rows in mass.items()}


class SlideCounts:
    """Amounts by slide, of the last few windows."""

    def __init__(self, window: SourceTimeWindow, windows: int = 4) -> None:
        self._window = window
        self._kept = windows * window.slides
        self._amounts: dict[int, float] = {}

    def add(self, slide: int, amount: float) -> None:
        if slide not in self._amounts and len(self._amounts) >= self._kept:
            newest = max(slide, *self._amounts)
            self._amounts = {key: old for key, old in self._amounts.items() if key > newest - self._kept}
        self._amounts[slide] = self._amounts.get(slide, 0.0) + amount

    def total(self, last: int) -> float:
        """Over the window whose last slide this is."""
        return sum(self._amounts.get(slide, 0.0) for slide in range(last - self._window.slides + 1, last + 1))

    @property
    def first(self) -> int | None:
        """The oldest slide known."""
        return min(self._amounts, default=None)


class QueryWindow:
    """The account of one query: what its sources sent, and what came out at its results."""

    def __init__(self, window: SourceTimeWindow, sources: Sequence[str]) -> None:
        if not sources:
            raise InvalidArgument("a query without sources has no information", hint="name at least one source")
        self.window = window
        self._sent = {source: SlideCounts(window) for source in sources}
        self._delivered = {source: SlideCounts(window) for source in sources}
        self._delays: deque[tuple[float, float]] = deque()
        """(when, how old), falling: the first is the longest of the last window."""
        self._begun: dict[str, float] = {}
        self._all = {source: [0.0, 0.0] for source in sources}
        self._heard = False
        """Whether a result ever came out."""

    def sent(self, source: str, rows: float, at: float) -> dict[tuple[str, int], float]:
        """A source has sent rows; returns what they carry."""
        slide = self.window.number(at)
        self._sent[source].add(slide, rows)
        self._all[source][0] += rows
        self._begun.setdefault(source, at)
        return {(source, slide): float(rows)}

    def row_sic(self, source: str, at: float) -> float:
        """What one row of a source counts: 1 / (|S| · rows in the STW); 0 for one that sends nothing.

        While a source is younger than the window, as if it had sent at this rate all the time.
        """
        last = self.window.number(at)
        active = sum(sent.total(last) > 0 for sent in self._sent.values())
        rows = self._sent[source].total(last)
        if not rows:
            return 0.0
        lived = (last - self.window.number(self._begun[source]) + 1) * self.window.slide
        return min(1.0, lived / self.window.seconds) / (active * rows)

    def delivered(self, mass: Mass, at: float) -> None:
        """A result has come out."""
        self._heard |= bool(mass)
        for (source, _), rows in mass.items():
            self._all[source][1] += rows
        for (source, slide), rows in mass.items():
            self._delivered[source].add(slide, rows)
            delay = max(0.0, at - slide * self.window.slide)
            while self._delays and self._delays[-1][1] <= delay:
                self._delays.pop()
            self._delays.append((at, delay))

    def totals(self) -> dict[str, tuple[float, float]]:
        """By source, since the beginning: rows sent, and rows that went into results."""
        return {source: (sent, reached) for source, (sent, reached) in self._all.items()}

    @property
    def delay(self) -> float:
        """Seconds from when a row was sent until the results it went into were there, at the longest."""
        return self._delays[0][1] if self._delays else 0.0

    @property
    def too_short(self) -> float | None:
        """The measured delay, if the window is not longer than it."""
        return self.delay if self.delay >= self.window.seconds else None

    def covered(self, at: float) -> int:
        """The newest slide whose rows have had the time to become results."""
        while self._delays and self._delays[0][0] < at - self.window.seconds:
            self._delays.popleft()
        # A slide's last row is sent a slide after its first.
        return self.window.number(at - self.delay - self.window.slide)

    def sic(self, at: float) -> float:
        """In [0, 1]; 1 when nothing was lost, when nothing was sent, and before the first result is due."""
        if not self._heard and at - min(self._begun.values(), default=at) < self.window.seconds:
            return 1.0
        last = self.covered(at)
        shares = []
        for source, sent in self._sent.items():
            rows = sent.total(last)
            if rows > 0:
                shares.append(min(1.0, self._delivered[source].total(last) / rows))
        return sum(shares) / len(shares) if shares else 1.0
