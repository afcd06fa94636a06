"""The arbiter: policies suggest, it accepts, clamps or refuses. Every safety rule stands here, for all entries."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamshed.errors import InvalidArgument
from streamshed.loop.time_budget import Allowance
from streamshed.records import Choice, Mode, Overload, Plan

_LEAST = 0.01  # steps up from nothing start here
_SHORTER, _LONGER = 0.01, 0.05  # changes of a budget that are not worth a new plan, as shares of the bound
_ALIKE = 0.03  # and of what drops keep, as a share: which rows go is a policy's own matter
_LESS, _MORE = 1.5, 1.05  # and of the grace, as factors: too little of it would cost rows in vain


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may not go beyond."""

    mode: Mode = Mode.ENFORCE
    floor: float = 0.02
    """Share that plans keep at least, so that cost and rate can still be estimated."""
    guaranteed: float = 0.0
    """Share of what comes when a batch's time is used up that passes all the same: a floor that somebody asked
    for. At six times the capacity two rows of a hundred are an eighth of what a batch can do, so there is none
    unless somebody did."""
    max_shed: float = 1.0
    """Share that may be shed at most, strictly: below 1 there is no time budget, which cannot know its share."""
    budget: bool = True
    """Whether batches are cut when their time is used up."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor <= 1.0:
            raise InvalidArgument(
                "floor must be a share between 0 and 1",
                got=self.floor,
                hint="0.05 always keeps 5 % of the rows",
            )
        if not 0.0 <= self.max_shed <= 1.0:
            raise InvalidArgument(
                "max_shed must be a share between 0 and 1",
                got=self.max_shed,
                hint="0.5 drops at most half of the rows, and lets them be late rather than drop more",
            )

    @property
    def least(self) -> float:
        """Share that plans keep at least."""
        return max(self.floor, 1.0 - self.max_shed)

    @property
    def timed(self) -> bool:
        """Whether plans may have a time budget."""
        return self.budget and self.max_shed == 1.0 and self.mode is Mode.ENFORCE


@dataclass(frozen=True, slots=True)
class Steps:
    """How far one plan may be from the one before it."""

    rise: float = 4.0
    """What is kept grows at most so many times."""
    dead_band: tuple[float, float] | None = (0.12, 0.08)
    """By how much less and how much more the share may be that would be planned now without a new plan: the budget
    cuts what is too much, but what is too little is lost. None: every change is worth one."""


class Arbiter:
    """Says how much may be kept, and turns the drops that a policy wants into the plan that is carried out.

    - Protected rows pass whatever happens, so the others have to give up more (`Overload.keep`).
    - No row is dropped in vain: where dropping cannot bring the bound back, everything is kept.
    - What is kept never falls below the floor or what `max_shed` leaves, and rises by bounded steps.
    - A plan has a time budget, unless that is turned off, or would be in vain for one of the queries.
    - `off` plans nothing; `dry-run` plans, says so, and drops nothing.
    """

    def __init__(self, limits: Limits | None = None, steps: Steps | None = None) -> None:
        self.limits = limits or Limits()
        self.steps = steps or Steps()

    def share(self, overload: Overload, current: Plan) -> float:
        """Share of the work to be kept."""
        highest = min(1.0, self.steps.rise * max(current.share, self.limits.least, _LEAST))
        return max(self.limits.least, min(overload.keep, highest))

    def is_near(self, share: float, aimed: float) -> bool:
        """Whether a plan that was made for the second share is as good for the first."""
        if self.steps.dead_band is None:
            return False
        less, more = self.steps.dead_band
        return -less * aimed <= share - aimed <= more * aimed

    def is_alike(self, choice: Choice, plan: Plan) -> bool:
        """Whether drops that a policy wants for the same share are worth no new plan."""
        places = [(drop.at, drop.where) for drop in choice.drops]
        return places == [(drop.at, drop.where) for drop in plan.wanted] and all(
            abs(now.keep - before.keep) <= _ALIKE * before.keep
            for now, before in zip(choice.drops, plan.wanted, strict=True)
        )

    def keep_all(self, overload: Overload | None, who: str, at: float, *, learning: bool = False) -> Plan:
        """The plan to keep everything, and why."""
        reason = "nothing is shed: what arrives fits"
        if self.limits.mode is Mode.OFF:
            reason, overload = "mode is off", None
        elif overload is not None and overload.in_vain:
            reason = f"nothing is shed: {who}{overload.in_vain}"
        elif overload is not None:
            reason = "the policy sheds nothing"
        elif learning:
            reason = "nothing is shed: still learning what batches cost"
        return Plan(reason=reason, mode=self.limits.mode, at=at, overload=overload)

    def judge(self, choice: Choice, overload: Overload, why: str, at: float) -> Plan:
        """The plan that carries out a policy's choice."""
        enforced = self.limits.mode is Mode.ENFORCE
        return Plan(
            drops=choice.drops if enforced else (),
            wanted=choice.drops,
            share=choice.share,
            reason=why if enforced else f"dry run, nothing is dropped: {why}",
            mode=self.limits.mode,
            at=at,
            overload=overload,
        )

    def settle(self, plan: Plan, allowance: Allowance | None, current: Plan, bound: float) -> Plan:
        """The plan with the time that batches may take, as the next version; `current` if it is the same."""
        budget, grace = self._timed(allowance, current, bound)
        same = (plan.mode, plan.wanted, plan.drops, budget, grace) == (
            current.mode, current.wanted, current.drops, current.budget, current.grace,
        )  # fmt: skip
        # To keep everything because it fits and because nothing helps are two plans, or nobody would hear of it.
        told = bool(plan.wanted) or plan.reason == current.reason or (hopeless(plan) and hopeless(current))
        if same and told:
            return current
        return replace(plan, budget=budget, grace=grace, version=current.version + 1)

    def _timed(self, allowance: Allowance | None, current: Plan, bound: float) -> tuple[float | None, int]:
        """Budget and grace: those in force if they are about the same."""
        if allowance is None or not self.limits.timed:
            return None, 0
        budget, grace, _ = allowance
        if current.budget is None:
            return budget, grace
        longer = (budget - current.budget) / bound
        # A little longer is not worth a plan; for a little too long the margin of the bound makes up.
        near = -_SHORTER <= longer <= _LONGER and current.grace / _LESS <= grace <= current.grace * _MORE
        return (current.budget, current.grace) if near else (budget, grace)

    def remark(self, share: float, overload: Overload, current: Plan) -> str:
        """What a person should know of a share that is not what fits."""
        if share <= self.limits.floor and overload.share < self.limits.floor:
            return f"; even the floor of {self.limits.floor:.0%} is more than fits"
        if share <= self.limits.least and overload.share < self.limits.least:
            return f"; no more than {self.limits.max_shed:.0%} may be shed, so rows will be late"
        if current.wanted and share < overload.keep - 0.02:
            return f"; recovering from {current.share:.2g}, at most {self.steps.rise:g} times a step"
        if overload.share < overload.untouched - 0.02:
            return f"; protected rows alone ({overload.untouched:.0%}) are more than fits"
        return ""


def hopeless(plan: Plan) -> bool:
    """Whether everything is kept because dropping would be in vain."""
    return plan.overload is not None and plan.overload.in_vain != ""
