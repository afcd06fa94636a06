"""The overload detector: is what arrives lastingly more than fits, and how much of it does?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamshed.loop.arrival_rate import ArrivalRate
from streamshed.loop.batch_cost import CostModel
from streamshed.loop.keep_response import KeepResponse
from streamshed.records import Overload, Sample

_MARGIN = 0.03  # share of the bound that nobody plans with: clocks, and rows that are dropped, take time, …
_SCATTER = 0.05  # … and seconds, since how long a commit takes does not go by the bound; …
_MOST_MARGIN = 0.1  # … of a very short one no more than this share in all
_CATCH_UP = 2.0  # bounds in which what a source holds back is to be worked off
_SMOOTH = 0.15  # share of the way to what an interval shows that the answer goes: most of it is noise, …
_SPARE = 0.85  # … but of one that was shorter than this share of the allowed length, and so had time to spare, …
_RISE = 0.5  # … so much of the way
_JUMP = 1.5  # what is so many times the answer is believed when it is seen twice in a row
_AIM = 1.05  # times what is seen to fit, if what is too much is cut: a short interval wastes time
_FIXED = 0.5  # of an interval's length that it costs in any case, at most
_LEAST = 1e-3  # share
_PROVEN = 0.9  # of what the last interval kept in its time
_SHORT = 0.6  # of the allowed length: it had time to spare
_GAIN = 0.25  # how much of that it is given, as an exponent; a plan comes two intervals late, and more would swing
_GROW = 2.0  # times as many rows for an interval that had time to spare, at most
_FALLEN = 0.5  # of the rate before: then the last interval alone is believed
_FILL = 0.5  # of what is missing to full length, as an exponent, that the interval after a short one is given
_MOST_FILL = 1.5  # times as many rows, at most


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When thinning starts and ends, as shares of the length that the bound allows an interval."""

    enter: float = 0.97
    """Start when intervals of that length, all kept, are predicted to take more than this …"""
    long: float = 0.9
    """… and intervals were cut, or longer than this …"""
    confirm: int = 3
    """… so many times in a row."""
    far: float = 2.0
    """… where one that was cut and is predicted to take more than this counts for two …"""
    slow: int = 2
    """… or so many, where a budget does not hold what comes behind the drop."""
    growing: float = 1.3
    """Without a budget, one that is longer than this is enough."""
    leave: float = 0.85
    """End when they are predicted to take less than this …"""
    dwell: int = 2
    """… so many times in a row."""


def usable(latency: float) -> float:
    """What of a bound is planned with.

    >>> [round(usable(bound), 3) for bound in (10.0, 2.0, 0.2)]
    [9.65, 1.89, 0.18]
    """
    return latency - min(_MARGIN * latency + _SCATTER, _MOST_MARGIN * latency)


def longest(latency: float, interval: float) -> float:
    """How long intervals may be, one after the other, so that no row is later than the bound.

    A row waits for the interval in front of it, or for the trigger, and then for its own.
    """
    return min(usable(latency) / 2.0, usable(latency) - interval)


class OverloadDetector:
    """Tells a lasting overload from a burst, a pause and a slow interval, which the time budget sees to.

    What arrives is what was counted: rows over the time in which they came, and what the source says it holds
    back. It is too much if intervals of the length L that the bound allows, each with what arrives in the time
    of one, would take longer than L. That is a prediction. It counts only if facts say the same: intervals that
    were cut, or about as long as L, several in a row (DISSP 5.4: no isolated large batch is the beginning of an
    overload). What fits then has no safety margin. If it was too much after all, the budget cuts the rest and
    the next answer is lower.
    """

    def __init__(
        self,
        cost: CostModel,
        latency: float,
        *,
        response: KeepResponse | None = None,
        thresholds: Thresholds | None = None,
    ) -> None:
        self.latency = latency
        self.shedding = False
        self._cost = cost
        self._response = response or KeepResponse()
        self._thresholds = thresholds or Thresholds()
        self._arrivals = ArrivalRate(window=latency)
        self._last = math.inf
        self._backlog = 0.0
        self._confirmed = 0
        self._share: float | None = None
        """What fits, while an overload lasts."""
        self._far = 0
        """1 or -1: what the last interval showed was far above that, or below."""

    @property
    def rate(self) -> float:
        """Arrivals, rows a second. Too few is a mistake that the budget makes up for, too many is not."""
        return self._last if self._last < _FALLEN * self._arrivals.value else self._arrivals.value

    def observe(
        self, sample: Sample, *, budget: float | None = None, slow_behind: bool = False
    ) -> Overload | None:
        """Take a finished interval in, which had this budget; answer how much fits if an overload lasts.

        `slow_behind`: rows pass the drop sooner than what comes behind it can take them, so no budget holds them.
        """
        arrived = sample.arrived + (sample.backlog - self._backlog if sample.gap > 0 else 0.0)
        self._arrivals.observe(max(0.0, arrived), sample.gap)
        if sample.gap > 0:
            self._last = max(0.0, arrived) / sample.gap
        self._backlog = sample.backlog
        if not self._cost.ready or self.rate <= 0:
            return None
        found = self.outlook(sample)
        if found is None or found.allowed <= 0:
            self.shedding = False
            return None
        self._decide(sample, found, budget, slow_behind)
        if not self.shedding:
            self._share, self._far = None, 0
            return None
        held = budget is not None and not slow_behind
        if self._share is None:
            self._share = max(found.share, min(1.0, self._proven(sample, found)))
        else:
            self._share = min(1.0, self._share * self._changed(self._share, sample, found, held=held))
        share = min(1.0, self._share * self._fill(sample, found, held=held))
        return Overload(
            found.arriving,
            share * found.arriving,
            found.rate,
            found.predicted,
            found.allowed,
            untouched=self._response.untouched,
        )

    def _changed(self, before: float, sample: Sample, found: Overload, *, held: bool) -> float:
        """What fits now, as a multiple of what did before, by the rows that the last interval kept in its time.

        Estimated costs say where to begin, and no more: intervals of an overload are cut at one length, whatever
        they kept, and a fit to them does not tell rows from what an interval costs in any case.
        """
        if sample.duration <= 0:
            return 1.0  # a clock was set back
        fixed = min(self._cost.predict(0.0, 0.0), _FIXED * sample.duration)
        kept = sample.kept * (found.allowed - fixed) / (sample.duration - fixed)  # in one of full length
        seen = max(_LEAST, (_AIM if held else 1.0) * kept / found.arriving) / max(_LEAST, before)
        far, self._far = self._far, (seen > _JUMP) - (seen < 1.0 / _JUMP)
        if self._far and self._far == far:
            return seen
        spare = seen > 1.0 and sample.cut == 0 and sample.duration < _SPARE * found.allowed
        return math.pow(min(_JUMP, max(1.0 / _JUMP, seen)), _RISE if spare else _SMOOTH)

    def _fill(self, sample: Sample, found: Overload, *, held: bool) -> float:
        """How many times that share to keep of fewer rows, so that an interval is as long as it may be.

        What fits is the share of rows that come in the time of a full interval. Behind a shorter one there are
        fewer of them, and with the same share of these the next would be short as well, and the ones after it.
        Behind a longer one there are more, of which the budget takes what is too much, if one holds.
        """
        if self._backlog > 0:
            return 1.0  # what the source holds back is in the rate already
        waited = max(sample.interval, self._next_wait(sample))
        if waited >= found.allowed:
            return 1.0 if held else found.allowed / waited
        if sample.interval > 0 or waited <= 0:
            return 1.0  # batches begin when the trigger says
        return float(min(_MOST_FILL, math.pow(found.allowed / waited, _FILL)))

    def _next_wait(self, sample: Sample) -> float:
        """Seconds in which the rows come that a plan made now is for."""
        if not sample.next_started:
            return sample.duration
        running = self.rate * sample.duration
        return self._cost.predict(running, running * self._response.share(sample.keep_next))

    def _proven(self, sample: Sample, found: Overload) -> float:
        """The share that fits by what the last interval did: costs that are only estimated cannot say less."""
        if sample.cut == 0 and sample.duration < _SHORT * found.allowed:
            # It had time to spare, of which what it costs in any case is no small part.
            return (
                sample.kept / max(1, sample.arrived) * min(_GROW, math.pow(found.allowed / sample.duration, _GAIN))
            )
        return _PROVEN * sample.kept / (sample.duration * found.rate)

    def outlook(self, sample: Sample) -> Overload:
        """What intervals of the allowed length would have in them, take, and could keep, overload or not."""
        allowed = longest(self.latency, sample.interval)
        rate = self.rate + self._backlog / (_CATCH_UP * self.latency)
        if self._backlog > 0 and sample.arrived > 0:
            # The source gives no more than this at a time, so it must be asked the more often.
            allowed = min(allowed, sample.arrived / rate)
        arriving = rate * max(sample.interval, allowed)
        predicted = self._cost.predict(arriving, arriving)
        fitting = self._cost.fitting(arriving, max(0.0, allowed))
        return Overload(arriving, fitting, self.rate, predicted, allowed, untouched=self._response.untouched)

    def _decide(self, sample: Sample, found: Overload, budget: float | None, slow_behind: bool) -> None:
        limits = self._thresholds
        if self.shedding:
            self._confirmed = self._confirmed + 1 if found.predicted <= limits.leave * found.allowed else 0
            if self._confirmed >= limits.dwell:
                self.shedding, self._confirmed = False, 0
            return
        seen = sample.cut > 0 or sample.duration > limits.long * found.allowed
        # What an interval costs whatever is in it cannot be thinned; a fit to long ones alone does not tell it.
        room = slow_behind or self._cost.predict(0.0, 0.0) < limits.enter * found.allowed
        over = seen and room and found.predicted > limits.enter * found.allowed
        # What was cut and is far too much is no slow interval; still, a lump comes once.
        weight = 2 if sample.cut > 0 and found.predicted > limits.far * found.allowed else 1
        self._confirmed = self._confirmed + weight if over else 0
        # Where nothing cuts intervals short, each is longer than the one before by the factor of overload.
        growing = over and budget is None and sample.duration > limits.growing * found.allowed
        if growing or self._confirmed >= (limits.slow if slow_behind else limits.confirm):
            self.shedding, self._confirmed = True, 0

    def remember(self) -> dict[str, Any]:
        return {"rate": self.rate}

    def recall(self, learned: Mapping[str, Any]) -> None:
        rate = float(learned["rate"])
        if not 0.0 <= rate < math.inf:
            raise ValueError("no rate")
        self._arrivals.observe(rate * self.latency, self.latency)
