"""Micro-batches one after the other in virtual time, and what a shedder hears of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from streamshed.lab.worlds.arrivals import Arrivals, Floats
from streamshed.lab.worlds.job import Job, Order, Ran
from streamshed.quality import Ledger
from streamshed.records import Mode, Plan, Sample

REPORT = 0.2  # seconds from the end of a batch to its report
PUBLISHED = 0.03  # seconds until a plan can be found by a batch
_BEGAN = -0.5  # since when rows that come to the first batch have come in
_IDLE = 0.05  # seconds between two looks for rows
_LEISURE = 0.25  # seconds after a batch from which on a source that gives nothing has nothing
_FIRST_ONES = 5  # batches behind which that is told
_PIECES = 40
_LONG, _MANY, _ASKED_EVERY = 1.0, 2.0, 2.0  # as in `QueryWatch`: when the runtime's books are asked


class Shedder(Protocol):
    """What an engine is run under: the controller, or something in its place."""

    @property
    def latency(self) -> float: ...

    @property
    def plan(self) -> Plan: ...

    def observe(self, sample: Sample) -> Plan: ...


@dataclass(frozen=True)
class Batch:
    """What a batch did, and when its rows had come in."""

    sample: Sample
    rows: tuple[float, float]
    """The numbers of its first row and of the one after its last."""
    ran: Ran

    def latencies(self, arrivals: Arrivals) -> tuple[Floats, Floats]:
        """Latency (wait and batch together) and number of kept rows, in pieces of the batch."""
        edges = np.arange(_PIECES + 1) / _PIECES
        first, last = self.rows
        when = arrivals.when(first + (edges[:-1] + edges[1:]) / 2 * (last - first))
        return self.sample.at - when, np.diff(self.kept_until(edges)) * (last - first)

    def kept_until(self, place: Floats) -> Floats:
        """Share of the batch kept up to a place in it: 0 where the oldest rows are, 1 where the newest are."""
        found = np.zeros_like(place)
        for part, old, in_time, after in self.ran.passing:
            behind = np.maximum(0.0, place - old)
            passed = self.ran.share * np.minimum(behind, in_time) + after * np.maximum(0.0, behind - in_time)
            found += part * passed
        return found


class Engine:
    """Runs a job. Reports come 0.2 s late, as on Spark, and a long batch is looked at while it runs.

    A plan reaches the batch that begins after it was published: seldom the next one, mostly the one behind it.
    """

    def __init__(self, shedder: Shedder, job: Job, arrivals: Arrivals) -> None:
        self.shedder = shedder
        self.job = job
        self.arrivals = arrivals
        self.batches: list[Batch] = []
        self.seen: list[Sample] = []
        """What the shedder was told, looks at running batches included."""
        self.ledger = Ledger()
        begin = getattr(shedder, "begin", None)
        first = shedder.plan if begin is None else begin("q", interval=job.interval, draining=job.drains)
        self.plans: list[tuple[float, Plan]] = [(float("-inf"), first)]
        """Which plan is found by a batch, from when on."""

    @property
    def samples(self) -> list[Sample]:
        return [batch.sample for batch in self.batches]

    def run(self, seconds: float) -> list[Sample]:
        job = self.job
        clock, last_start, last_end, taken = 0.0, _BEGAN, 0.0, 0.0
        pending: Sample | None = None
        number, next_asked, told_of, told_idle = 0, 0.0, 0.0, 0
        while clock < seconds:
            there = float(self.arrivals.until(clock))
            rows = there - taken if job.most is None else min(job.most, there - taken)
            if rows < 1:
                if job.drains:
                    break
                if 0 < number <= _FIRST_ONES and told_idle < number and clock > last_end + max(REPORT, _LEISURE):
                    if pending is not None:
                        now = self._plan_at(pending.at + REPORT)
                        self._tell(replace(pending, keep_next=now.keep, next_started=False), pending.at + REPORT)
                        pending = None
                    self._tell(self._idle_look(clock), clock)
                    told_idle = number
                clock = max(clock + _IDLE, job.next_trigger(clock))
                continue
            begins, start = clock, clock + job.listing
            if pending is not None and start > pending.at + REPORT:
                now = self._plan_at(pending.at + REPORT)
                self._tell(replace(pending, keep_next=now.keep, next_started=False), pending.at + REPORT)
                pending = None
            plan, planned = self._plan_at(start), start + job.planning
            if pending is not None and max(start, pending.at) + REPORT <= planned:
                reported = max(start, pending.at) + REPORT
                self._tell(replace(pending, keep_next=plan.keep, next_planned=False), reported)
                pending = None
            timed = self._plan_at(planned)
            old = self._expired(taken, rows, start) if plan.mode is Mode.ENFORCE else 0.0
            ran = job.run(start, rows, order_of(plan, timed), old, idle_since=last_end)
            whole = round(taken + rows) - round(taken)
            expired, cut = min(whole, round(ran.expired)), round(ran.cut)
            thinned = round(rows - ran.kept - ran.cut - ran.expired)
            cut = min(cut, whole - expired)
            end = start + ran.took
            if pending is not None:
                self._tell(replace(pending, keep_next=plan.keep), max(start, pending.at) + REPORT)
            self._look(begins, end, plan, round(rows) if job.tells_backlog else 0)
            asked = cut > 0 or ran.took >= _LONG or rows > _MANY * told_of or end >= next_asked
            if asked:
                next_asked, told_of = end + _ASKED_EVERY, rows
            oldest = float(self.arrivals.when(taken))
            pending = Sample(
                at=end,
                started=begins,
                arrived=whole,
                kept=max(0, whole - expired - cut - thinned),
                cut=cut,
                expired=expired,
                tail=ran.tail if asked and job.tells_tail else 0.0,
                tasks=job.tasks if asked else 0,
                cores=job.cores,
                # A query's first batch has none before it, so nobody knows over which time its rows came in.
                gap=begins - last_start if number else 0.0,
                waited=begins - oldest,
                interval=job.interval,
                backlog=there - taken - rows if job.tells_backlog else 0.0,
                keep=plan.keep,
                version=plan.version,
                draining=job.drains,
                query="q",
                batch=number,
            )
            self.batches.append(Batch(pending, (taken, taken + rows), ran))
            taken += rows
            last_start, last_end, number = begins, end, number + 1
            clock = max(end, job.next_trigger(begins))
        if pending is not None:
            self._tell(pending, pending.at + REPORT)
        return self.samples

    def _expired(self, taken: float, rows: float, start: float) -> float:
        """Share of a batch's rows that is too old when it begins."""
        if not self.job.expires:
            return 0.0
        old = float(self.arrivals.until(start - self.shedder.latency)) - taken
        return min(1.0, max(0.0, old / rows))

    def _idle_look(self, now: float) -> Sample:
        """A look when nothing runs, as `QueryWatch.look` has it behind the first batches."""
        job = self.job
        return Sample(
            at=now, started=now, interval=job.interval, finished=False, next_started=False, draining=job.drains,
            query="q",
        )  # fmt: skip

    def _look(self, start: float, end: float, plan: Plan, rows: int) -> None:
        """Looks at a running batch, as `QueryWatch.look` has them; where the source counts, its rows are known."""
        look = start + getattr(self.shedder, "look_after", 0.4 * self.shedder.latency)
        while look < end:
            running = Sample(
                at=look,
                started=start,
                arrived=rows,
                interval=self.job.interval,
                keep=plan.keep,
                keep_next=plan.keep,
                version=plan.version,
                finished=False,
                draining=self.job.drains,
                query="q",
            )
            self._tell(running, look)
            look += max(0.08 * (look - start), 0.05)

    def _tell(self, sample: Sample, now: float) -> None:
        self.seen.append(sample)
        plan = self.shedder.observe(sample)
        self.plans.append((now + PUBLISHED, plan))
        if sample.finished:
            would = getattr(self.shedder, "would_shed", None)
            self.ledger.record(
                sample, plan, bound=self.shedder.latency, would_shed=None if would is None else would(sample.query)
            )

    def _plan_at(self, moment: float) -> Plan:
        return next(plan for since, plan in reversed(self.plans) if since <= moment)

    def kept(self) -> Iterator[tuple[Batch, Floats, Floats]]:
        """Of each batch, latencies and numbers of the rows that it kept."""
        for batch in self.batches:
            yield (batch, *batch.latencies(self.arrivals))


def order_of(plan: Plan, timed: Plan) -> Order:
    """What a batch does that begins under one plan and is given the time of another.

    A rate limiter's plan says how many rows may pass.
    """
    return Order(plan.keep, timed.budget, timed.grace, getattr(plan, "most", None))
