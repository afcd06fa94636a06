"""The controller: Samples in, Plans out. The only place that holds control state."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from streamshed.arbiter import Arbiter, Limits
from streamshed.detect import AffineCost, CostModel, KeepResponse, OverloadDetector
from streamshed.errors import InvalidArgument
from streamshed.records import Drop, Mode, Overload, Plan, Sample


class Policy(Protocol):
    """Where and how much to drop, given an overload."""

    @property
    def name(self) -> str: ...

    def drops(self, overload: Overload) -> tuple[Drop, ...]: ...


class Controller:
    """Detector, policy and arbiter in a row; pure: no clock, no disk, no randomness.

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
        latency: float,
        limits: Limits | None = None,
        cost: CostModel | None = None,
        version: int = 0,
    ) -> None:
        self._policy = policy
        self.cost: CostModel = cost or AffineCost()
        self._response = KeepResponse()
        self._detector = OverloadDetector(self.cost, check_latency(latency), response=self._response)
        self._arbiter = Arbiter(limits, self._response)
        self._plan = Plan(version=version, mode=self._arbiter.limits.mode)

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def latency(self) -> float:
        return self._detector.latency

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
            self._detector.latency = check_latency(latency)
        limits = self._arbiter.limits
        if floor is not None:
            limits = replace(limits, floor=floor)
        if mode is not None and mode is not limits.mode:
            limits = replace(limits, mode=mode)
            drops = self._plan.wanted if mode is Mode.ENFORCE else ()
            self._plan = replace(
                self._plan,
                mode=mode,
                drops=drops,
                wanted=() if mode is Mode.OFF else self._plan.wanted,
                version=self._plan.version + 1,
                at=at,
                reason=f"mode set to {mode.value}",
            )
        self._arbiter.limits = limits
        return self._plan

    def observe(self, sample: Sample) -> Plan:
        """Take a sample in and return the plan to be in force; unchanged, it is the same object."""
        self._response.learn(sample)
        overload = self._detector.observe(sample, enforced=self.limits.mode is Mode.ENFORCE)
        wanted = self._policy.drops(overload) if overload is not None else ()
        self._plan = self._arbiter.judge(wanted, overload, self._plan, sample.at)
        return self._plan


def check_latency(seconds: float) -> float:
    if not seconds > 0 or seconds == float("inf"):
        raise InvalidArgument(
            "the latency bound must be a positive time", got=f"{seconds} s", hint='for example "4 seconds"'
        )
    return seconds
