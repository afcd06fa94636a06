"""A clock inside the plan: rows that come to the drop when their batch has used up its time do not pass it.

    deadline   when the batch was planned + budget, one number of a batch
    n          rows of this task that have come here
    over       clock ≥ deadline  and  n > grace/tasks, looked at for every stride-th row and remembered for others
    a row passes if not over, or if it is one of the floor's:  n · floor mod 1 < floor

The clock is asked by an object that every task makes for itself and every executor compiles (`TimeGate.java`); no
Python, no jar. From one look to the next, rows are only counted down in the generated code. The deadline is data
to that code, and nothing is compiled anew from batch to batch.

A batch that is over soon needs no clock, and even so its filter costs some nanoseconds a row. When a batch is
planned, Spark knows what its source gave it: bytes of files, or Kafka's offsets. If that takes a tenth of the
budget or less, by the pace of the last batches, the clock is not in the plan (`LongBatch.java`). Of other sources
nobody knows, and the clock is in every plan. The price: where rows become ten times as dear from one batch to the
next, the first of these batches may take longer than its budget.

What holds is one line of text in the driver's memory (as the order in `order_file`), read by the optimizer when it
plans a batch. Unlike a plan's drops it is not stored: a batch that runs again, days later perhaps, has its time
from then on. (Its own time would be of no use: all of it would be used up.) A line that nobody renews ends by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streamshed.spark.native import Native
from streamshed.spark.orders.planned_data import (
    Line,
    Switches,
    at_run_time,
    batch_time,
    java,
    planning_time,
    whole,
)

_LIMITED, _EXPIRES = range(2)  # which switch
_UNTIL, _EXPIRY = range(2)  # where the numbers stand in the line of what is too old
_LONG_AGO = -(1 << 63)
_FAR = (1 << 31) - 1
_PARTS = 1_000_000  # of a whole: shares as whole numbers, as `TimeGate.java` has them
STRIDES = (1, 8, 64)
"""Rows from one look at the clock to the next."""
_LOOK_EVERY = 0.005  # seconds of work between two looks, if rows are that cheap


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch may take, as the plan in force has it."""

    budget: float | None = None
    """Seconds from when the batch is planned; None: as long as it takes."""
    grace: int = 0
    """Rows that pass whatever the clock says, shared among the tasks; each up to its next look at the clock."""
    floor: float = 0.0
    """Share of what comes after that which passes all the same."""
    expiry: float | None = None
    """Seconds of age at the batch's own time from which rows are dropped; None: at no age. Of an absolute clock:
    the moment, in seconds since the epoch, before which a row must have arrived to be dropped."""

    @property
    def unlimited(self) -> bool:
        return self.budget is None and self.expiry is None


NO_LIMITS = BatchLimits()


def stride_for(row_seconds: float | None) -> int:
    """How many rows may pass between two looks, if one takes a core this long; None: not known.

    >>> [stride_for(cost) for cost in (None, 0.1, 1e-4, 1e-6)]
    [1, 1, 8, 64]
    """
    if row_seconds is None:
        return STRIDES[0]
    return max((stride for stride in STRIDES if stride * row_seconds <= _LOOK_EVERY), default=STRIDES[0])


class BatchClock:
    """The deadline of the batches of one shed stream, or of one query of a network."""

    def __init__(self, spark: SparkSession, *, absolute: bool = False, always: bool = True) -> None:
        """`absolute`: budget and expiry are moments, seconds since the epoch: several plans have one deadline.

        `always`: also in the plans of batches that are over soon.
        """
        self._absolute = absolute
        self._spark = spark
        self._text = ""
        self.limits = NO_LIMITS
        """What was set last."""
        self.has_expired = False
        """Whether rows could be too old at any time since this clock was made."""
        self._switches = Switches(spark, False, False)
        self._line = Line(spark)
        self._expiry = Line(spark)
        native = Native(spark)
        unasked, left = native.counter()
        gate = native.compiled(
            java(__package__, "TimeGate"),
            [absolute, unasked],
            "java.util.function.BooleanSupplier",
            self._line.column,
            F.array(planning_time(spark)),
        )
        self._long = F.lit(True)
        if not always:
            source = java(__package__, "LongBatch", "RunningBatch")
            asked = native.asked(source, [], "java.util.function.Predicate")
            self._long = native.invoke(asked, "test", "boolean", self._line.column, deterministic=True)
        # The gate says for how many rows it need not be asked again.
        self._in_time = (left > whole(0)) | native.invoke(gate, "getAsBoolean", "boolean")
        self.set(NO_LIMITS, until=0.0)

    def set(self, limits: BatchLimits, until: float, stride: int = 1) -> None:
        """What holds for batches that are planned from now on until `until`."""
        self.limits = limits
        self.has_expired |= limits.expiry is not None
        budget = -1 if limits.budget is None else round(limits.budget * 1000)
        grace, floor = min(limits.grace, _FAR), round(limits.floor * _PARTS)
        expiry = "" if limits.expiry is None else f" {round(limits.expiry * 1000)}"
        line = f"{int(until * 1000)} {budget} {grace} {floor} {stride}"
        text = f"{line}{expiry}"
        if text == self._text:
            return
        # In this order: whoever finds a switch on has numbers that say what it means.
        self._text = text
        self._line.set(line)
        self._expiry.set(f"{int(until * 1000)}{expiry}")
        self._switches.turn(_LIMITED, limits.budget is not None)
        self._switches.turn(_EXPIRES, limits.expiry is not None)

    @property
    def limited(self) -> Column:
        """Whether there is a budget, and need of one. The optimizer knows: else the clock is not in the plan."""
        return self._switches.is_on(_LIMITED) & self._long

    @property
    def expires(self) -> Column:
        """Whether rows can be too old; as `limited`."""
        return self._switches.is_on(_EXPIRES)

    def in_time(self) -> Column:
        """Whether a row comes before its batch's time is used up. Asked once for a row, since it counts."""
        return self._in_time

    def is_fresh(self, arrival: Column) -> Column:
        """Whether a row was young enough when its batch began. A row without an arrival time is."""
        numbers = F.split(self._expiry.column, " ")
        until, expiry = (F.get(numbers, F.lit(place)).cast("bigint") for place in (_UNTIL, _EXPIRY))
        oldest = expiry if self._absolute else batch_time(self._spark) - expiry
        holds = planning_time(self._spark) < until
        known = F.array(F.coalesce(F.when(holds, oldest), whole(_LONG_AGO)))
        return F.coalesce(F.unix_millis(arrival.cast("timestamp")) >= at_run_time(known), F.lit(True))
