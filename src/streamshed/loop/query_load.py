"""What is known of one query: what its batches cost, and how much of what comes next fits its bound."""

from __future__ import annotations

from dataclasses import replace

from streamshed.loop.arrival_rate import ArrivalRate
from streamshed.loop.batch_cost import AffineCost, CostModel
from streamshed.loop.keep_response import KeepResponse
from streamshed.loop.overload import OverloadDetector
from streamshed.loop.workload import RowWork, Workload
from streamshed.records import Overload, Sample

_ALLOWED = 0.46  # share of the bound that a batch may take: half of it, less a margin
_LEAVE = 0.9  # of that, what batches of all that arrives must stay below for shedding to end


class QueryLoad:
    """Samples of one query in; how much of its work fits, out.

    With `lasting`, shedding does not end because the next batch would fit. It may be short because of the drops;
    so what arrives must also fit into batches of the length that the bound allows, one after the other.
    """

    def __init__(
        self,
        latency: float,
        *,
        work: Workload | None = None,
        cost: CostModel | None = None,
        lasting: bool = False,
    ) -> None:
        self.work: Workload = work or RowWork()
        self.cost: CostModel = cost or AffineCost()
        self.full_share: float | None = None
        """Of all that arrives, the share that fits: above 1 when there is room, None while it is not known."""
        self._response = KeepResponse()
        self._detector = OverloadDetector(self.cost, latency, response=self._response)
        self._arrivals = ArrivalRate(window=latency / 2.0)
        self._lasting = lasting
        self._next: Overload | None = None

    @property
    def latency(self) -> float:
        """The bound."""
        return self._detector.latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        self._detector.latency = seconds

    def observe(self, sample: Sample, *, enforced: bool = True) -> None:
        """`enforced`: whether plans are carried out, as in `OverloadDetector.observe`."""
        told = self.work.of(sample)
        self._response.learn(told)
        if told.finished:
            self._arrivals.observe(told.arrived, told.gap)
        found = self._detector.observe(told, enforced=enforced)
        self._next = None if found is None else replace(found, untouched=self._response.untouched)
        self._see(told)

    def overload(self, *, shedding: bool) -> Overload | None:
        """Whether, and how far, what comes is too much; `shedding` says whether anything is shed already."""
        lasting = self._outlook() if self._lasting and (shedding or self._next is not None) else None
        if self._next is None or lasting is None or self._next.in_vain:
            return self._next or lasting
        return min(self._next, lasting, key=lambda each: each.share)

    def _outlook(self) -> Overload | None:
        """Whether what arrives is too much for one batch after the other, each as long as the bound allows."""
        if not self.cost.ready:
            return None
        # As the detector does, aim lower where durations scatter.
        allowed = _ALLOWED * self.latency / (1.0 + 1.5 * self.cost.spread)
        rate = self._arrivals.value
        arriving = rate * allowed
        predicted = self.cost.predict(arriving, arriving)
        if predicted <= _LEAVE * allowed:
            return None
        fitting = self.cost.fitting(arriving, allowed)
        return Overload(arriving, fitting, rate, predicted, allowed, untouched=self._response.untouched)

    def _see(self, told: Sample) -> None:
        """How much of what arrives now would fit, overload or not."""
        if self._next is not None:
            # What fits into the next batch may be all of it, because the last one was short.
            outlook = self._outlook() if self._lasting else None
            self.full_share = min(each.share for each in (self._next, outlook) if each is not None)
        elif told.finished and self.cost.ready and told.gap > 0 and told.arrived > 0:
            allowed = _ALLOWED * self.latency
            arriving = told.arrived / told.gap * allowed
            fixed = self.cost.predict(0.0, 0.0)
            work = self.cost.predict(arriving, arriving) - fixed
            self.full_share = max(0.0, allowed - fixed) / work if work > 0 else None
