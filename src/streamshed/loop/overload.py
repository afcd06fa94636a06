"""The overload detector: will the next interval break the bound, and how much of it fits?"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from streamshed.loop.arrival_rate import ArrivalRate
from streamshed.loop.batch_cost import CostModel
from streamshed.loop.keep_response import KeepResponse
from streamshed.records import Overload, Sample

_REMEMBERED = 20  # intervals whose durations are compared with the fixed cost
_STEADY = 1.3  # two intervals in a row that differ by less do not grow
_LONGER = 1.5  # an interval that took so many times the fixed cost has rows that cost


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When shedding starts and ends, as shares of the duration that the bound allows."""

    enter: float = 0.95
    """Start when the next interval, all kept, is predicted to take more than this."""
    leave: float = 0.80
    """End when it is predicted to take less than this …"""
    dwell: int = 2
    """… in so many samples in a row."""


class OverloadDetector:
    """Compares what the next interval will cost with what the bound allows it.

    A row waits for the interval in front of it and then for its own, so a bound B on its end-to-end
    latency allows each interval B/2, less a margin; after a wait that was already longer, it allows
    only the rest. What the next interval will bring is the arrival rate times the time until it
    starts (and what the source holds back). What it costs, the cost model says.

    An interval that is still running has told nothing yet, but how long it has been running tells
    how many rows it must have (`CostModel.rows_behind`), and so how fast they arrived. That is how a
    burst is met by the very next interval instead of the one after it.

    Entering needs one look, leaving needs `dwell` in a row below a lower threshold, so that a load
    near the limit does not switch shedding on and off (DISSP 5.2; LSRM 4.1 for returning load).

    Not every overload is one that dropping ends. Where the trigger interval or the fixed cost of an interval
    leaves nothing of the bound, and where a query only drains what was there, the answer says so (`in_vain`).
    """

    def __init__(
        self,
        cost: CostModel,
        latency: float,
        *,
        response: KeepResponse | None = None,
        margin: float = 0.08,
        thresholds: Thresholds | None = None,
    ) -> None:
        self.latency = latency
        self._cost = cost
        self._response = response or KeepResponse()
        self._margin = margin
        self._thresholds = thresholds or Thresholds()
        self._arrivals = ArrivalRate(window=latency / 2.0)
        self._implied = 0.0
        self._backlog = 0.0
        self._last_start: float | None = None
        self._last_duration = 0.0
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)
        self._fixed = 0.0
        self._calm = 0
        self._shedding = False

    @property
    def shedding(self) -> bool:
        return self._shedding

    def observe(self, sample: Sample, *, enforced: bool = True) -> Overload | None:
        """Take a sample in; answer how much fits if there is an overload.

        If nothing is dropped whatever the answer (`enforced=False`), rows pile up and intervals grow as they would
        not otherwise. The answer is then for intervals of the length that plans aim at, one after the other.
        """
        if sample.finished:
            self._learn(sample)
            # What is planned now is for the interval behind the running one, unless none is running yet.
            running = self._next_duration(sample) if sample.next_started else sample.duration
        else:
            running = self._look_at_running(sample)
        overload = self._weigh(sample, running, enforced) if self._cost.ready else self._blind(sample)
        in_vain = self._why_in_vain(sample)
        if overload is None and in_vain and not sample.draining:
            # Whatever rows there are, and whether or not their cost is known: the bound cannot be kept.
            allowed = self._allowed(sample.interval)
            return Overload(0.0, 0.0, self._arrivals.value, self._fixed, allowed, in_vain)
        return overload if overload is None else replace(overload, in_vain=in_vain)

    def _weigh(self, sample: Sample, running: float, enforced: bool) -> Overload | None:
        backlog, wait_in_source = self._backlog, self._wait_in_source()
        if not enforced:
            running = min(running, self._aim(self._usable / 2.0))
            backlog = wait_in_source = 0.0
        wait = max(sample.interval, running) + wait_in_source
        rate = max(self._arrivals.value, self._implied)
        arriving = rate * max(sample.interval, running) + backlog
        allowed = self._allowed(wait)
        predicted = self._cost.predict(arriving, arriving)
        if not self._overloaded(predicted, allowed, sample):
            return None
        return Overload(
            arriving=arriving,
            fitting=self._cost.fitting(arriving, self._aim(allowed)),
            rate=rate,
            predicted=predicted,
            allowed=allowed,
        )

    def _why_in_vain(self, sample: Sample) -> str:
        """Why dropping every row would not bring the bound back; empty if it would."""
        if sample.draining:
            return "the query ends when it has read what was there (availableNow), so there is no bound to keep"
        most = self._allowed(sample.interval)
        self._fixed = self._fixed_too_long(most)
        if most > 0 and self._fixed == 0:
            return ""
        bound = f"the bound of {self.latency:.1f} s; dropping rows cannot help"
        if sample.interval > self.latency:
            return f"the trigger interval of {sample.interval:.1f} s alone is longer than {bound}"
        if self._fixed == 0:
            return f"the trigger interval of {sample.interval:.1f} s leaves no time of {bound}"
        before = "the one before" if self._fixed > sample.interval else f"its trigger ({sample.interval:.1f} s)"
        return (
            f"a batch takes {self._fixed:.1f} s whatever is in it, and its rows wait for {before}, which leaves "
            f"no time of {bound}"
        )

    def _fixed_too_long(self, most: float) -> float:
        """The fixed cost if it is more than an interval may take, else 0.

        An interval that took less shows that the fixed cost is less, whatever the model makes of the others.
        Intervals all of one size do not tell it from the cost of rows; what was known before them then lasts until
        one is far longer or shorter.
        """
        shortest = min(self._durations, default=0.0)
        short = shortest <= self._thresholds.leave * most
        if self._fixed > 0 and not short and self._durations[-1] < _LONGER * self._fixed:
            return self._fixed
        # In an overload they grow, and a fit to growing ones takes a cold start for a fixed cost.
        before, last = (0.0, 0.0, *self._durations)[-2:]
        if not max(before, last) < _STEADY * min(before, last):
            return 0.0
        fixed = min(self._cost.predict(0.0, 0.0), shortest)
        return fixed if fixed > self._thresholds.enter * most else 0.0

    def _learn(self, sample: Sample) -> None:
        if sample.arrived > 0:
            self._cost.observe(sample.duration, sample.arrived, sample.kept)
            self._durations.append(sample.duration)
        self._arrivals.observe(sample.arrived, sample.gap)
        # Counted rows replace what was read off a running interval.
        self._implied = 0.0
        self._backlog = sample.backlog
        self._last_start = sample.started

    def _next_duration(self, sample: Sample) -> float:
        """Duration of the interval that started as this sample's ended."""
        arriving = self._arrivals.value * max(sample.interval, sample.duration)
        return self._cost.predict(arriving, arriving * self._response.share(sample.keep_next))

    def _look_at_running(self, sample: Sample) -> float:
        gap = sample.started - self._last_start if self._last_start is not None else 0.0
        if gap > 0 and self._cost.ready:
            self._implied = self._cost.rows_behind(sample.duration, self._response.share(sample.keep)) / gap
        return sample.duration

    def _wait_in_source(self) -> float:
        return self._backlog / self._arrivals.value if self._arrivals.value > 0 else 0.0

    @property
    def _usable(self) -> float:
        return self.latency * (1.0 - self._margin)

    def _allowed(self, wait: float) -> float:
        return max(0.0, min(self._usable / 2.0, self._usable - wait))

    def _aim(self, allowed: float) -> float:
        """Lower where durations scatter: a mean absolute deviation of headroom, and a half."""
        return allowed / (1.0 + 1.5 * self._cost.spread)

    def _overloaded(self, predicted: float, allowed: float, sample: Sample) -> bool:
        limit = self._thresholds.leave if self._shedding else self._thresholds.enter
        over = predicted > limit * allowed
        if over:
            self._calm = 0
            self._shedding = True
        elif sample.finished:
            self._calm += 1
            if self._calm >= self._thresholds.dwell:
                self._shedding = False
        return self._shedding

    def _blind(self, sample: Sample) -> Overload | None:
        """The cost of a row is not known yet: keep all, unless what waits alone breaks the bound.

        A running batch tells more than nothing. Taking all of the last one's duration for fixed cost,
        which is the most it can be, the rest of this one's is owed to rows that came in over the gap
        before it. The rows now waiting came in over its length, and will cost in proportion.
        """
        allowed = self._allowed(0.0)
        rate = self._arrivals.value
        if sample.finished:
            self._last_duration = sample.duration
            if self._wait_in_source() <= self.latency:
                return None
            return Overload(self._backlog, rate * self.latency, rate, float("inf"), allowed)
        if self._last_start is None:
            return None
        gap = max(sample.started - self._last_start, 0.1)
        owed = max(0.0, sample.duration - self._last_duration) * sample.duration / gap
        predicted = self._last_duration + owed
        if predicted <= self._thresholds.enter * allowed or owed <= 0:
            return None
        if self._last_duration > self._thresholds.enter * allowed and owed < self._last_duration:
            return None  # so far it is no rows that break the bound, and dropping them would help little
        spare = max(0.0, self._allowed(sample.duration) - self._last_duration)
        # In units of what waits: how many rows that is, nobody has counted.
        return Overload(1.0, min(1.0, spare / owed), rate, predicted, allowed)
