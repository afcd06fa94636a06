"""The plans of a shed stream: which keep fraction holds for which batch times.

A batch takes the last plan whose span holds the batch's own timestamp, the one that Spark wrote into the
checkpoint's offset log before it planned the batch. So

- a batch that runs again after a crash finds the same plan, whatever was published since;
- all drops of a batch agree, and so do several queries that read the history at different moments;
- a plan that nobody renews ends by itself (`until`), and no plan means nothing to drop.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

KEPT_PLANS = 256
"""The newest plans that are kept, whatever else is."""
_NEEDED = 8  # plans behind a query's last batch, one of which its next batch has


@dataclass(frozen=True, slots=True)
class Span:
    """A keep fraction and the batch times it holds for, in milliseconds."""

    start: int
    until: int
    keep: float
    version: int
    salt: int = 0
    """Chooses which rows those are: two drops with the same salt take the same keys."""


KEEP_ALL = Span(0, 0, 1.0, 0)
"""What holds where no plan does."""


@dataclass(frozen=True, slots=True)
class History:
    """The plans of a shed stream, oldest first. Immutable: adding one gives a new history.

    >>> history = History().add(Span(1000, 9000, 0.5, 1)).add(Span(2000, 9000, 0.25, 2))
    >>> [history.at(t).keep for t in (500, 1500, 2500, 9500)]
    [1.0, 0.5, 0.25, 1.0]
    >>> History.decode(history.encode()) == history
    True
    """

    spans: tuple[Span, ...] = ()
    held: frozenset[int] = field(default=frozenset(), compare=False)
    """Starts of older plans that some query may still need for a batch that it has not finished."""

    @property
    def version(self) -> int:
        return self.spans[-1].version if self.spans else 0

    @property
    def drops(self) -> bool:
        """Whether any of the plans drops anything."""
        return any(span.keep < 1.0 for span in self.spans)

    def at(self, batch_time: int) -> Span:
        """The plan for a batch with this timestamp; the same rule as `drop_order` computes on Spark."""
        for span in reversed(self.spans):
            if span.start <= batch_time:
                if batch_time < span.until:
                    return span
                break
        return KEEP_ALL

    def add(self, span: Span) -> History:
        earlier = tuple(s for s in self.spans if s.start < span.start)
        return self._pruned((*earlier, span))

    def merge(self, other: History) -> History:
        """Both histories in one; they are parts of the same one, saved at different times.

        Nothing of the other is left out: it is what a query needs that was stopped a while ago.
        """
        held = self.held | {span.start for span in other.spans[-KEPT_PLANS:]}
        by_start = {span.start: span for span in (*self.spans, *other.spans)}
        return replace(self, held=held)._pruned(tuple(by_start[start] for start in sorted(by_start)))

    def needed_from(self, last_batches: list[int]) -> History:
        """Without the plans that no batch can ask for any more, given the times of each query's last batch.

        A query's next batch has a later time than its last; a batch in between has one of the few plans behind it.
        """
        if not last_batches:
            return self
        first = {t: max((i for i, s in enumerate(self.spans) if s.start <= t), default=0) for t in last_batches}
        held = {s.start for i in first.values() for s in self.spans[i : i + _NEEDED]}
        oldest = min(first.values())
        rest = tuple(s for s in self.spans[oldest:] if s.until > min(last_batches) or s is self.spans[-1])
        return History(rest, frozenset(held))

    def _pruned(self, spans: tuple[Span, ...]) -> History:
        newest = spans[-KEPT_PLANS:]
        older = tuple(span for span in spans[:-KEPT_PLANS] if span.start in self.held)
        return replace(self, spans=(*older, *newest))

    def as_rows(self) -> list[list[float]]:
        return [[s.start, s.until, round(s.keep, 9), s.version, s.salt] for s in self.spans]

    @staticmethod
    def from_rows(rows: list[list[float]]) -> History:
        return History(tuple(_span(*row) for row in rows))

    def encode(self) -> bytes:
        text = json.dumps({"streamshed": 1, "plans": self.as_rows()}, separators=(",", ":"))
        return text.encode()

    @staticmethod
    def decode(data: bytes) -> History:
        """Read a control file; a broken one is an empty history, as it is for Spark."""
        try:
            return History.from_rows(json.loads(data.decode())["plans"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return History()


def _span(start: float, until: float, keep: float, version: float, salt: float = 0) -> Span:
    share = float(keep)
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"no share: {keep}")
    return Span(int(start), int(until), share, int(version), int(salt))
