"""How a plan of a network comes into force: who decides, how it is stored, and what happens if it cannot be."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from streamshed.records import Mode, Plan
from streamshed.spark.network_control import NetworkControl
from streamshed.spark.slots import Numbers, Slots

log = logging.getLogger("streamshed")

_BY_HAND = "the control file was changed or removed by hand; that holds until mode or pin is set"


@dataclass(frozen=True, slots=True)
class Carried:
    """A plan as it is carried out."""

    plan: Plan
    numbers: Numbers
    share: float
    """Share of the full load that it is meant to leave."""
    until: float = math.inf
    """When it ends by itself, seconds since the epoch."""

    @property
    def drops(self) -> bool:
        return any(number is not None for number in self.numbers)


class Enforcer:
    """Has the queries of a network read the plan that is wanted.

    A person who changes or removes the control file comes first; then what a program pinned or the controller
    decided. A plan that cannot be stored is not carried out: a batch that runs again would not find it.
    """

    def __init__(
        self,
        name: str,
        control: NetworkControl,
        slots: Slots,
        plan: Plan,
        grumble: Callable[[str, BaseException], None],
    ) -> None:
        """`grumble` tells of a problem that the job survives."""
        self._name = name
        self._control = control
        self._slots = slots
        self._grumble = grumble
        self.current = Carried(plan, slots.encode(()), 1.0)
        """What is in force."""
        self._renew_at = 0.0
        self._by_hand: Carried | None = None
        self._failed = False

    def is_due(self, now: float) -> bool:
        """Whether what is in force drops rows and is half over."""
        return self.current.drops and now >= self._renew_at

    def recovered(self) -> None:
        """A batch could be read: what failed before works again."""
        self._failed = False

    def release(self) -> None:
        """What was decided by hand no longer holds."""
        self._by_hand = None

    def carry_out(self, plan: Plan, share: float, lease: float, *, renew: bool = False) -> None:
        """Put a plan in force for at most `lease` seconds; what is in force already is left alone or renewed."""
        now = time.time()
        if self._by_hand is not None and now >= self._by_hand.until:
            self._by_hand = None
        wanted = self._by_hand or Carried(plan, self._slots.encode(plan.drops), share)
        if wanted.drops and self._failed:
            return
        if wanted.numbers != self.current.numbers or (wanted.drops and (renew or self.is_due(now))):
            length = min(lease, wanted.until - now)
            if not self._stored(wanted, length):
                if not wanted.drops:
                    self.open(wanted.plan)
                return
            self._renew_at = now + length / 2.0
        self.current = wanted

    def _stored(self, wanted: Carried, lease: float) -> bool:
        try:
            mirror = wanted is not self._by_hand
            return self._control.publish(wanted.numbers, wanted.share, lease, mirror=mirror) is not None
        except Exception as error:
            self._grumble("a plan could not be stored, and is not carried out", error)
            return False

    def open(self, plan: Plan) -> None:
        """Keep every row from this moment on, for this reason, whether or not the storage works."""
        self.current = Carried(plan, self._slots.encode(()), 1.0)
        try:
            self._control.keep_all()
        except Exception as error:
            self._grumble("what is in force could not be stored", error)

    def fail_open(self, problem: BaseException, mode: Mode) -> None:
        """Keep every row until a batch can be read again."""
        self._failed = True
        if self.current.drops:
            log.warning("%s: rows are all kept from now on, because of: %s", self._name, problem)
            self.open(Plan(reason=f"failed open: {problem}", mode=mode, at=time.time()))

    def follow(self, mode: Mode) -> None:
        """Obey somebody who changed or removed the control file."""
        try:
            found = self._control.follow()
        except Exception as error:
            self._grumble("the control file could not be looked at", error)
            return
        if found is None:
            return
        now = time.time()
        plan = Plan(reason=_BY_HAND, mode=mode, at=now)
        self._by_hand = Carried(plan, self._slots.encode(()), 1.0)
        span = found.at(int(now * 1000))
        if mode is Mode.ENFORCE and any(number is not None for number in span.numbers):
            self._by_hand = Carried(plan, span.numbers, min(span.share, 0.999), span.until / 1000.0)
        log.warning("%s: %s: %s", self._name, _BY_HAND, self._control.path)

    def await_start(self) -> None:
        """A plan starts a little in the future; let a query's first batch be after that."""
        start = max((span.start for span in self._control.history.spans), default=0) / 1000.0
        if self.current.drops:
            time.sleep(min(1.0, max(0.0, start - time.time())))

    def close(self) -> None:
        self._control.close()
