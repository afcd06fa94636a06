"""A clock inside the plan: rows that come to the drop when their batch has used up its time do not pass it.

    deadline   when the batch was planned + budget, one number of a batch
    n          rows of this task that have come here
    over       clock ≥ deadline  and  n > grace, looked at for every stride-th row and remembered for the others
    a row passes if not over, or if it is one of the floor's:  n · floor mod 1 < floor

All of it is Spark's own expressions, in the generated code; no Python, no jar. What a task remembers stands in a
few cells, a literal that travels with the code, so that every task has a copy of its own. The deadline is in an
array: an array is data to the generated code, and nothing is compiled anew from batch to batch.

What holds is one line of text in the driver's memory (as the order in `order_file`), read by the optimizer when it
plans a batch. Unlike a plan's drops it is not stored: a batch that runs again, days later perhaps, has its time
from then on. (Its own time would be of no use: all of it would be used up. Nor does the optimizer know it: Spark
writes it into the plan later.) A line that nobody renews ends by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streamshed.spark.orders.task_cells import Line, TaskCells, TaskCounter, batch_time, clock, whole

_UNTIL, _BUDGET, _GRACE, _FLOOR, _STRIDE, _EXPIRY = range(6)  # where the numbers stand in the line
_NEVER = (1 << 63) - 1
_FAR = (1 << 31) - 1
_PARTS = 1_000_000  # of a whole: shares as whole numbers
STRIDES = (1, 8, 64)
"""Rows from one look at the clock to the next. Few: the number is part of the generated code."""
_LOOK_EVERY = 0.005  # seconds of work between two looks, if rows are that cheap


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch may take, as the plan in force has it."""

    budget: float | None = None
    """Seconds from when the batch is planned; None: as long as it takes."""
    grace: int = 0
    """Rows of each task that pass whatever the clock says; up to the next look at the clock."""
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

    def __init__(self, spark: SparkSession, *, absolute: bool = False) -> None:
        """`absolute`: budget and expiry are moments, seconds since the epoch: several plans have one deadline."""
        self._absolute = absolute
        self._spark = spark
        self._text = ""
        self.limits = NO_LIMITS
        """What was set last."""
        self.has_expired = False
        """Whether rows could be too old at any time since this clock was made."""
        self._cells = TaskCells(spark, 2)
        self._rows = TaskCounter(spark)
        self._line = Line(spark)
        self._numbers = F.split(self._line.column, " ")
        self.set(NO_LIMITS, until=0.0)

    def set(self, limits: BatchLimits, until: float, stride: int = 1) -> None:
        """What holds for batches that are planned from now on until `until`."""
        self.limits = limits
        self.has_expired |= limits.expiry is not None
        budget = -1 if limits.budget is None else round(limits.budget * 1000)
        expiry = -1 if limits.expiry is None else round(limits.expiry * 1000)
        grace, floor = min(limits.grace, _FAR), round(limits.floor * _PARTS)
        text = f"{int(until * 1000)} {budget} {grace} {floor} {stride} {expiry}"
        if text != self._text:
            self._text = text
            self._line.set(text)

    @property
    def limited(self) -> Column:
        """Whether there is a budget. The optimizer knows, and leaves out what asks the clock if there is none."""
        return self._number(_BUDGET) >= whole(0)

    @property
    def expires(self) -> Column:
        """Whether rows can be too old; as `limited`."""
        return self._number(_EXPIRY) >= whole(0)

    def in_time(self) -> Column:
        """Whether a row comes before its batch's time is used up. Asked once for a row, since it counts."""
        cells = self._cells
        number, so_far = self._rows.next(), self._rows.read()
        mask = self._number(_STRIDE) - whole(1)
        deadline, grace, floor = self._deadline(), _as_data(self._number(_GRACE)), _as_data(self._number(_FLOOR))
        late = (clock(self._spark, folded=False) >= deadline) & (so_far > grace)
        # 0 as long as there is time, and then the floor and 1.
        remembered = cells.swap(0, F.when(late, floor + whole(1)).otherwise(whole(0))) >= whole(0)  # always
        verdict = cells.read(0)
        spared = (so_far * (verdict - whole(1))) % whole(_PARTS) < verdict - whole(1)
        passes = (verdict == whole(0)) | spared
        return F.when((number.bitwiseAND(mask) != whole(0)) | remembered, passes).otherwise(F.lit(False))

    def is_fresh(self, arrival: Column) -> Column:
        """Whether a row was young enough when its batch began. A row without an arrival time is."""
        if self._absolute:
            oldest = _as_data(F.when(self._holds(), self._number(_EXPIRY)).otherwise(whole(-_NEVER)))
            return F.coalesce(F.unix_millis(arrival.cast("timestamp")) >= oldest, F.lit(True))
        age = F.when(self._holds(), self._number(_EXPIRY)).otherwise(whole(_FAR) * whole(_FAR // 2))
        known = self._cells.read(1)
        remembered = (known != whole(0)) | (self._cells.swap(1, batch_time() - age) == whole(0))  # always
        young = F.unix_millis(arrival.cast("timestamp")) >= known
        return F.coalesce(F.when(remembered, young), F.lit(True))

    def _holds(self) -> Column:
        """Whether somebody has renewed the line lately."""
        return clock(self._spark, folded=True) < self._number(_UNTIL)

    def _deadline(self) -> Column:
        moment = self._number(_BUDGET)
        if not self._absolute:
            moment = clock(self._spark, folded=True) + moment
        return _as_data(F.when(self._holds(), moment).otherwise(whole(_NEVER)))

    def _number(self, place: int) -> Column:
        return F.get(self._numbers, F.lit(place)).cast("bigint")


def _as_data(number: Column) -> Column:
    """A number that the optimizer knows, out of the generated code: that the index is 0, it does not know."""
    return F.get(F.array(number), F.shiftright(F.spark_partition_id(), 31))
