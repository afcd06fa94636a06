"""A gate between two marks: what does not pass it is counted, and while it asks nothing it is not in the plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.spark.orders.batch_clock import BatchClock
from streamshed.spark.watch.plan_counts import ARRIVED, mark, marks_of


@dataclass(frozen=True)
class CountedGate:
    """The gate at one place of a network's query."""

    tells: ClassVar[int]
    """What the mark behind it tells of."""

    clock: BatchClock
    serial: int
    """Of its marks."""
    protect: str | None
    """SQL that is true for rows which always pass."""

    @property
    def asks(self) -> Column:
        """Whether there is anything to ask. The optimizer knows."""
        raise NotImplementedError

    def lets_pass(self) -> Column:
        """Whether a row may pass that is not protected."""
        raise NotImplementedError

    @property
    def marks(self) -> set[int]:
        return {self.came, self.passed}

    @property
    def came(self) -> int:
        return marks_of(self.serial)[ARRIVED]

    @property
    def passed(self) -> int:
        return marks_of(self.serial)[self.tells]

    @cached_property
    def _comes(self) -> Column:
        return ~self.asks | mark(self.serial, ARRIVED)

    @cached_property
    def _passes(self) -> Column:
        passes = self.lets_pass()
        if self.protect is not None:
            passes = passes | F.coalesce(F.expr(self.protect), F.lit(False))
        return ~self.asks | (passes & mark(self.serial, self.tells))

    def before(self, rows: DataFrame) -> DataFrame:
        """Rows behind the gate."""
        return rows.where(self._comes).where(self._passes)
