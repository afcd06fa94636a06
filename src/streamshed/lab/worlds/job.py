"""What a micro-batch costs, and what a drop with a time budget does to its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_SLOT = 0.1  # seconds: batches that begin so close together scatter alike


class Order(NamedTuple):
    """What is in force in a batch."""

    keep: float = 1.0
    budget: float | None = None
    """Seconds from the batch's own time until which rows may pass."""
    grace: float = 0.0
    """Rows that pass whatever the clock says, shared among the tasks."""
    most: float | None = None
    """Rows that pass at most: how rate limiters work."""


class Pause(NamedTuple):
    """The job stands still: from a moment on, or in the sink of the batch that runs then."""

    at: float
    seconds: float
    in_sink: bool = False


class Ran(NamedTuple):
    """What a batch did."""

    took: float
    tail: float
    """Seconds of it after the last row had come to the drop."""
    kept: float
    cut: float
    expired: float
    passing: tuple[tuple[float, float, float, float], ...]
    """Of each task: its share of the rows, and the share of these that had expired and that came in time; then the
    share of those after them that passed all the same."""
    share: float
    """Of the rows that came in time, those that passed."""


@dataclass(frozen=True)
class Job:
    """Costs are wall-clock seconds when all cores are busy.

    Rows come to the drop one after the other, in some tasks on some cores; a task has its share of the batch's
    rows in the order in which they came in. A row that passes costs `per_kept` on top of `per_arrived`.
    """

    fixed: float = 0.15
    """Before the first row comes to the drop: planning, scheduling."""
    commit: float = 0.1
    """After the last one: sink, commit."""
    per_kept: float = 1e-3
    per_arrived: float = 3e-5
    behind: float = 0.0
    """Seconds a kept row after the last row has come to the drop: behind a shuffle, in a slow sink."""
    cores: int = 2
    tasks: int = 2
    skew: float = 0.0
    """How much more than its part the first task has, of all rows."""
    slower: Callable[[float], float] = lambda t: 1.0
    """How many times the above a batch costs that begins at t."""
    cold: tuple[float, float] = (1.0, 20.0)
    """A JVM that compiles: so many times the cost at first, and the usual one after so many seconds."""
    noise: float = 0.0
    """Scatter of the durations: standard deviation of their logarithm."""
    pauses: tuple[Pause, ...] = ()
    interval: float = 0.0
    """Trigger interval."""
    listing: float = 0.0
    """A batch first looks so long what there is, and is then given its time."""
    planning: float = 0.0
    """So long after that it is planned, and is given its time budget."""
    most: int | None = None
    """Rows that a batch takes at most (maxOffsetsPerTrigger, maxFilesPerTrigger)."""
    tells_backlog: bool = False
    """Whether the source tells what it holds back, as Kafka does and files do not."""
    tells_tail: bool = True
    """Whether the runtime knows how long it takes behind the drop."""
    drains: bool = False
    """Takes what is there at the start and ends (availableNow)."""
    protected: float = 0.0
    """Share of the rows that passes whatever the plan says."""
    expires: bool = False
    """Whether rows that are older than the bound when their batch begins are dropped first."""

    @property
    def capacity(self) -> float:
        """Rows a second, if batches were endless."""
        return 1.0 / (self.per_kept + self.per_arrived + self.behind)

    @property
    def parts(self) -> tuple[float, ...]:
        """Each task's share of the rows."""
        return tuple((1.0 - self.skew) / self.tasks + (self.skew if n == 0 else 0.0) for n in range(self.tasks))

    @property
    def unevenness(self) -> float:
        """How many times as long the busiest core works as if all had the same."""
        spent = [0.0] * self.cores
        for part in self.parts:
            spent[spent.index(min(spent))] += part
        return max(spent) * self.cores

    def calm(self) -> Job:
        """The same job without what it recovers from by itself: no pauses, warm from the start."""
        return replace(self, pauses=(), cold=(1.0, 20.0))

    @cached_property
    def _scatter(self) -> NDArray[np.float64]:
        return np.exp(np.random.default_rng(7).normal(0.0, self.noise, 4096))

    def factor(self, start: float) -> float:
        """How many times the usual a batch costs that begins then."""
        scatter = float(self._scatter[int(max(0.0, start) / _SLOT) % 4096]) if self.noise else 1.0
        return scatter * self.mean_factor(start)

    def mean_factor(self, start: float) -> float:
        """The same without the scatter."""
        most, seconds = self.cold
        return (1.0 + (most - 1.0) * max(0.0, 1.0 - start / seconds)) * self.slower(start)

    def next_trigger(self, start: float) -> float:
        """Spark starts batches at multiples of the interval; late ones at once."""
        return 0.0 if self.interval == 0 else (start // self.interval + 1) * self.interval

    def stood_still(self, since: float, until: float) -> float:
        """Seconds in which nothing moved."""
        spans = (min(until, p.at + p.seconds) - max(since, p.at) for p in self.pauses if not p.in_sink)
        return sum(span for span in spans if span > 0)

    def moving(self, since: float, work: float) -> float:
        """When something is over that began then and takes so long while nothing stands still."""
        now, left = since, work
        for pause in sorted(self.pauses):
            if pause.in_sink or pause.at + pause.seconds <= now:
                continue
            if now + left <= pause.at:
                break
            left -= max(0.0, pause.at - now)
            now = pause.at + pause.seconds
        return now + left

    def run(
        self, start: float, rows: float, order: Order, expired: float = 0.0, *, idle_since: float | None = None
    ) -> Ran:
        """A batch that is given its time at `start`; `expired` is the share of its rows that is too old by then.

        A sink that was to sleep since the last batch was over sleeps now.
        """
        factor = self.factor(start)
        kept_row, read_row = self.cores * self.per_kept * factor, self.cores * self.per_arrived * factor
        share = self.protected + (1.0 - self.protected) * order.keep
        if order.most is not None and rows > 0:
            share = min(share, max(self.protected, order.most / rows))
        row = read_row + share * kept_row
        begin = self.fixed * factor
        due = float("inf")
        if order.budget is not None:
            due = order.budget - self.stood_still(start, start + order.budget)
        spent = [begin] * self.cores
        passing = []
        for part in self.parts:
            old = rows * part * expired
            mine = rows * part - old
            core = spent.index(min(spent))
            spent[core] += old * read_row
            in_time = min(mine, max(0.0, due - spent[core]) / row) if row > 0 else mine
            in_time = max(in_time, min(mine, order.grace / self.tasks / share if share > 0 else mine))
            after = mine - in_time
            spent[core] += in_time * row + after * (read_row + self.protected * kept_row)
            passing.append((part, expired, in_time / mine * (1.0 - expired) if mine else 0.0, self.protected))
        here = sum(p * (t * share + (1 - e - t) * s) for p, e, t, s in passing) * rows
        cut = sum(p * (1 - e - t) * (share - s) for p, e, t, s in passing) * rows
        tail = (self.commit + self.behind * here) * factor
        ended = self.moving(start, max(spent)) if rows else start + begin
        over = self.moving(ended, tail)
        for pause in self.pauses:
            if pause.in_sink and (start if idle_since is None else idle_since) <= pause.at < over:
                over += pause.seconds
        return Ran(over - start, over - ended, here, cut, rows * expired, tuple(passing), share)
