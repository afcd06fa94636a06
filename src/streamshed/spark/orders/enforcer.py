"""How a plan comes into force: who decides, how it is stored, and what happens if it cannot be.

A person who changes or removes the control file comes first; then what a program pinned or the controller decided.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from streamshed.records import Drop, Mode, Plan

log = logging.getLogger("streamshed")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Carried(Generic[Value]):
    """A plan as it is carried out."""

    plan: Plan
    value: Value
    until: float = math.inf
    """When it ends by itself, seconds since the epoch."""


class Carrier(Protocol[Value]):
    """What carries plans to the running queries: a control file, and what a plan is in it."""

    @property
    def path(self) -> str: ...

    def value(self, plan: Plan) -> Value:
        """What a plan is in the file."""

    def drops(self, value: Value) -> bool: ...

    def publish(self, value: Value, lease: float, *, mirror: bool) -> object | None:
        """Put it in force for so many seconds; None if that cannot be."""

    def keep_all(self) -> None:
        """Keep every row from this moment on, and then have that stored. Only the storing may fail."""

    def follow(self, now: float) -> tuple[Value, float] | None:
        """What a person wrote into the file since the last look and until when it holds; None if nobody did."""

    def await_start(self) -> None: ...


class Enforcer(Generic[Value]):
    """Has the queries of a handle read the plan that is wanted.

    A plan that cannot be stored is not carried out: a batch that runs again would not find it.
    """

    def __init__(
        self, name: str, carrier: Carrier[Value], plan: Plan, grumble: Callable[[str, BaseException], None]
    ) -> None:
        """`plan` drops nothing. `grumble` tells of a problem that the job survives."""
        self._name = name
        self._carrier = carrier
        self._grumble = grumble
        self.current: Carried[Value] = Carried(plan, carrier.value(plan))
        """What is in force."""
        self._renew_at = 0.0
        self._by_hand: Carried[Value] | None = None
        self._failed = False

    @property
    def drops(self) -> bool:
        """Whether what is in force drops rows."""
        return self._carrier.drops(self.current.value)

    @property
    def by_hand(self) -> bool:
        """Whether a person has the say."""
        return self._by_hand is not None

    @property
    def failed(self) -> bool:
        """Whether something broke, and no batch could be read since."""
        return self._failed

    def is_due(self, now: float) -> bool:
        """Whether what is in force drops rows and is half over."""
        return self.drops and now >= self._renew_at

    def recovered(self) -> None:
        """A batch could be read: what failed before works again."""
        self._failed = False

    def release(self) -> None:
        """What was decided by hand no longer holds."""
        self._by_hand = None

    def carry_out(self, plan: Plan | None, lease: float, *, renew: bool = False) -> None:
        """Put a plan in force for at most `lease` seconds; what is in force already is left alone or renewed.

        None: nobody but a person has decided anything.
        """
        now = time.time()
        if self._by_hand is not None and now >= self._by_hand.until:
            self._by_hand = None
        wanted = self._by_hand
        if wanted is None:
            if plan is None:
                return
            wanted = Carried(plan, self._carrier.value(plan))
        drops = self._carrier.drops(wanted.value)
        if drops and self._failed:
            return
        if wanted.value != self.current.value or (drops and (renew or self.is_due(now))):
            length = min(lease, wanted.until - now)
            if not self._stored(wanted, length):
                if not drops:
                    self.open(wanted.plan)
                return
            self._renew_at = now + length / 2.0
        self.current = wanted

    def _stored(self, wanted: Carried[Value], lease: float) -> bool:
        try:
            mirror = wanted is not self._by_hand
            return self._carrier.publish(wanted.value, lease, mirror=mirror) is not None
        except Exception as error:
            self._grumble("a plan could not be stored, and is not carried out", error)
            return False

    def open(self, plan: Plan) -> None:
        """Keep every row from this moment on, for this reason, whether or not the storage works."""
        self.current = Carried(plan, self._carrier.value(Plan()))
        try:
            self._carrier.keep_all()
        except Exception as error:
            self._grumble("what is in force could not be stored", error)

    def fail_open(self, problem: BaseException, mode: Mode) -> None:
        """Keep every row until a batch can be read again."""
        self._failed = True
        if self.drops:
            log.warning("%s: rows are all kept from now on, because of: %s", self._name, problem)
            self.open(Plan(reason=f"failed open: {problem}", mode=mode, at=time.time()))

    def follow(self, mode: Mode, drops_of: Callable[[Value], tuple[Drop, ...]] | None = None) -> bool:
        """Obey somebody who changed or removed the control file; whether somebody did.

        `drops_of` gives the drops that a person's value stands for, where they can be told.
        """
        now = time.time()
        try:
            found = self._carrier.follow(now)
        except Exception as error:
            self._grumble("the control file could not be looked at", error)
            return False
        if found is None:
            return False
        value, until = found
        obeyed = mode is Mode.ENFORCE and self._carrier.drops(value)
        ends = "its plan ends, or " if obeyed else ""
        reason = f"the control file was changed or removed by hand; that holds until {ends}mode or pin is set"
        plan = Plan(reason=reason, mode=mode, at=now)
        if not obeyed:
            value, until = self._carrier.value(Plan()), math.inf
        elif drops_of is not None:
            plan = replace(plan, drops=drops_of(value), wanted=drops_of(value))
        self._by_hand = Carried(plan, value, until)
        if not obeyed and self.drops:
            # Whoever removed the file wants every row now, and not after a head start.
            self.open(plan)
        log.warning("%s: %s: %s", self._name, reason, self._carrier.path)
        return True

    def await_start(self) -> None:
        """A plan starts a little in the future; let a query's first batch be after that.

        Also if it keeps everything: what it takes the place of need not.
        """
        self._carrier.await_start()
