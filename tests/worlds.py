"""Spark's micro-batches in virtual time, in a closed loop with the real controller: no clock, no Spark, exact.

    python -m tests.worlds        prints what the controller does in each world

A world is a job (what a batch costs, when the next one starts, when it pauses), the rows that come to it, and a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from streamshed.arbiter import Limits
from streamshed.controller import Controller
from streamshed.policies import RandomShedding
from streamshed.quality import Ledger
from streamshed.records import Mode, Plan, Sample

FIXED, PER_KEPT, PER_ARRIVED = 0.25, 1e-3, 3e-5  # seconds: about 950 rows a second
CAPACITY = 950.0
REPORT = 0.2  # seconds from the end of a batch to its report
PUBLISHED = 0.03  # seconds until a plan can be found by a batch


@dataclass(frozen=True)
class Job:
    """What a batch costs, and when the next one starts. Times are seconds."""

    fixed: float = FIXED
    per_kept: float = PER_KEPT
    per_arrived: float = PER_ARRIVED
    slower: Callable[[float], float] = lambda t: 1.0
    """How many times the above a batch costs that starts at t: a cold JVM, a change of cost."""
    noise: float = 0.0
    """Scatter of the durations: standard deviation of their logarithm."""
    pause: Callable[[int], float] = lambda number: 0.0
    """How long a batch stands still, by its number: a sink that sleeps, a garbage collection."""
    interval: float = 0.0
    """Trigger interval."""
    listing: float = 0.0
    """A batch first looks so long what there is, and then chooses its plan."""
    most: int | None = None
    """Rows that a batch takes at most (maxOffsetsPerTrigger, maxFilesPerTrigger)."""
    tells_backlog: bool = False
    """Whether the source tells what it holds back, as Kafka does and files do not."""
    drains: bool = False
    """Takes what is there at the start and ends (availableNow)."""
    protected: float = 0.0
    """Share of the rows that passes whatever the plan says."""


@dataclass(frozen=True)
class Parcel:
    """Rows that came in evenly between two moments."""

    since: float
    until: float
    rows: int

    def split(self, rows: int) -> tuple[Parcel, Parcel]:
        """The first so many rows, and the others."""
        at = self.since + (self.until - self.since) * rows / self.rows
        return Parcel(self.since, at, rows), Parcel(at, self.until, self.rows - rows)


@dataclass(frozen=True)
class Batch:
    """What a batch did, and when its rows had come in."""

    sample: Sample
    parcels: tuple[Parcel, ...]

    def latencies(self, pieces: int = 20) -> Iterable[tuple[float, float]]:
        """Latency (wait and batch together) and number of the kept rows, in some pieces a parcel."""
        share = self.sample.kept / self.sample.arrived
        for parcel in self.parcels:
            for arrival in np.linspace(parcel.since, parcel.until, 2 * pieces + 1)[1::2]:
                yield self.sample.at - float(arrival), parcel.rows * share / pieces


class Engine:
    """Micro-batches one after the other, at known costs; reports 0.2 s late, as Spark does.

    A plan reaches the batch that begins after it was published: seldom the next one, mostly the one behind it.
    """

    def __init__(
        self, controller: Controller, rate: Callable[[float], float], job: Job | None = None, backlog: int = 0
    ) -> None:
        """`rate` is rows a second at a moment; `backlog` rows have come in at that rate before the start."""
        self.controller = controller
        self.rate = rate
        self.job = job or Job()
        self.batches: list[Batch] = []
        self.samples: list[Sample] = []
        """Of all batches, as they were."""
        self.seen: list[Sample] = []
        """What the controller was told, looks at running batches included."""
        self.ledger = Ledger()
        self.plans: list[tuple[float, Plan]] = [(0.0, controller.plan)]
        """Which plan is found by a batch, from when on."""
        self._rng = np.random.default_rng(7)
        self._waiting: deque[Parcel] = deque()
        if backlog:
            self._waiting.append(Parcel(-backlog / rate(0.0) if rate(0.0) > 0 else 0.0, -0.5, backlog))

    def run(self, seconds: float) -> list[Sample]:
        job = self.job
        clock, last_start, pending = 0.0, -0.5, None
        counted = last_start
        number = 0
        while clock < seconds:
            start = clock
            if self._come_in(counted, start):
                counted = start
            parcels = tuple(self._take())
            rows = sum(parcel.rows for parcel in parcels)
            if rows == 0:
                if job.drains:
                    break
                clock = self._next_trigger(start) if job.interval else start + 0.05
                continue
            if pending is not None and start + job.listing > pending.at + REPORT:
                now = self._keep_at(pending.at + REPORT)
                self._tell(replace(pending, keep_next=now, next_started=False), pending.at + REPORT)
                pending = None
            keep = self._keep_at(start + job.listing)
            kept = int(rows * (job.protected + (1 - job.protected) * keep))
            end = start + self._takes(number, start, rows, kept)
            self._play_reports(start, end, keep, pending)
            # A query's first batch has none before it, so nobody knows over which time its rows came in.
            gap = start - last_start if number else 0.0
            pending = Sample(
                at=end,
                started=start,
                arrived=rows,
                kept=kept,
                gap=gap,
                waited=start - parcels[0].since,
                interval=job.interval,
                backlog=float(sum(parcel.rows for parcel in self._waiting)) if job.tells_backlog else 0.0,
                keep=keep,
                query="q",
                batch=number,
            )
            self.samples.append(pending)
            self.batches.append(Batch(pending, parcels))
            last_start, clock, number = start, max(end, self._next_trigger(start)), number + 1
        if pending is not None:
            self._enter(pending)
        return self.samples

    def _come_in(self, since: float, until: float) -> bool:
        steps = np.linspace(since, until, 50)
        rows = int(np.mean([self.rate(t) for t in steps]) * (until - since))
        if rows > 0:
            self._waiting.append(Parcel(since, until, rows))
        return rows > 0

    def _take(self) -> Iterable[Parcel]:
        """What waits, oldest first, as far as a batch takes it."""
        room = self.job.most
        while self._waiting and room != 0:
            parcel = self._waiting.popleft()
            if room is not None and parcel.rows > room:
                parcel, rest = parcel.split(room)
                self._waiting.appendleft(rest)
            room = None if room is None else room - parcel.rows
            yield parcel

    def _takes(self, number: int, start: float, rows: int, kept: int) -> float:
        job = self.job
        scatter = float(np.exp(self._rng.normal(0, job.noise))) if job.noise else 1.0
        work = job.fixed + job.per_kept * kept + job.per_arrived * rows
        return work * scatter * job.slower(start) + job.pause(number)

    def _next_trigger(self, start: float) -> float:
        """Spark starts batches at multiples of the interval; late ones at once."""
        interval = self.job.interval
        return 0.0 if interval == 0 else (start // interval + 1) * interval

    def _play_reports(self, start: float, end: float, keep: float, pending: Sample | None) -> None:
        """While a batch runs: the report of the one before, then looks at this one, as `QueryWatch.look` does."""
        if pending is not None:
            self._tell(replace(pending, keep_next=keep), max(start, pending.at) + REPORT)
        look = start + 0.4 * self.controller.latency
        while look < end:
            running = Sample(
                at=look,
                started=start,
                interval=self.job.interval,
                keep=keep,
                keep_next=keep,
                finished=False,
                query="q",
            )
            self._tell(running, look)
            look += max(0.08 * (look - start), 0.05)

    def _tell(self, sample: Sample, now: float) -> None:
        if sample.finished:
            self._enter(sample)
        self.seen.append(sample)
        self.plans.append((now + PUBLISHED, self.controller.observe(sample)))

    def _enter(self, sample: Sample) -> None:
        """Into the books, under the plan that is in force when a batch is reported, as on Spark."""
        self.ledger.record(sample, self.controller.plan, bound=self.controller.latency)

    def _keep_at(self, moment: float) -> float:
        return next(plan for since, plan in reversed(self.plans) if since <= moment).keep()
