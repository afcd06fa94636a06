"""The clairvoyant: knows every arrival and every cost to come, and keeps the most rows inside the bound.

Time is divided into steps of a fortieth of the bound. A batch begins at a step with all rows that came in since
the one before it began, and lasts some steps. In that time it can keep so many of its rows, evenly, as every
drop by a hash does; those that came in too long before its end are late. Which lengths are best, one after the
other, is a dynamic program over (when a batch begins, when the one before it did), solved backwards and exactly
on the steps:

    V(s, p) = max over d of  in time(s, p, d) − P·late(s, p, d) + V(s + d, s)

with a price P so high that a row is late only where that cannot be helped. Of what a batch costs it knows the
mean: who knew the scatter too would begin batches when they happen to be short. It is not held to what a source
gives at most in a batch. So it is a little better than any shedder can be, but for the steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamshed.lab.worlds.arrivals import Floats
from streamshed.lab.worlds.engine import Engine
from streamshed.lab.worlds.rivals import DropAll, KeepAll
from streamshed.lab.worlds.world import Outcome, World

_STEPS = 40  # in a bound
_PRICE = 10.0  # P, of a late row in rows that are in time
_HELPLESS = 0.05  # share of the rows that is late even if every row is dropped: then dropping is in vain
_NEVER = -1e15
_STARTING = 2  # batches that have what waited before the start, or wait for it
_FEW = 0.001  # share of late rows that nobody sheds for
_BY_ITSELF = 2.0  # bounds in which a job must be back by itself, after the batch that was held up


class Ideal(NamedTuple):
    must_shed: bool
    kept: float
    """Share of all rows."""
    late: float
    """Share of the kept rows."""


def ideal(world: World) -> Ideal:
    """What a shedder should do in a world: nothing, if it need not shed, or else what the clairvoyant does."""
    plain = world.play(KeepAll(world.bound))
    if not must_shed(world, plain):
        return Ideal(False, 1.0, plain.late())
    kept, late = Clairvoyant(world).play()
    return Ideal(True, kept, late)


def must_shed(world: World, plain: Outcome) -> bool:
    """Whether rows would be late that need not be, if none were dropped.

    Not where the bound cannot be kept by dropping all of them, not for what only drains, and not for pauses and a
    cold start that the job recovers from by itself soon.
    """
    if world.job.drains:
        return False
    calm = world.calm()
    empty = calm.play(DropAll(world.bound))
    if _late_batches_rows(empty) > _HELPLESS:
        return False
    if calm.play(KeepAll(world.bound)).late() > _FEW:
        return True
    return _longest_late(plain) > _BY_ITSELF * world.bound


def _late_batches_rows(outcome: Outcome) -> float:
    """Share of the rows, but for those of the start, whose batch ended too late for them, kept or not."""
    engine: Engine = outcome.engine
    late = arrived = 0.0
    for batch in engine.batches[_STARTING:]:
        first, last = batch.rows
        old = float(engine.arrivals.until(batch.sample.at - outcome.world.bound)) - first
        late += min(last - first, max(0.0, old))
        arrived += last - first
    return late / max(1.0, arrived)


def _longest_late(outcome: Outcome) -> float:
    """Seconds for which batches were late one after the other, from the end of the first on."""
    longest, since = 0.0, None
    for sample in outcome.engine.samples:
        if sample.latency <= outcome.world.bound:
            since = None
            continue
        since = sample.at if since is None else since
        longest = max(longest, sample.at - since)
    return longest


class Clairvoyant:
    def __init__(self, world: World) -> None:
        self.world = world
        job, bound = world.job, world.bound
        self.step = bound / _STEPS
        # What comes after the end is known too, or the last batches would be as long as they like.
        self.last = int(np.ceil(world.seconds / self.step))
        self.end = self.last + 2 * _STEPS
        times = np.arange(self.end + 1) * self.step
        self.factors = np.array([job.mean_factor(float(t)) for t in times])
        rest = max(pause.seconds for pause in job.pauses) if job.pauses else 0.0
        busiest = float(np.max(np.diff(world.arrivals.until(np.append(times, times[-1] + bound))[:: _STEPS // 2])))
        reading = job.per_arrived + job.protected * (job.per_kept + job.behind)
        slowest = float(self.factors.max()) * (job.fixed + job.commit + 4 * reading * busiest)
        self.most = int(np.ceil((1.25 * bound + rest + job.listing + slowest) / self.step))
        self.widest = max(self.most, int(np.ceil(job.interval / self.step)) + 1)
        self.lengths = np.arange(1, self.most + 1, dtype=np.int64)
        # Arrivals from so long ago that every batch and every bound reaches back into them, to the last end.
        self.back = back = max(self.widest, _STEPS)
        moments: Floats = np.arange(-back, self.end + self.most + back + 1, dtype=np.float64) * self.step
        self.came = world.arrivals.until(moments)
        self.still = np.array([self._still(float(t)) for t in moments])
        self.value = np.zeros((self.end + self.most + self.widest + 2, self.widest + 1))

    def _still(self, moment: float) -> float:
        """Seconds in which the job stood still until then."""
        job = self.world.job
        asleep = sum(pause.seconds for pause in job.pauses if pause.in_sink and pause.at < moment)
        return job.stood_still(0.0, moment) + asleep

    def play(self) -> tuple[float, float]:
        """Shares kept, and late of those."""
        for at in range(self.end - 1, -1, -1):
            rows = self.came[self.back + at] - self.came[self.back + at - np.arange(self.widest + 1)]
            best = self._worth(at, rows)[0].max(axis=1)
            idle = self.value[at + 1, np.minimum(np.arange(self.widest + 1) + 1, self.widest)]
            self.value[at] = np.where(rows < 1, idle, best)
        at = taken = 0
        waiting = float(self.came[self.back])
        arrived = in_time = late = 0.0
        while at < self.last:
            rows = self.came[self.back + at] - (self.came[self.back + taken] if at else 0.0)
            rows = waiting if at == 0 else rows
            if rows < 1:
                at += 1
                continue
            worth, kept_in_time, kept_late = self._worth(at, np.array([rows]))
            best_length = int(worth[0].argmax())
            arrived += rows
            in_time += float(kept_in_time[0, best_length])
            late += float(kept_late[0, best_length])
            taken, at = at, int(self._next(at)[best_length])
        kept = in_time + late
        return kept / max(1.0, arrived), late / max(1.0, kept)

    def _next(self, at: int) -> NDArray[np.int64]:
        """When the next batch begins, for every length of this one."""
        after = at + self.lengths
        if self.world.job.interval:
            trigger = int(np.ceil(self.world.job.next_trigger(at * self.step) / self.step - 1e-9))
            after = np.maximum(after, trigger)
        return after

    def _worth(self, at: int, rows: Floats) -> tuple[Floats, Floats, Floats]:
        """Of a batch that begins then with so many rows: by rows and length, its worth, and the rows kept."""
        job, here = self.world.job, self.back + at
        factor = self.factors[at]
        moving = self.lengths * self.step - (self.still[here + self.lengths] - self.still[here])
        fixed = (job.fixed + job.commit) * factor + job.listing
        uneven = job.unevenness
        spare = moving[None, :] - fixed - job.per_arrived * uneven * factor * rows[:, None]
        can = spare / ((job.per_kept * uneven + job.behind) * factor)
        since = self.came[here] - rows  # the number of its first row
        expired = np.clip(self.came[here - _STEPS] - since, 0.0, rows) if job.expires else 0.0 * rows
        left = (rows - expired)[:, None]
        keeps = np.minimum(np.maximum(can, 0.0), left)
        too_old = np.clip(self.came[here + self.lengths - _STEPS] - since[:, None], 0.0, rows[:, None])
        late = keeps * np.clip((too_old - expired[:, None]) / np.maximum(left, 1e-9), 0.0, 1.0)
        in_time = keeps - late
        after = self._next(at)
        future = self.value[np.minimum(after, self.end), np.minimum(after - at, self.widest)]
        worth = in_time - _PRICE * late + future[None, :]
        worth = np.where(can < job.protected * rows[:, None], _NEVER, worth)
        # However long it takes: if no length is enough, the longest is the least wrong.
        worth[:, -1] = np.maximum(worth[:, -1], _NEVER / 2)
        return worth, np.maximum(in_time, 0.0), np.maximum(late, 0.0)
