"""What else one could run a job under: nothing, a budget alone, and two limiters that others use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamshed.records import Drop, Plan, Sample


class KeepAll:
    """Plain Spark."""

    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.plan = Plan()

    def observe(self, sample: Sample) -> Plan:
        return self.plan


class DropAll(KeepAll):
    """Nothing but what a batch costs in any case."""

    def __init__(self, latency: float) -> None:
        super().__init__(latency)
        self.plan = Plan(drops=(Drop("s", 0.0),))


class BudgetAlone(KeepAll):
    """A fixed budget of half the bound and nothing else: no controller, nothing learned."""

    def __init__(self, latency: float) -> None:
        super().__init__(latency)
        self.plan = Plan(budget=latency / 2.0)


@dataclass(frozen=True, slots=True)
class Capped(Plan):
    """A plan that lets so many rows of a batch pass."""

    most: float | None = None


class PidRate(KeepAll):
    """Spark's `PIDRateEstimator` (spark.streaming.backpressure), with its defaults; what exceeds it is dropped.

    rate ← rate − Kp·(rate − processed/s) − Ki·delay·processed/s ÷ interval. Its interval is half the bound, its
    scheduling delay what the batch took beyond that, and a batch lets rate × interval rows pass.
    """

    proportional, integral, least = 1.0, 0.2, 100.0

    def __init__(self, latency: float) -> None:
        super().__init__(latency)
        self._rate = -1.0

    def observe(self, sample: Sample) -> Plan:
        if not sample.finished or sample.kept == 0 or sample.duration <= 0:
            return self.plan
        interval = self.latency / 2.0
        processing = sample.kept / sample.duration
        if self._rate < 0:
            self._rate = processing
        else:
            error = self._rate - processing
            history = max(0.0, sample.duration - interval) * processing / interval
            self._rate = max(self.least, self._rate - self.proportional * error - self.integral * history)
        self.plan = Capped(most=self._rate * interval)
        return self.plan


class Gradient(KeepAll):
    """Netflix concurrency-limits' `Gradient2Limit` with its defaults, on the rows that a batch may have in it.

    gradient = max(0.5, min(1, tolerance · long ÷ short)) with the latency of the last batch (short) and its mean
    over a long window (long); limit ← (1 − s)·limit + s·(limit·gradient + queue).
    """

    tolerance, smoothing, window, queue, least, first = 1.5, 0.2, 600.0, 4.0, 20.0, 20.0

    def __init__(self, latency: float) -> None:
        super().__init__(latency)
        self._limit = self.first
        self._long = 0.0

    def observe(self, sample: Sample) -> Plan:
        if not sample.finished or sample.kept == 0:
            return self.plan
        short = sample.latency
        factor = 2.0 / (self.window + 1.0)
        self._long = short if self._long == 0 else self._long + factor * (short - self._long)
        if self._long / short > 2.0:
            self._long *= 0.95
        # Only a limit that is in the way grows.
        if sample.arrived >= self._limit / 2.0:
            gradient = max(0.5, min(1.0, self.tolerance * self._long / short))
            # On rows, not on a handful of requests: the queue that is allowed grows with the root of the limit.
            new = self._limit * gradient + max(self.queue, math.sqrt(self._limit))
            self._limit = max(self.least, (1.0 - self.smoothing) * self._limit + self.smoothing * new)
        self.plan = Capped(most=self._limit)
        return self.plan
