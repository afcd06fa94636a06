"""Spark's micro-batches in virtual time, in a closed loop with the real controller: no clock, no Spark, exact.

    python -m tests.worlds        prints what the controller does in each world

A world is a job (what a batch costs, when the next one starts, when it pauses), the rows that come, and a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from streamshed.loop.arbiter import Limits
from streamshed.loop.controller import Controller
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
                draining=job.drains,
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
        """Whether all that came in since then is whole rows; a part of one is counted with the next."""
        rows = float(np.mean([self.rate(t) for t in np.linspace(since, until, 50)])) * (until - since)
        if rows >= 1:
            self._waiting.append(Parcel(since, until, int(rows)))
        return rows == 0 or rows >= 1

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
                draining=self.job.drains,
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
        return next(plan for since, plan in reversed(self.plans) if since <= moment).keep


@dataclass(frozen=True)
class World:
    """A job, what comes to it, and the bound that it is given."""

    name: str
    must: str
    """What has to hold, in words."""
    bound: float
    rate: Callable[[float], float]
    seconds: float
    job: Job = field(default_factory=Job)
    backlog: int = 0

    def play(self, mode: Mode = Mode.ENFORCE) -> Outcome:
        controller = Controller(RandomShedding("s"), latency=self.bound, limits=Limits(mode=mode))
        engine = Engine(controller, self.rate, self.job, self.backlog)
        engine.run(self.seconds)
        return Outcome(self, engine)


@dataclass(frozen=True)
class Outcome:
    """What became of the rows."""

    world: World
    engine: Engine

    @property
    def shed(self) -> float:
        """Share of all rows that was dropped; in dry-run, that would have been."""
        report = self.engine.ledger.report()
        return (report.shed + report.would_shed) / report.arrived

    def late(self, after: float = 0.0) -> float:
        """Share of the kept rows that was later than the bound, of batches that began after a moment."""
        rows = [(late, n) for batch in self._began(after) for late, n in batch.latencies()]
        return sum(n for late, n in rows if late > self.world.bound) / sum(n for _, n in rows)

    def p99(self, after: float = 0.0) -> float:
        """The latency that 99 % of the kept rows stayed below, in bounds."""
        rows = sorted((late, n) for batch in self._began(after) for late, n in batch.latencies())
        total = np.cumsum([n for _, n in rows])
        return rows[int(np.searchsorted(total, 0.99 * total[-1]))][0] / self.world.bound

    def kept_of_fitting(self, after: float) -> float:
        """Rows kept a second, as a share of what fits when every batch is half a bound long."""
        batches = self._began(after)
        seconds = batches[-1].sample.at - batches[0].sample.started
        arrived, kept = (sum(getattr(b.sample, name) for b in batches) / seconds for name in ("arrived", "kept"))
        job, length = self.world.job, self.world.bound / 2
        return float(kept / ((1 - job.fixed / length - job.per_arrived * arrived) / job.per_kept))

    @property
    def plans(self) -> int:
        return len({plan.version for _, plan in self.engine.plans}) - 1

    @property
    def reasons(self) -> set[str]:
        return {plan.reason for _, plan in self.engine.plans}

    def _began(self, after: float) -> list[Batch]:
        return [batch for batch in self.engine.batches if batch.sample.started >= after and batch.sample.kept]


_CHEAP = Job(per_kept=1e-5, per_arrived=2e-6)


def _cold(t: float) -> float:
    """A JVM that compiles: three times the cost at first, the usual one after 20 s."""
    return 1.0 + 2.0 * max(0.0, 1.0 - t / 20.0)


WORLDS = {
    world.name: world
    for world in (
        World(
            "pauses of 3 s",
            "nothing is shed: load 0.4, a pause in every 20th batch",
            bound=6.0,
            rate=lambda t: 0.4 * CAPACITY,
            seconds=400.0,
            job=Job(pause=lambda number: 3.0 if number % 20 == 19 else 0.0),
        ),
        World(
            "one pause of 6 s",
            "nothing is shed: load 0.3",
            bound=6.0,
            rate=lambda t: 0.3 * CAPACITY,
            seconds=100.0,
            job=Job(pause=lambda number: 6.0 if number == 40 else 0.0),
        ),
        World(
            "a sink that sleeps 6 s once",
            "nothing is shed: 200 rows/s of nothing",
            bound=6.0,
            rate=lambda t: 200.0,
            seconds=60.0,
            job=replace(_CHEAP, pause=lambda number: 6.0 if number == 40 else 0.0),
        ),
        World(
            "slower for 10 s",
            "nothing is shed: load 0.4, then 0.8 for a while since every row costs twice as much",
            bound=6.0,
            rate=lambda t: 0.4 * CAPACITY,
            seconds=100.0,
            job=Job(slower=lambda t: 2.0 if 40 <= t < 50 else 1.0, noise=0.1),
        ),
        World(
            "rows now and then",
            "nothing is shed: 500 rows every 30 s, nothing in between",
            bound=4.0,
            rate=lambda t: 500.0 if t % 30 < 1 else 0.0,
            seconds=300.0,
        ),
        World(
            "trigger of 10 s, bound of 4 s",
            "nothing is shed: dropping cannot help (load 0.04)",
            bound=4.0,
            rate=lambda t: 0.04 * CAPACITY,
            seconds=600.0,
            job=Job(interval=10.0, noise=0.1),
        ),
        World(
            "fixed cost of 2.5 s, bound of 4 s",
            "nothing is shed: dropping cannot help (rows are nearly free)",
            bound=4.0,
            rate=lambda t: 400.0,
            seconds=300.0,
            job=replace(_CHEAP, fixed=2.5, noise=0.1),
        ),
        World(
            "availableNow over 20 files",
            "nothing is shed: what only drains has no bound to keep",
            bound=4.0,
            rate=lambda t: 0.0,
            seconds=1e6,
            job=Job(most=3000, drains=True),
            backlog=20 * 3000,
        ),
        World(
            "3x after a calm start",
            "inside the bound after two batches, and 0.95 of what fits is kept",
            bound=10.0,
            rate=lambda t: CAPACITY * (3.0 if t >= 20 else 0.3),
            seconds=200.0,
            job=Job(noise=0.1),
        ),
        World(
            "2x after a calm start",
            "dry-run says what enforcing sheds, within 10 points",
            bound=4.0,
            rate=lambda t: CAPACITY * (2.0 if t >= 20 else 0.3),
            seconds=150.0,
            job=Job(noise=0.1),
        ),
        World(
            "3x from the first batch on",
            "at most 1 % of what is kept is late",
            bound=6.0,
            rate=lambda t: 3.0 * CAPACITY,
            seconds=300.0,
            job=Job(slower=_cold, noise=0.1),
        ),
        World(
            "1.33x from the first batch on",
            "at most 1 % of what is kept is late",
            bound=4.4,
            rate=lambda t: 1.33 * CAPACITY,
            seconds=60.0,
            job=Job(slower=_cold, noise=0.2, tells_backlog=True),
        ),
        World(
            "10x for 10 s",
            "at most 1 % of what is kept is late",
            bound=8.0,
            rate=lambda t: CAPACITY * (10.0 if 30 <= t < 40 else 0.3),
            seconds=100.0,
            job=Job(noise=0.1),
        ),
        World(
            "restart with ten minutes of backlog",
            "inside the bound after two batches (load 0.5)",
            bound=6.0,
            rate=lambda t: 0.5 * CAPACITY,
            seconds=1200.0,
            backlog=round(600 * 0.5 * CAPACITY),
        ),
    )
}


def main() -> None:
    print("| world | must hold | shed | dry-run says | late of kept | p99, bounds | plans |")
    print("|---|---|---|---|---|---|---|")
    for world in WORLDS.values():
        seen, said = world.play(), world.play(Mode.DRY_RUN)
        print(
            f"| {world.name} (bound {world.bound:g} s) | {world.must} | {seen.shed:.1%} | {said.shed:.1%} "
            f"| {seen.late():.1%} | {seen.p99():.1f} | {seen.plans} |"
        )


if __name__ == "__main__":
    main()
