"""The arbiter: policies suggest, it accepts, clamps or refuses. Every safety rule stands here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamshed.detect import KeepResponse
from streamshed.errors import InvalidArgument
from streamshed.records import Drop, Mode, Overload, Plan

_RAISE = 4.0  # a keep fraction grows at most so many times from one plan to the next
_DEADBAND = 0.03  # changes smaller than this share are not worth a new plan


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


class Arbiter:
    """Turns the drops a policy wants into the plan that is carried out.

    - Protected rows pass whatever happens, so the others have to give up more (`KeepResponse`).
    - No row is dropped in vain: where dropping cannot bring the bound back, everything is kept.
    - keep never falls below the floor, and rises by bounded steps.
    - `off` plans nothing; `dry-run` plans, says so, and drops nothing.
    """

    def __init__(self, limits: Limits | None = None, response: KeepResponse | None = None) -> None:
        self.limits = limits or Limits()
        self._response = response or KeepResponse()

    def judge(self, wanted: tuple[Drop, ...], overload: Overload | None, current: Plan, at: float) -> Plan:
        """The plan to be in force from now on; `current` itself if it is as good."""
        limits = self.limits
        if limits.mode is Mode.OFF:
            return self._settle(Plan(reason="mode is off", mode=limits.mode, at=at), current)
        if overload is None or overload.in_vain or not wanted:
            reason = "the policy sheds nothing"
            if overload is None:
                reason = "nothing is shed: the next batch fits"
            elif overload.in_vain:
                reason = f"nothing is shed: {overload.in_vain}"
            return self._settle(Plan(reason=reason, mode=limits.mode, at=at, overload=overload), current)
        judged = tuple(replace(drop, keep=self._clamp(drop, current)) for drop in wanted)
        enforced = limits.mode is Mode.ENFORCE
        plan = Plan(
            drops=judged if enforced else (),
            wanted=judged,
            reason=self._reason(overload, judged, enforced),
            mode=limits.mode,
            at=at,
            overload=overload,
        )
        return self._settle(plan, current)

    def _clamp(self, drop: Drop, current: Plan) -> float:
        keep = self._response.keep_for(drop.keep)
        highest = min(1.0, _RAISE * max(current.would_keep_at(drop.at), self.limits.floor, 0.01))
        return max(self.limits.floor, min(keep, highest))

    def _settle(self, plan: Plan, current: Plan) -> Plan:
        """Stay with the current plan if the new one differs by a hair only."""
        same_places = [d.at for d in plan.wanted] == [d.at for d in current.wanted]
        # To keep everything because it fits and because nothing helps are two plans, or nobody would hear of it.
        if plan.mode is current.mode and same_places and hopeless(plan) == hopeless(current):
            changes = (
                abs(new.keep - old.keep) > _DEADBAND * old.keep
                for new, old in zip(plan.wanted, current.wanted, strict=True)
            )
            if not any(changes):
                return current
        return replace(plan, version=current.version + 1)

    def _reason(self, overload: Overload, drops: tuple[Drop, ...], enforced: bool) -> str:
        keep = min(drop.keep for drop in drops)
        rows = f"{overload.arriving:,.0f} rows expected ({overload.rate:,.0f}/s)"
        text = (
            f"{rows if overload.arriving > 1 else 'the waiting rows'} would take "
            f"{overload.predicted:.2f} s; the bound allows {overload.allowed:.2f} s"
        )
        if keep <= self.limits.floor and overload.share < self.limits.floor:
            text += f"; even the floor of {self.limits.floor:.0%} is more than fits"
        elif overload.share < self._response.untouched - 0.02:
            text += f"; protected rows alone ({self._response.untouched:.0%}) are more than fits"
        return text if enforced else f"dry run, nothing is dropped: {text}"


def hopeless(plan: Plan) -> bool:
    """Whether everything is kept because dropping would be in vain."""
    return plan.overload is not None and plan.overload.in_vain != ""
