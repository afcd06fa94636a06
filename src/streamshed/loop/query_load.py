"""What is known of one query: what its batches cost, how long they may take, how much of what arrives fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamshed.loop.batch_cost import AffineCost, CostModel
from streamshed.loop.dry_run import DryRun
from streamshed.loop.in_vain import InVain, came_late
from streamshed.loop.keep_response import KeepResponse
from streamshed.loop.overload import OverloadDetector
from streamshed.loop.time_budget import Allowance, TimeBudget
from streamshed.loop.workload import RowWork, Workload
from streamshed.records import Overload, Sample


class QueryLoad:
    """Samples of one query in; how much of its work fits, and how long its batches may take, out."""

    def __init__(self, latency: float, *, work: Workload | None = None, cost: CostModel | None = None) -> None:
        self.work: Workload = work or RowWork()
        self.cost: CostModel = cost or AffineCost()
        self.full_share: float | None = None
        """Of all that arrives, the share that fits: above 1 when there is room, None while it is not known."""
        self.would_shed = 0.0
        """In dry-run: how many rows enforcing would have dropped since the batch before the last."""
        self._latency = latency
        self._response = KeepResponse()
        self._detector = OverloadDetector(self.cost, latency, response=self._response)
        self._in_vain = InVain(self.cost, latency)
        self._budget = TimeBudget(latency, self.cost)
        self._dry_run: DryRun | None = None
        self._overload: Overload | None = None

    @property
    def latency(self) -> float:
        """The bound."""
        return self._latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        self._latency = seconds
        self._detector.latency = self._in_vain.latency = self._budget.latency = seconds

    def observe(self, sample: Sample, *, enforced: bool = True, budget: float | None = None) -> None:
        """`budget` is what the sample's batch had.

        `enforced`: whether plans are carried out. If not, what they would have done is played in virtual time.
        """
        told = self.work.of(sample)
        if told.finished:
            self._response.learn(told, self.work.wanted(sample))
            cut_short = told.cut > 0 and not came_late(told, budget)
            self.cost.observe(told.duration, told.arrived, told.kept, cut=cut_short, tail=told.tail)
        in_vain = self._in_vain.why(told, budget)
        if told.finished:
            self._budget.learn(sample, told, budget)
            self._overload = self._detector.observe(told, budget=budget, slow_behind=self._budget.slow_behind)
            self._see(told)
        share = 1.0 if self._overload is None or self._overload.in_vain else self._overload.share
        self._budget.observe(
            sample,
            told,
            response=self._response,
            shedding=self.shedding,
            budget=budget,
            share=share if enforced else 1.0,
        )
        if enforced:
            self._dry_run, self.would_shed = None, 0.0
        elif told.finished:
            self._dry_run = self._dry_run or DryRun(lambda cost: QueryLoad(self._latency, cost=cost), self.cost)
            rows = sample.arrived / told.arrived if told.arrived else 0.0
            would_shed = rows * self._dry_run.observe(told)
            self.would_shed = 0.0 if in_vain else would_shed
            self._overload = self._dry_run.overload
        if in_vain:
            detector = self._detector
            found = self._overload or Overload(0.0, 0.0, detector.rate, 0.0, 0.0)
            self._overload = replace(found, in_vain=in_vain)

    @property
    def shedding(self) -> bool:
        return self._detector.shedding

    @property
    def learning(self) -> bool:
        """Whether too little is known yet to say what fits."""
        return not self.cost.ready

    def overload(self) -> Overload | None:
        """Whether, and how far, what arrives is too much, lastingly."""
        return self._overload

    @property
    def allowance(self) -> Allowance | None:
        """What the next batch may take; None: as long as it takes, since to cut it short would be in vain."""
        if self._overload is not None and self._overload.in_vain:
            fixed = self._in_vain.fixed
            # That is an estimate. Should it be wrong, it is not by more than a bound.
            return Allowance(fixed + self.latency, 0, fixed + self.latency) if fixed > 0 else None
        return self._budget.allowance()

    def _see(self, told: Sample) -> None:
        """How much of what arrives now would fit, overload or not."""
        if not self.cost.ready or self._detector.rate <= 0:
            return
        found = self._detector.outlook(told)
        fixed = self.cost.predict(0.0, 0.0)
        work = self.cost.predict(found.arriving, found.arriving) - fixed
        if self._overload is not None:
            self.full_share = self._overload.share
        else:
            self.full_share = max(0.0, found.allowed - fixed) / work if work > 0 else None

    def remember(self) -> dict[str, Any]:
        """What was learned, as JSON-able data."""
        return {
            "cost": self.cost.remember(),
            "arrivals": self._detector.remember(),
            "budget": self._budget.remember(),
        }

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Go on with it; raises ValueError, KeyError or TypeError if it is nothing of the kind."""
        self.cost.recall(learned["cost"])
        self._detector.recall(learned["arrivals"])
        self._budget.recall(learned["budget"])
