"""A network's plans on their way to its queries: drops as numbers, in the network's control file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamshed.records import Drop, Plan
from streamshed.spark.network.network_control import NetworkControl, PlanSpan
from streamshed.spark.network.slots import Numbers, Slots

_SOME = 0.999  # below 1 is how a query tells a plan with drops from one without


@dataclass(frozen=True, slots=True)
class Numbered:
    """A plan as numbers."""

    numbers: Numbers
    share: float = field(default=1.0, compare=False)
    """Share of the full load that it is meant to leave."""


class NumberCarrier:
    """Encodes a plan for the queries, and has them read it."""

    def __init__(self, control: NetworkControl, slots: Slots, left: Callable[[Sequence[Drop]], float]) -> None:
        """`left` tells which share of the work drops leave."""
        self._control = control
        self._slots = slots
        self._left = left

    @property
    def path(self) -> str:
        return self._control.path

    def value(self, plan: Plan) -> Numbered:
        numbers = self._slots.encode(plan.drops)
        return Numbered(numbers, min(_SOME, self._left(plan.drops)) if plan.drops else 1.0)

    def drops(self, value: Numbered) -> bool:
        return any(number is not None for number in value.numbers)

    def publish(self, value: Numbered, lease: float, *, mirror: bool) -> PlanSpan | None:
        return self._control.publish(value.numbers, value.share, lease, mirror=mirror)

    def keep_all(self) -> None:
        self._control.keep_all()

    def follow(self, now: float) -> tuple[Numbered, float] | None:
        history = self._control.follow()
        if history is None:
            return None
        span = history.at(int(now * 1000))
        return Numbered(span.numbers, min(span.share, _SOME)), span.until / 1000.0

    def await_start(self) -> None:
        self._control.await_start()
