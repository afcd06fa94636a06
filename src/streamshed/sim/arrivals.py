"""When rows arrive: constant, Poisson, bursty, or as a trace says.

A process is a frozen description; `start` gives it a random generator and makes it run. Rows are made by
mapping a stream of unit-rate points (evenly spaced, or exponentially) through the inverse of the
cumulative rate, so that one mechanism serves all shapes and the points do not depend on how often one
asks: asking for [0, 1) and [1, 2) gives exactly the rows of [0, 2).

>>> import numpy as np
>>> Constant(rate=4.0).start(np.random.default_rng(1)).until(1.0).tolist()
[0.125, 0.375, 0.625, 0.875]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidArgument

Times = NDArray[np.float64]


class Arrivals(Protocol):
    """A running arrival process."""

    def until(self, end: float) -> Times:
        """Ascending arrival times in [where the last call ended, `end`), seconds."""
        ...


class ArrivalProcess(Protocol):
    """The description of one."""

    @property
    def rate(self) -> float:
        """Mean rows per second."""
        ...

    def scaled(self, factor: float) -> ArrivalProcess:
        """The same shape with `factor` times as many rows."""
        ...

    def start(self, rng: np.random.Generator) -> Arrivals: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """A row every 1/rate seconds, the first after half of that."""

    rate: float

    def __post_init__(self) -> None:
        _positive("rate", self.rate)

    def scaled(self, factor: float) -> Constant:
        return Constant(self.rate * factor)

    def start(self, rng: np.random.Generator) -> Arrivals:
        return _Running(_Profile(self.rate, self.rate, 1.0, 0.5), None)


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent exponential gaps of mean 1/rate."""

    rate: float

    def __post_init__(self) -> None:
        _positive("rate", self.rate)

    def scaled(self, factor: float) -> Poisson:
        return Poisson(self.rate * factor)

    def start(self, rng: np.random.Generator) -> Arrivals:
        return _Running(_Profile(self.rate, self.rate, 1.0, 0.5), rng)


@dataclass(frozen=True, slots=True)
class Bursty:
    """A Poisson process whose rate is `peak` × the mean during the first `duty` of every period.

    rate: mean rows per second over a whole period
    peak: rate inside a burst over the mean rate; at most 1/duty, where nothing arrives between bursts
    period: seconds from one burst to the next
    duty: share of the period that is burst
    """

    rate: float
    peak: float = 3.0
    period: float = 10.0
    duty: float = 0.2

    def __post_init__(self) -> None:
        _positive("rate", self.rate)
        _positive("period", self.period)
        if not 0 < self.duty < 1:
            raise InvalidArgument("duty must lie strictly between 0 and 1", got=self.duty)
        if not 1 <= self.peak <= 1 / self.duty:
            raise InvalidArgument(
                "peak is not reachable with this duty",
                got=f"peak {self.peak}, duty {self.duty}",
                hint="choose 1 <= peak <= 1/duty",
            )

    def scaled(self, factor: float) -> Bursty:
        return Bursty(self.rate * factor, self.peak, self.period, self.duty)

    def start(self, rng: np.random.Generator) -> Arrivals:
        calm = self.rate * (1 - self.peak * self.duty) / (1 - self.duty)
        return _Running(_Profile(self.rate * self.peak, max(calm, 0.0), self.period, self.duty), rng)


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows at recorded times; `scaled` replays them faster."""

    times: tuple[float, ...] | Times

    def __post_init__(self) -> None:
        times = np.asarray(self.times, dtype=np.float64)
        if times.ndim != 1 or (len(times) and times[0] < 0) or bool(np.any(np.diff(times) < 0)):
            raise InvalidArgument(
                "a trace needs one ascending list of times from 0 on",
                got=f"{len(times)} times",
                hint="sort it and subtract its first time",
            )

    @property
    def rate(self) -> float:
        span = float(self.times[-1]) if len(self.times) else 0.0
        return len(self.times) / span if span > 0 else float(len(self.times))

    def scaled(self, factor: float) -> Trace:
        return Trace(np.asarray(self.times, dtype=np.float64) / factor)

    def start(self, rng: np.random.Generator) -> Arrivals:
        return _Replaying(np.asarray(self.times, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class _Profile:
    """A square wave: `high` rows per second for `duty` of every `period`, then `low`."""

    high: float
    low: float
    period: float
    duty: float

    def cumulative(self, at: float) -> float:
        """Expected rows before `at`."""
        periods, within = divmod(at, self.period)
        burst = self.duty * self.period
        return periods * self._per_period() + self.high * min(within, burst) + self.low * max(within - burst, 0.0)

    def inverse(self, rows: Times) -> Times:
        """When that many rows were expected."""
        per_period = self._per_period()
        periods = np.floor(rows / per_period)
        rest = rows - periods * per_period
        burst = self.duty * self.period
        in_burst = rest <= self.high * burst
        low = self.low if self.low > 0 else 1.0
        within = np.where(in_burst, rest / self.high, burst + (rest - self.high * burst) / low)
        return np.asarray(periods * self.period + within, dtype=np.float64)

    def _per_period(self) -> float:
        return self.period * (self.high * self.duty + self.low * (1 - self.duty))


class _Running:
    """Unit-rate points mapped through a profile; evenly spaced when there is no generator."""

    def __init__(self, profile: _Profile, rng: np.random.Generator | None) -> None:
        self._profile = profile
        self._rng = rng
        self._last_point = -0.5 if rng is None else 0.0
        self._waiting: Times = np.empty(0)

    def until(self, end: float) -> Times:
        goal = self._profile.cumulative(end)
        blocks = [self._waiting]
        while self._last_point < goal or (len(blocks[-1]) and blocks[-1][-1] < end):
            count = int(goal - self._last_point + 3 * max(goal - self._last_point, 1.0) ** 0.5) + 8
            points = self._points(count)
            self._last_point = float(points[-1])
            blocks.append(self._profile.inverse(points))
        times = np.concatenate(blocks)
        cut = int(np.searchsorted(times, end, side="left"))
        self._waiting = times[cut:]
        return times[:cut]

    def _points(self, count: int) -> Times:
        if self._rng is None:
            return self._last_point + np.arange(1, count + 1, dtype=np.float64)
        gaps = np.empty(count + 1)
        gaps[0] = self._last_point
        gaps[1:] = self._rng.standard_exponential(count)
        return np.cumsum(gaps)[1:]


class _Replaying:
    def __init__(self, times: Times) -> None:
        self._times = times
        self._next = 0

    def until(self, end: float) -> Times:
        start = self._next
        self._next = max(start, int(np.searchsorted(self._times, end, side="left")))
        return self._times[start : self._next]


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise InvalidArgument(f"{name} must be positive", got=value)
