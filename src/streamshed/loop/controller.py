"""The controller: Samples in, Plans out. The only place that holds control state."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from streamshed.errors import InvalidArgument
from streamshed.loop.arbiter import Arbiter, Limits, Steps
from streamshed.loop.query_load import QueryLoad
from streamshed.loop.time_budget import LOOK_AFTER, Allowance, first_allowance
from streamshed.records import Choice, Mode, Overload, Plan, Sample

_REPORTED = 0.2  # seconds after a batch's end when its report comes, and a plan can be made of it


class Policy(Protocol):
    """Where to drop, if so much of the work is to be kept."""

    @property
    def name(self) -> str: ...

    @property
    def steady(self) -> bool:
        """Whether its drops depend on the share alone; else it is asked anew with every interval."""

    def learn(self, sample: Sample) -> None:
        """See what happened; a policy that needs no more than a share ignores it."""

    def choose(self, share: float) -> Choice:
        """The drops that leave this share of the work, or come near it."""
        ...


class Load(Protocol):
    """What a query is watched with: `QueryLoad` by the durations of its batches, `LoadLevel` by its load."""

    latency: float
    """The bound."""

    @property
    def full_share(self) -> float | None:
        """Of all that arrives, the share that fits: above 1 when there is room, None while it is not known."""

    @property
    def would_shed(self) -> float:
        """In dry-run: how many rows enforcing would have dropped since the batch before."""

    @property
    def allowance(self) -> Allowance | None:
        """What the next batch may take; None: as long as it takes."""

    @property
    def learning(self) -> bool:
        """Whether too little is known yet to say what fits."""

    def observe(self, sample: Sample, *, enforced: bool = True, budget: float | None = None) -> None:
        """Take a sample in, whose batch had this budget; `enforced` says whether plans are carried out."""

    def overload(self) -> Overload | None:
        """Whether, and how far, what comes is too much."""

    def remember(self) -> dict[str, Any]:
        """What was learned, as JSON-able data."""

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Go on with it; raises ValueError, KeyError or TypeError if it is nothing of the kind."""


class Controller:
    """Detector, arbiter and policy in a row, for one query or many; pure: no clock, no disk, no randomness.

    Each query is watched for itself. All of them see the same drops, so the one that is worst off decides.
    The same samples in the same order give the same plans, so a log of samples replays a run.

    >>> from streamshed.policies import RandomShedding
    >>> controller = Controller(RandomShedding(), latency=4.0)
    >>> for second in range(5):    # 1 ms a row, 500 rows a second: fits
    ...     plan = controller.observe(
    ...         Sample(at=second + 0.7, started=second, arrived=500, kept=500, gap=1.0, interval=1.0))
    >>> plan.keep
    1.0
    >>> for start in (5, 7, 9):    # 4,000 a second: what had not passed by the budget was cut
    ...     plan = controller.observe(
    ...         Sample(at=start + 1.9, started=start, arrived=8000, kept=1400, cut=6600, gap=2.0, interval=1.0))
    >>> 0.1 < plan.keep < 0.3
    True
    """

    def __init__(
        self,
        policy: Policy,
        *,
        latency: float | None,
        limits: Limits | None = None,
        steps: Steps | None = None,
        load: Callable[[str, float], Load] | None = None,
        version: int = 0,
    ) -> None:
        """`load` makes what a query is watched with, from its name and the bound; queries have names then.

        Without a bound (`latency=None`) the detector goes by load alone.
        """
        self.policy = policy
        self._latency = float("inf") if latency is None else check_latency(latency)
        self._arbiter = Arbiter(limits, steps)
        self._load: Callable[[str, float], Load] = load or (lambda query, bound: QueryLoad(bound))
        self._named = load is not None
        self._loads: dict[str, Load] = {}
        first = None if latency is None else first_allowance(latency)
        # Before anything is known, the first batch has a budget and nothing else.
        start = Plan(version=version - 1, mode=self.limits.mode)
        plan = self._arbiter.keep_all(None, "", 0.0, learning=latency is not None)
        self._plan = replace(self._arbiter.settle(plan, first, start, self._latency), version=version)
        self._budgets: deque[tuple[float, float | None]] = deque([(float("-inf"), self._plan.budget)], maxlen=64)
        self._aimed = 0.0

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def share(self) -> float:
        """Share of the work that the plan in force leaves."""
        return self._plan.share if self._plan.drops else 1.0

    @property
    def full_share(self) -> float | None:
        """Of all that arrives, the share that fits: above 1 when there is room, None while it is not known."""
        known = [load.full_share for load in self._loads.values()]
        return min((share for share in known if share is not None), default=None)

    @property
    def latency(self) -> float:
        return self._latency

    @property
    def limits(self) -> Limits:
        return self._arbiter.limits

    def configure(
        self,
        *,
        latency: float | None = None,
        mode: Mode | None = None,
        floor: float | None = None,
        max_shed: float | None = None,
        budget: bool | None = None,
        at: float = 0.0,
    ) -> Plan:
        """Change a setting while running; mode and budget take effect at once, the rest with the next sample."""
        if latency is not None:
            self._latency = check_latency(latency)
            for load in self._loads.values():
                load.latency = latency
        limits = self._arbiter.limits
        limits = replace(
            limits,
            floor=limits.floor if floor is None else floor,
            guaranteed=limits.guaranteed if floor is None else floor,
            max_shed=limits.max_shed if max_shed is None else max_shed,
            budget=limits.budget if budget is None else budget,
        )
        if mode is not None and mode is not limits.mode:
            limits = replace(limits, mode=mode)
            off = mode is Mode.OFF
            self._plan = replace(
                self._plan,
                mode=mode,
                drops=self._plan.wanted if mode is Mode.ENFORCE else (),
                wanted=() if off else self._plan.wanted,
                share=1.0 if off else self._plan.share,
                version=self._plan.version + 1,
                at=at,
                reason=f"mode set to {mode.value}",
            )
        self._arbiter.limits = limits
        self._plan = self._arbiter.settle(self._plan, self._allowance(), self._plan, self._latency)
        return self._plan

    def replan(self) -> None:
        """The policy knows more than before: have it asked anew, however little the load has changed."""
        self._aimed = 0.0

    @property
    def look_after(self) -> float:
        """Seconds after which a running batch is worth a look: the rows of the next one wait for it."""
        return LOOK_AFTER * self._latency

    def would_shed(self, query: str) -> int:
        """In dry-run: how many rows enforcing would have dropped since the query's sample before the last."""
        load = self._loads.get(query)
        return 0 if load is None else max(0, round(load.would_shed))

    def remember(self) -> dict[str, Any]:
        """What was learned of each query, as JSON-able data: costs, rates, and how the bound is split."""
        return {query: load.remember() for query, load in self._loads.items()}

    def recall(self, learned: Mapping[str, Any]) -> Plan:
        """Go on with what was learned before a restart; what cannot be read is left aside.

        The first batch then has the budget that it should have. Nothing is thinned because of what was before.
        """
        for query, each in learned.items():
            load = self._load(query, self._latency)
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                load.recall(each)
                self._loads[query] = load
        return self._decide(self._plan.at)

    def begin(self, query: str, *, at: float = 0.0, interval: float = 0.0, draining: bool = False) -> Plan:
        """A query is about to run its first batch: what is known of it before that, for the plan it will find."""
        look = Sample(
            at=at,
            started=at,
            interval=interval,
            draining=draining,
            finished=False,
            next_started=False,
            query=query,
        )
        return self.observe(look)

    def observe(self, sample: Sample) -> Plan:
        """Take a sample in and return the plan to be in force; unchanged, it is the same object."""
        if sample.query not in self._loads:
            self._loads[sample.query] = self._load(sample.query, self._latency)
        self.policy.learn(sample)
        self._loads[sample.query].observe(
            sample, enforced=self.limits.mode is not Mode.DRY_RUN, budget=self._budget_at(sample.started)
        )
        # Who has begun and waits for its budget is given that of this plan.
        waits = sample.finished and sample.next_started and not sample.next_planned
        since = sample.at + (0.0 if waits else _REPORTED)
        return self._decide(sample.at, anew=sample.finished and not self.policy.steady, since=since)

    def forget(self, query: str, at: float) -> Plan:
        """A query has ended: what it needed no longer counts."""
        if self._loads.pop(query, None) is not None:
            self._decide(at)
        return self._plan

    def _decide(self, at: float, *, anew: bool = False, since: float | None = None) -> Plan:
        """`anew`: have the policy asked though the share is the same.

        `since`: who begins later has the plan's budget.
        """
        found = {name: load.overload() for name, load in self._loads.items()}
        overloads = {name: each for name, each in found.items() if each is not None and not each.in_vain}
        if self.limits.mode is Mode.OFF or not overloads:
            vain = {name: each for name, each in found.items() if each is not None and each.in_vain}
            worst = min(vain, default="")
            plan = self._arbiter.keep_all(vain.get(worst), self._who(worst), at, learning=self._learning)
        else:
            worst = min(overloads, key=lambda name: (overloads[name].keep, name))
            plan = self._shed(worst, overloads[worst], at, anew=anew)
        self._plan = self._arbiter.settle(plan, self._allowance(), self._plan, self._latency)
        if self._plan.budget != self._budgets[-1][1]:
            self._budgets.append((at + _REPORTED if since is None else since, self._plan.budget))
        if not self._plan.wanted:
            self._aimed = 0.0
        return self._plan

    @property
    def _learning(self) -> bool:
        return not self._loads or any(load.learning for load in self._loads.values())

    def _budget_at(self, moment: float) -> float | None:
        """What a batch had that began then."""
        return next((budget for since, budget in reversed(self._budgets) if since <= moment), self._budgets[0][1])

    def _allowance(self) -> Allowance | None:
        """The shortest budget of all queries, which read the same rows; none if for one of them it is in vain."""
        if not self._loads:
            return None if self._latency == float("inf") else first_allowance(self._latency)
        each = [load.allowance for load in self._loads.values()]
        known = [allowance for allowance in each if allowance is not None]
        if len(known) < len(each):
            return None
        return min(known)._replace(grace=max(allowance.grace for allowance in known))

    def _shed(self, query: str, overload: Overload, at: float, *, anew: bool) -> Plan:
        share = self._arbiter.share(overload, self._plan)
        same = self._plan.wanted and self._plan.mode is self.limits.mode and self._aimed > 0
        near = bool(same) and self._arbiter.is_near(share, self._aimed)
        if near and not anew:
            return self._plan
        share = self._aimed if near else share
        choice = self.policy.choose(share)
        if near and self._arbiter.is_alike(choice, self._plan):
            return self._plan
        if not choice.drops:
            return self._arbiter.keep_all(overload, self._who(query), at)
        why = self._why(query, overload, share) + self._arbiter.remark(share, overload, self._plan)
        self._aimed = share
        return self._arbiter.judge(choice, overload, why, at)

    def _who(self, query: str) -> str:
        return f"query {query!r}: " if self._named else ""

    def _why(self, query: str, overload: Overload, share: float) -> str:
        if not self._named:
            return (
                f"{overload.rate:,.0f} rows/s arrive; what comes in the {overload.allowed:.2f} s that the bound "
                f"allows a batch would take {overload.predicted:.2f} s"
            )
        fits = max(0.0, min(1.0, overload.keep))
        text = (
            f"{self.policy.name}: query {query!r} would take {overload.predicted:.2f} s for a batch and may take "
            f"{overload.allowed:.2f} s; {fits:.0%} of the work fits"
        )
        return text if share == fits else f"{text}, {share:.0%} is done for now"


def check_latency(seconds: float) -> float:
    if not seconds > 0 or seconds == float("inf"):
        raise InvalidArgument(
            "the latency bound must be a positive time", got=f"{seconds} s", hint='for example "4 seconds"'
        )
    return seconds
