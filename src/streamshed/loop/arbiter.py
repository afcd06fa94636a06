"""The arbiter: policies suggest, it accepts, clamps or refuses. Every safety rule stands here, for all entries."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamshed.errors import InvalidArgument
from streamshed.records import Choice, Mode, Overload, Plan

_LEAST = 0.01  # steps up from nothing start here


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may not go beyond."""

    mode: Mode = Mode.ENFORCE
    floor: float = 0.02
    """Share that is always kept, so that cost and rate can still be estimated."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor <= 1.0:
            raise InvalidArgument(
                "floor must be a share between 0 and 1",
                got=self.floor,
                hint="0.05 always keeps 5 % of the rows",
            )


@dataclass(frozen=True, slots=True)
class Steps:
    """How far one plan may be from the one before it."""

    rise: float = 4.0
    """What is kept grows at most so many times."""
    dead_band: float | None = 0.03
    """Changes smaller than this share are not worth a new plan; None: every one is."""


class Arbiter:
    """Says how much may be kept, and turns the drops that a policy wants into the plan that is carried out.

    - Protected rows pass whatever happens, so the others have to give up more (`Overload.keep`).
    - No row is dropped in vain: where dropping cannot bring the bound back, everything is kept.
    - What is kept never falls below the floor, and rises by bounded steps.
    - `off` plans nothing; `dry-run` plans, says so, and drops nothing.
    """

    def __init__(self, limits: Limits | None = None, steps: Steps | None = None) -> None:
        self.limits = limits or Limits()
        self.steps = steps or Steps()

    def share(self, overload: Overload, current: Plan) -> float:
        """Share of the work to be kept."""
        highest = min(1.0, self.steps.rise * max(current.share, self.limits.floor, _LEAST))
        return max(self.limits.floor, min(overload.keep, highest))

    def is_near(self, share: float, aimed: float) -> bool:
        """Whether a plan that was made for one share is as good for another."""
        band = self.steps.dead_band
        return band is not None and abs(share - aimed) <= band * aimed

    def keep_all(self, overload: Overload | None, who: str, current: Plan, at: float) -> Plan:
        """The plan to keep everything, and why."""
        reason = "nothing is shed: the next batch fits"
        if self.limits.mode is Mode.OFF:
            reason, overload = "mode is off", None
        elif overload is not None and overload.in_vain:
            reason = f"nothing is shed: {who}{overload.in_vain}"
        elif overload is not None:
            reason = "the policy sheds nothing"
        return self._settle(Plan(reason=reason, mode=self.limits.mode, at=at, overload=overload), current)

    def judge(self, choice: Choice, overload: Overload, why: str, current: Plan, at: float) -> Plan:
        """The plan that carries out a policy's choice; `current` itself if it is the same."""
        enforced = self.limits.mode is Mode.ENFORCE
        plan = Plan(
            drops=choice.drops if enforced else (),
            wanted=choice.drops,
            share=choice.share,
            reason=why if enforced else f"dry run, nothing is dropped: {why}",
            mode=self.limits.mode,
            at=at,
            overload=overload,
        )
        return self._settle(plan, current)

    def remark(self, share: float, overload: Overload) -> str:
        """What a person should know of a share that is not what fits."""
        if share <= self.limits.floor and overload.share < self.limits.floor:
            return f"; even the floor of {self.limits.floor:.0%} is more than fits"
        if overload.share < overload.untouched - 0.02:
            return f"; protected rows alone ({overload.untouched:.0%}) are more than fits"
        return ""

    def _settle(self, plan: Plan, current: Plan) -> Plan:
        same = (plan.mode, plan.wanted, plan.drops) == (current.mode, current.wanted, current.drops)
        # To keep everything because it fits and because nothing helps are two plans, or nobody would hear of it.
        if same and hopeless(plan) == hopeless(current):
            return current
        return replace(plan, version=current.version + 1)


def hopeless(plan: Plan) -> bool:
    """Whether everything is kept because dropping would be in vain."""
    return plan.overload is not None and plan.overload.in_vain != ""
