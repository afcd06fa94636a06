"""The controller: Samples in, Plans out. The only place that holds control state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from streamshed.errors import InvalidArgument
from streamshed.loop.arbiter import Arbiter, Limits, Steps
from streamshed.loop.query_load import QueryLoad
from streamshed.records import Choice, Mode, Overload, Plan, Sample


class Policy(Protocol):
    """Where to drop, if so much of the work is to be kept."""

    @property
    def name(self) -> str: ...

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

    def observe(self, sample: Sample, *, enforced: bool = True) -> None: ...

    def overload(self, *, shedding: bool) -> Overload | None:
        """Whether, and how far, what comes is too much; `shedding` says whether anything is shed already."""


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
    >>> burst = Sample(at=9.0, started=5.0, arrived=4000, kept=4000, gap=1.0, interval=1.0)
    >>> controller.observe(burst).keep < 0.2
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
        self._plan = Plan(version=version, mode=self.limits.mode)
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
        at: float = 0.0,
    ) -> Plan:
        """Change a setting while running; the mode takes effect at once, the rest with the next sample."""
        if latency is not None:
            self._latency = check_latency(latency)
            for load in self._loads.values():
                load.latency = latency
        limits = self._arbiter.limits
        if floor is not None:
            limits = replace(limits, floor=floor)
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
        return self._plan

    def replan(self) -> None:
        """The policy knows more than before: have it asked anew, however little the load has changed."""
        self._aimed = 0.0

    def observe(self, sample: Sample) -> Plan:
        """Take a sample in and return the plan to be in force; unchanged, it is the same object."""
        if sample.query not in self._loads:
            self._loads[sample.query] = self._load(sample.query, self._latency)
        self.policy.learn(sample)
        self._loads[sample.query].observe(sample, enforced=self.limits.mode is Mode.ENFORCE)
        return self._decide(sample.at)

    def forget(self, query: str, at: float) -> Plan:
        """A query has ended: what it needed no longer counts."""
        if self._loads.pop(query, None) is not None:
            self._decide(at)
        return self._plan

    def _decide(self, at: float) -> Plan:
        shedding = bool(self._plan.wanted)
        found = {name: load.overload(shedding=shedding) for name, load in self._loads.items()}
        overloads = {name: each for name, each in found.items() if each is not None and not each.in_vain}
        if self.limits.mode is Mode.OFF or not overloads:
            vain = {name: each for name, each in found.items() if each is not None and each.in_vain}
            worst = min(vain, default="")
            self._plan = self._arbiter.keep_all(vain.get(worst), self._who(worst), self._plan, at)
        else:
            worst = min(overloads, key=lambda name: (overloads[name].keep, name))
            self._shed(worst, overloads[worst], at)
        if not self._plan.wanted:
            self._aimed = 0.0
        return self._plan

    def _shed(self, query: str, overload: Overload, at: float) -> None:
        share = self._arbiter.share(overload, self._plan)
        same = self._plan.wanted and self._plan.mode is self.limits.mode and self._aimed > 0
        if same and self._arbiter.is_near(share, self._aimed):
            return
        choice = self.policy.choose(share)
        if not choice.drops:
            self._plan = self._arbiter.keep_all(overload, self._who(query), self._plan, at)
            return
        why = self._why(query, overload, share) + self._arbiter.remark(share, overload)
        self._plan = self._arbiter.judge(choice, overload, why, self._plan, at)
        self._aimed = share

    def _who(self, query: str) -> str:
        return f"query {query!r}: " if self._named else ""

    def _why(self, query: str, overload: Overload, share: float) -> str:
        if not self._named:
            rows = f"{overload.arriving:,.0f} rows expected ({overload.rate:,.0f}/s)"
            return (
                f"{rows if overload.arriving > 1 else 'the waiting rows'} would take "
                f"{overload.predicted:.2f} s; the bound allows {overload.allowed:.2f} s"
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
