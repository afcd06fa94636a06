"""Dry-run: what enforcing would have done, played in virtual time over the rows that were counted.

Nothing is dropped in a dry-run, so under overload its batches grow as they would not otherwise, and say nothing of
those that enforcing would have had. What arrived when, and what batches cost, they do tell.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamshed.loop.batch_cost import CostModel, FrozenCost
from streamshed.loop.overload import longest
from streamshed.records import Overload, Sample

if TYPE_CHECKING:
    from streamshed.loop.query_load import QueryLoad

_FIXED = 0.1  # share of a batch that is no rows', if nobody knows
_SHORTEST = 0.05  # seconds: a batch takes at least this


class DryRun:
    """A virtual query: it gets the rows that the real one got, and sheds as a plan would."""

    def __init__(self, load: Callable[[CostModel], QueryLoad], cost: CostModel) -> None:
        """`load` makes what watches the virtual query, with costs that are those of the real one."""
        self.overload: Overload | None = None
        self._cost = FrozenCost(cost)
        self._load = load(self._cost)
        self._shortest = math.inf
        self._backlog = 0.0
        self._arrived: deque[tuple[float, float, float]] = deque()
        self._start: float | None = None
        self._last_start = 0.0
        self._keep = self._keep_next = 1.0

    def observe(self, sample: Sample) -> float:
        """Take in a finished batch, in units of work; tell how much enforcing would have shed until it began."""
        # What a source holds back has come, too; and into an idle query rows come all at once.
        rows, self._backlog = sample.arrived + sample.backlog - self._backlog, sample.backlog
        since = sample.started - min(sample.gap, sample.waited)
        self._arrived.append((since, sample.started, max(0.0, rows)))
        if self._start is None:
            self._start, self._last_start = sample.started, since
        self._shortest = min(self._shortest, sample.duration)
        most = longest(self._load.latency, sample.interval)
        # Batches that were all too long cannot tell what a short one costs; a cold start looks like a fixed cost.
        self._cost.most_fixed = math.inf if self._shortest < most else _FIXED * most
        if not self._cost.ready:
            return 0.0
        shed = 0.0
        while self._arrived and self._start <= sample.started:
            rows = self._take(self._start)
            if rows < 1:
                self._start = max(self._start + _SHORTEST, self._next_arrival())
                continue
            shed += rows - self._batch(sample, rows)
        return shed

    def _batch(self, sample: Sample, rows: float) -> float:
        """What one virtual batch keeps: thinned by the plan that reached it, and cut when its time is used up."""
        assert self._start is not None
        start, keep = self._start, self._keep
        wanted = rows * keep
        took = self._cost.predict(rows, wanted)
        cut = 0.0
        allowance = self._load.allowance
        if allowance is not None and took > allowance.length:
            passed = min(wanted, max(float(allowance.grace), self._cost.fitting(rows, allowance.length)))
            cut, took = wanted - passed, self._cost.predict(rows, passed)
        took = max(took, _SHORTEST)
        batch = Sample(
            at=start + took,
            started=start,
            arrived=round(rows),
            kept=round(wanted - cut),
            cut=round(cut),
            tasks=1,
            gap=start - self._last_start,
            waited=start - self._last_start,
            interval=sample.interval,
            keep=keep,
            keep_next=self._keep_next,
            query=sample.query,
        )
        self._load.observe(batch)
        self.overload = self._load.overload()
        # As on Spark: what is planned when a batch is reported is for the one behind the next.
        self._keep, self._keep_next = self._keep_next, 1.0 if self.overload is None else self.overload.share
        self._last_start, self._start = start, start + max(took, sample.interval)
        return wanted - cut

    def _take(self, until: float) -> float:
        """Rows that have come by then, and were not taken."""
        rows = 0.0
        while self._arrived and self._arrived[0][0] <= until:
            since, end, count = self._arrived.popleft()
            if end <= until:
                rows += count
                continue
            part = count * (until - since) / (end - since)
            self._arrived.appendleft((until, end, count - part))
            return rows + part
        return rows

    def _next_arrival(self) -> float:
        return self._arrived[0][0] if self._arrived else 0.0
