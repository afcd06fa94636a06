"""What a ladder did to the rows of a batch, counted exactly and by rung, in numbers that each task adds to.

A task counts in an array of whole numbers (`task_arrays`): that costs some nanoseconds, and an observed metric of
the same content two microseconds, more than all else that is done to a row that is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from streamshed.quality.latency_histogram import LatencyHistogram, bin_of
from streamshed.spark.real_time.age_ladder import RUNGS
from streamshed.spark.real_time.task_arrays import TaskArrays

BINS = bin_of(600.0) + 1
"""Of ages; rows older than ten minutes stand in the last."""
# Where numbers stand in a task's array: see LadderRule.java.
_KEPT, _WOULD_SHED, _UNDATED, _MISDATED, _TOTAL, _WORST, _AHEAD = range(7)
_FIRST_BIN = 8
_FIRST_CLASS = _FIRST_BIN + BINS


@dataclass(frozen=True, slots=True)
class RungCounts:
    """Rows of one class: arrived, and shed by rung, from the lowest to the highest."""

    arrived: int = 0
    shed: tuple[int, ...] = (0,) * RUNGS
    """In dry-run: that would have been."""

    def plus(self, other: RungCounts) -> RungCounts:
        both = zip(self.shed, other.shed, strict=True)
        return RungCounts(self.arrived + other.arrived, tuple(one + another for one, another in both))


@dataclass(frozen=True, slots=True)
class LadderCounts:
    """What a ladder did in a batch."""

    by_class: tuple[RungCounts, ...] = ()
    kept: int = 0
    would_shed: int = 0
    undated: int = 0
    """Rows without an arrival time. They were kept."""
    misdated: int = 0
    """Rows from the future, by more than a second. They were kept."""
    ahead: float = 0.0
    """By how many seconds the worst of them."""
    ages: LatencyHistogram = field(default_factory=LatencyHistogram)
    """At the drop, of the rows that passed it."""

    @property
    def arrived(self) -> int:
        return sum(rungs.arrived for rungs in self.by_class)

    @property
    def shed(self) -> int:
        return self.arrived - self.kept

    def plus(self, other: LadderCounts) -> LadderCounts:
        return LadderCounts(
            tuple(one.plus(another) for one, another in zip(self.by_class, other.by_class, strict=True)),
            self.kept + other.kept,
            self.would_shed + other.would_shed,
            self.undated + other.undated,
            self.misdated + other.misdated,
            max(self.ahead, other.ahead),
            self.ages.plus(other.ages),
        )


class LadderBooks:
    """Counts the rows of one ladder, in its tasks and on the driver."""

    def __init__(self, spark: SparkSession, classes: int, rungs: int = RUNGS) -> None:
        """`rungs` of each class."""
        self.classes = classes
        self.rungs = rungs
        self._tasks = TaskArrays(spark)
        self.accumulator = self._tasks.accumulator
        """Of the arrays of tasks."""

    def take(self) -> LadderCounts:
        """What was counted by the tasks that have ended since this was asked last."""
        return self._read(self._tasks.take())

    def running(self) -> LadderCounts:
        """What the tasks that run have counted so far, if they are listened to."""
        return self._read(self._tasks.running())

    def listen(self) -> None:
        self._tasks.listen()

    def cease(self) -> None:
        self._tasks.cease()

    def _read(self, tasks: Sequence[Sequence[int]]) -> LadderCounts:
        if not tasks:
            return LadderCounts((RungCounts(0, (0,) * self.rungs),) * self.classes)
        sums = [sum(numbers) for numbers in zip(*tasks, strict=True)]
        worst, ahead = (max(task[place] for task in tasks) for place in (_WORST, _AHEAD))
        bins = {number: float(sums[_FIRST_BIN + number]) for number in range(BINS) if sums[_FIRST_BIN + number]}
        dated = float(sums[_KEPT] - sums[_UNDATED])
        first = _FIRST_CLASS + self.classes
        return LadderCounts(
            tuple(
                RungCounts(
                    sums[_FIRST_CLASS + number],
                    tuple(sums[first + number * self.rungs : first + (number + 1) * self.rungs]),
                )
                for number in range(self.classes)
            ),
            sums[_KEPT],
            sums[_WOULD_SHED],
            sums[_UNDATED],
            sums[_MISDATED],
            ahead / 1000.0,
            LatencyHistogram(dated, sums[_TOTAL] / 1000.0, worst / 1000.0, bins),
        )
