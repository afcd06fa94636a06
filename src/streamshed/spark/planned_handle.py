"""What handles have whose plans the one controller makes: a shed stream's and a network's."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from streamshed.durations import seconds
from streamshed.loop.controller import Controller
from streamshed.records import Mode, Plan
from streamshed.spark import arguments
from streamshed.spark.handle import Handle, setting
from streamshed.spark.orders.budget_carrier import BudgetCarrier, lease_of
from streamshed.spark.orders.enforcer import Enforcer


class PlannedHandle(Handle):
    """Settings of the loop, and how its plans come into force.

    A subclass says who runs (`_wanted_plan`, `_idle`, `_draining`), how a pinned plan is made anew, and what is
    told of a plan (`_tell`).
    """

    _controller: Controller
    _enforcer: Enforcer[Any]
    _budget: BudgetCarrier
    _pinned: Plan | None
    _plan: Plan
    _expired: str | None

    @setting
    def mode(self) -> Mode:
        return self._controller.limits.mode

    @setting
    def latency(self) -> float:
        """The bound, in seconds."""
        return self._controller.latency

    @setting
    def floor(self) -> float:
        """Share that is always kept: of the rows, or of a network's work."""
        return self._controller.limits.floor

    @setting
    def max_shed(self) -> float:
        """The most that may be shed, strictly; below 1 there is no time budget."""
        return self._controller.limits.max_shed

    @setting
    def budget(self) -> bool | float:
        """Whether batches may be given a time budget; a number: seconds that it is at most."""
        return self._budget.setting

    @setting
    def expired(self) -> str:
        """What becomes of rows that were older than the bound when their batch began: "keep" or "drop"."""
        return self._expired or "keep"

    def configure(
        self,
        *,
        mode: str | Mode | None = None,
        latency: str | float | timedelta | None = None,
        floor: float | None = None,
        max_shed: float | None = None,
        budget: bool | str | float | timedelta | None = None,
        expired: str | None = None,
    ) -> None:
        """Change settings while the queries run; the next batches see them."""
        wanted_mode = None if mode is None else arguments.check_mode(mode)
        wanted_latency = None if latency is None else seconds(latency, "latency")
        wanted_floor = None if floor is None else arguments.check_floor(floor)
        most_shed = None if max_shed is None else arguments.check_max_shed(max_shed)
        bound = self.latency if wanted_latency is None else wanted_latency
        most = arguments.check_budget(self.budget if budget is None else budget, bound)
        if expired is not None:
            self._check_expired(expired)
        self._check_open()
        with self._locked():
            self._controller.configure(
                mode=wanted_mode,
                latency=wanted_latency,
                floor=wanted_floor,
                max_shed=most_shed,
                budget=most != 0.0,
                at=time.time(),
            )
            self._budget.most = most
            if expired is not None and self._expired is not None:
                self._expired = expired
            if wanted_mode is not None:
                self._mode_set(wanted_mode)
            self._adopt()

    def _mode_set(self, mode: Mode) -> None:
        """Who sets a mode takes the control file back from whoever changed or removed it."""
        self._enforcer.release()
        if self._pinned is not None:
            self._pinned = self._pinned_again(self._pinned)

    def look_after(self) -> float:
        """Seconds after which a running batch is worth a look: when it may break the bound."""
        return self._controller.look_after

    def fail_open(self, problem: BaseException) -> None:
        """Something of ours broke: keep every row, until a batch can be read again."""
        with self._locked():
            self._enforcer.fail_open(problem, self.mode)
            self._announce()

    # How a plan comes into force.

    def _adopt(self, *, renew: bool = False) -> None:
        """Have the plan carried out that is wanted now."""
        if self._closed:
            return
        self._enforcer.carry_out(self._wanted_plan(), lease_of(self.latency), renew=renew)
        self._announce()

    def _limit(self) -> None:
        """Have the batches keep the time budget of the plan in force, if anything may be dropped at all."""
        if self._closed or self._idle() or self._enforcer.failed or self._enforcer.by_hand:
            self._budget.open()
            return
        drops = self._expired == "drop" and self.mode is Mode.ENFORCE
        self._budget.carry_out(
            self._enforcer.current.plan,
            self.latency,
            floor=self._controller.limits.guaranteed,
            expiry=self.latency if drops else None,
            draining=self._pinned is None and self._draining(),
        )

    def _announce(self) -> None:
        """Tell of the plan in force, if it is another."""
        raise NotImplementedError

    def _wanted_plan(self) -> Plan | None:
        """The plan to be in force; None if nothing runs."""
        raise NotImplementedError

    def _idle(self) -> bool:
        """Whether no query runs."""
        raise NotImplementedError

    def _draining(self) -> bool:
        """Whether a query ends when it has read what is there."""
        return any(query.draining for query in self._queries.values())

    def _pinned_again(self, pinned: Plan) -> Plan:
        """A plan that somebody pinned, as the mode has it now."""
        raise NotImplementedError

    def _check_expired(self, expired: str) -> None:
        """Whether that can be asked for; raises if not."""
        raise NotImplementedError
