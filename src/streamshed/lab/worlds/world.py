"""A job, what comes to it, and the bound that it is given; and what became of the rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from streamshed.lab.worlds.arrivals import Arrivals, Floats
from streamshed.lab.worlds.engine import Batch, Engine, Shedder
from streamshed.lab.worlds.job import Job
from streamshed.loop import Controller, Limits
from streamshed.policies import RandomShedding
from streamshed.records import Mode


@dataclass(frozen=True)
class World:
    name: str
    bound: float
    rate: Callable[[float], float]
    """Rows a second at a moment."""
    seconds: float
    job: Job = field(default_factory=Job)
    waiting: float = 0.0
    """So many seconds of rows wait already when the job starts, in which it did not run."""
    learned: Callable[[float], float] | None = None
    """Arrivals of an earlier run, of which the controller remembers what it learned."""
    about: str = ""
    """What it is to show."""

    @cached_property
    def arrivals(self) -> Arrivals:
        # Rows that the first batch finds have come since half a second before.
        return Arrivals(self.rate, self.seconds, before=max(0.5, self.waiting) if self.rate(0.0) > 0 else 0.0)

    def controller(self, mode: Mode = Mode.ENFORCE) -> Controller:
        controller = Controller(RandomShedding("s"), latency=self.bound, limits=Limits(mode=mode))
        if self.learned is not None:
            before = replace(self, rate=self.learned, seconds=60.0, waiting=0.0, learned=None).play()
            assert isinstance(before.engine.shedder, Controller)
            controller.recall(json.loads(json.dumps(before.engine.shedder.remember())))
        return controller

    def play(self, shedder: Shedder | Mode = Mode.ENFORCE) -> Outcome:
        """Under a shedder; under the controller in a mode."""
        under = self.controller(shedder) if isinstance(shedder, Mode) else shedder
        engine = Engine(under, self.job, self.arrivals)
        engine.run(self.seconds)
        return Outcome(self, engine)

    def calm(self) -> World:
        """The same without what the job recovers from by itself."""
        return replace(self, job=self.job.calm())


@dataclass(frozen=True)
class Outcome:
    world: World
    engine: Engine

    @property
    def arrived(self) -> int:
        return sum(batch.sample.arrived for batch in self.engine.batches)

    @property
    def kept(self) -> float:
        """Share of all rows that was kept."""
        return sum(batch.sample.kept for batch in self.engine.batches) / max(1, self.arrived)

    @property
    def shed(self) -> float:
        """Share of all rows that was dropped; in dry-run, that would have been."""
        report = self.engine.ledger.report()
        return (report.shed + report.would_shed) / max(1, report.arrived)

    def late(self, after: float = float("-inf")) -> float:
        """Share of the kept rows that was later than the bound, of batches that began after a moment."""
        latencies, rows = self._latencies(after)
        total = float(rows.sum())
        return float(rows[latencies > self.world.bound + 1e-9].sum()) / total if total else 0.0

    def p99(self, after: float = float("-inf")) -> float:
        """The latency that 99 % of the kept rows stayed below, in bounds."""
        latencies, rows = self._latencies(after)
        if not rows.sum():
            return 0.0
        order = np.argsort(latencies, kind="stable")
        total = np.cumsum(rows[order])
        place = min(len(order) - 1, int(np.searchsorted(total, 0.99 * total[-1])))
        return float(latencies[order][place]) / self.world.bound

    def _latencies(self, after: float) -> tuple[Floats, Floats]:
        told = [(batch, late, rows) for batch, late, rows in self.engine.kept() if batch.sample.started >= after]
        if not told:
            return np.zeros(0), np.zeros(0)
        latencies, rows = (
            np.concatenate([late for _, late, _ in told]),
            np.concatenate([rows for _, _, rows in told]),
        )
        # What was too late before the job even started is no doing of anybody's.
        came = np.concatenate([batch.sample.at - late for batch, late, _ in told])
        return latencies[came > -self.world.bound], rows[came > -self.world.bound]

    @property
    def plans(self) -> int:
        """How many plans there were after the first."""
        return len({plan.version for _, plan in self.engine.plans}) - 1

    @property
    def reasons(self) -> set[str]:
        return {plan.reason for _, plan in self.engine.plans}

    @property
    def variation(self) -> float:
        """How far keep went up and down, all told."""
        keeps = [batch.sample.keep for batch in self.engine.batches]
        return float(np.abs(np.diff(keeps)).sum()) if keeps else 0.0

    def began(self, after: float) -> list[Batch]:
        return [batch for batch in self.engine.batches if batch.sample.started >= after]
