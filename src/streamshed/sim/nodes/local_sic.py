"""What a node knows of its queries' SIC: what it let in itself, and what their coordinators tell it (DISSP 4.3).

A query's SIC is only seen where its results come out, which is late and may be elsewhere. The coordinator tells it
to every node of the query, with the newest slide that it covers. Since then the node has let in more, or less,
than it had by then, and that difference is on its way:

    q_SIC = told + let in by now − let in by the time that was told of

Both are over a source time window. A node that was told nothing takes what it let in: on a single node that is all
there is. This keeps what is told useful for as long as the other nodes go on as before.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamshed.quality.source_time_window import SlideCounts, SourceTimeWindow


@dataclass(frozen=True, slots=True)
class Told:
    """What a coordinator says of its query."""

    sic: float
    covered: int
    """The newest slide whose rows are in it."""


class LocalSic:
    """One query on one node."""

    def __init__(self, window: SourceTimeWindow, *, predicting: bool = True) -> None:
        """`predicting`: whether to count what is on its way; else what was told is taken as it is."""
        self._window = window
        self._predicting = predicting
        self._let_in = SlideCounts(window)
        self._first: int | None = None
        self.told: Told | None = None

    def let_in(self, sic: float, sent: float) -> None:
        self._let_in.add(self._window.number(sent), sic)

    def seen(self, sent: float) -> None:
        """A batch of the query has come, whatever will become of it."""
        if self._first is None:
            self._first = self._window.number(sent)

    def lived(self, last: int) -> float:
        """Share of a window that the query has been here for: a younger one cannot have more of its SIC yet."""
        if self._first is None:
            return 1.0
        return min(1.0, max(1, last - self._first + 1) / self._window.slides)

    def share(self, last: int) -> float:
        """What was let in over the window that ends with a slide."""
        return self._let_in.total(last) / self.lived(last)

    def now(self, at: float) -> float:
        """q_SIC, as far as this node can know."""
        last = self._window.number(at)
        if self.told is None:
            return self.share(last)
        if not self._predicting:
            return self.told.sic
        return max(0.0, self.told.sic + self.share(last) - self.share(self.told.covered))
