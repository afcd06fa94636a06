"""The time budget of the plan in force on its way to the batches: who may have one, how long it holds."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamshed.records import Mode, Plan
from streamshed.spark.orders.batch_clock import NO_LIMITS, BatchClock, BatchLimits, stride_for

CLOCKS_AGREE = 0.1
"""Share of the bound that an executor's clock may be off for batches to have a budget."""


def lease_of(bound: float) -> float:
    """Seconds that what is in force holds unless it is renewed."""
    return max(20.0, 5.0 * bound)


class BudgetCarrier:
    """Has batches keep the budget of a plan, as long as somebody renews it.

    The same rules as for drops: nothing is cut unless the mode is to enforce, what nobody renews ends by itself,
    and nothing has to be stored for it, so that opening can never fail.
    """

    def __init__(
        self, clock: BatchClock, most: float | None, cores: int, clocks_agree: Callable[[float], bool]
    ) -> None:
        """`most`: seconds that a batch is given at most; 0: never any budget, None: what the plan says.

        `clocks_agree` tells whether the executors' clocks are right by so many seconds.
        """
        self.most = most
        self._clock = clock
        self._cores = cores
        self._clocks_agree = clocks_agree
        self._row_seconds: float | None = None
        self._lead = 0.0
        self._stride = 1
        self._until = 0.0

    @property
    def setting(self) -> bool | float:
        """Whether there may be a budget, or the seconds that it is at most: as a person sets it."""
        return self.most if self.most else self.most is None

    def learn(self, seconds: float, rows: int, lead: float) -> None:
        """A batch took so long for so many rows: what one takes tells how often the clock is worth a look.

        `lead`: seconds from the batch's start until it was planned, from when on its budget is counted.
        """
        self._lead = lead
        if rows > 0:
            cost = seconds * self._cores / rows
            # Batches of next to nothing make rows seem dear: believe it slowly.
            self._row_seconds = cost if self._row_seconds is None else min(cost, 2.0 * self._row_seconds)

    def carry_out(
        self, plan: Plan, bound: float, *, floor: float, expiry: float | None = None, draining: bool = False
    ) -> None:
        """Have the budget of a plan hold until the lease of a bound is over.

        `floor`: the share of what comes too late that is kept all the same. `draining`: a query ends when it has
        read what is there, and has no bound to keep.
        """
        budget = plan.budget if plan.mode is Mode.ENFORCE and self.most != 0.0 else None
        if budget is None or (draining and not self.most) or not self._clocks_agree(CLOCKS_AGREE * bound):
            self._put(BatchLimits(expiry=expiry), lease_of(bound))
            return
        whole = budget if self.most is None else min(budget, self.most)
        # A start that took very long once is not held against the next batch.
        left = max(whole - self._lead, whole / 2.0)
        self._put(BatchLimits(left, plan.grace, floor, expiry), lease_of(bound))

    def open(self) -> None:
        """Let every row pass from the next batch on."""
        self._put(NO_LIMITS, 0.0)

    @property
    def limits(self) -> BatchLimits:
        """What holds now."""
        return self._clock.limits if time.time() < self._until else NO_LIMITS

    @property
    def stride(self) -> int:
        """Rows from one look at the clock to the next."""
        return self._stride

    def _put(self, limits: BatchLimits, lease: float) -> None:
        now = time.time()
        stride = 1 if limits.budget is None else stride_for(self._row_seconds)
        same = (limits, stride) == (self._clock.limits, self._stride)
        if same and (limits.unlimited or now < self._until - lease / 2.0):
            return
        self._stride, self._until = stride, now + lease
        self._clock.set(limits, self._until, stride)
