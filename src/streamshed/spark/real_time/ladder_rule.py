"""The ladder inside a plan: one call for each row, of a rule that every executor compiles (`LadderRule.java`).
Where costs are learned (`learned_costs`), there is a second one, by which the rule is told the row's cost key.

A row goes if all of this holds:

- it is not protected, its age is known, and its age is at or above its rung's limit (`age_ladder`);
- rows have been older than the lowest rung for an interval, without a break (a break is also that none came), and
  do not get younger fast enough for that to be over soon (`age_ladder`);
- it is not one of those that are guaranteed to pass, by their hash;
- the task does not waste itself on dropping. Code that is cold is slow: every row is too old then, and dropping
  all of them would leave it cold. So while a task is new (20 s, and 10,000 rows let through) and no row has been
  young enough for a second, at most a quarter of its time goes into dropping; and if all rows stay too old
  whatever is dropped (clocks that disagree, a day's backlog), at most half of it.

Time is that of the executor's clock, looked at for every row.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.quality.latency_histogram import LEAST, RATIO
from streamshed.records import Mode
from streamshed.spark.native import Native
from streamshed.spark.real_time.age_ladder import RUNGS
from streamshed.spark.real_time.executor_control import ExecutorControl
from streamshed.spark.real_time.ladder_books import BINS, LadderBooks
from streamshed.spark.real_time.learned_costs import cost_hashes, costed, packed_hashes

VERDICT = "_streamshed_verdict"
KEPT, WOULD_FALL, FALLS = 0, 1, 2
"""Verdicts."""
HASH_BITS = 53
MOST_CLASSES = 16
_RUNG_BITS = RUNGS.bit_length() - 1
_MODES = {Mode.OFF: 0, Mode.DRY_RUN: 1, Mode.ENFORCE: 2}
_UNKNOWN = -(1 << 63)
_RULE = "java.util.function.LongBinaryOperator"
_SOURCES = files("streamshed.spark.real_time")
_PARTS = ("LadderRule.java", "LearnedCosts.java")


class Ladder(Protocol):
    """Age limits for one bound: `AgeLadder`, or that of a road map."""

    @property
    def bound(self) -> float: ...
    @property
    def floor(self) -> float: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def lowest(self) -> float: ...
    @property
    def interval(self) -> float: ...
    def limits(self) -> list[float]: ...
    def share(self, number: int) -> float: ...
    def changed(self, bound: float, floor: float) -> Ladder: ...


def table_of(ladder: Ladder, mode: Mode) -> list[int]:
    """What is in force, as numbers: times in milliseconds, shares as the least hash that is guaranteed to pass."""
    shares = [round((1.0 - ladder.share(number)) * (1 << HASH_BITS)) for number in range(len(ladder.classes))]
    times = [ladder.lowest, ladder.interval, ladder.bound]
    return [_MODES[mode], *map(_millis, times), *shares, *map(_millis, ladder.limits())]


def _millis(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def judged(
    events: DataFrame,
    rule: Column,
    arrival: Column,
    row_hash: Column,
    number: Column,
    worth: Column | None,
    protected: Column | None,
    cost: Column | None = None,
    digest: Column | None = None,
) -> DataFrame:
    """The stream with a verdict on every row.

    `number` of its class; `worth` is between 0 and 1, and chance decides where there is none; `cost`: how many
    times as dear it is as a usual row; `digest`: of its cost key, for a rule that learns costs.
    """
    native = Native(events.sparkSession)
    height = (row_hash / F.lit(float(1 << HASH_BITS))) if worth is None else _height(worth)
    rung = F.shiftright(row_hash, HASH_BITS - _RUNG_BITS)
    if digest is not None:
        rung = F.lit(0)  # which one it is within its class, the rule finds by what it has learned
        rule = native.invoke(rule, "apply", _RULE, costed(digest, height))
    elif worth is not None or cost is not None:
        if cost is not None:
            height = F.pow(height, _usual(cost))
        rung = F.least(F.floor(height * F.lit(float(RUNGS))), F.lit(RUNGS - 1)).cast("bigint")
    place = (number * F.lit(RUNGS)).cast("bigint") + rung
    row = F.shiftleft(place, HASH_BITS).bitwiseOR(row_hash)
    if protected is not None:
        row = row + F.when(protected, F.lit(1 << 62)).otherwise(F.lit(0)).cast("bigint")
    return events.select("*", native.invoke(rule, "applyAsLong", "bigint", _arrived(arrival), row).alias(VERDICT))


def rule_of(
    spark: SparkSession,
    control: ExecutorControl,
    books: LadderBooks,
    clock: Any = None,
    *,
    walks: bool = False,
    learns: bool = False,
) -> Column:
    """The rule, an object that each task makes for itself.

    `clock`: an AtomicLongArray to be read instead. `walks`: rungs are rows of a road map (`cursors`). `learns`:
    what rows cost, by a key; the rule is then told each row's digest before it is asked (`judged`).
    """
    source = "".join(_SOURCES.joinpath(name).read_text(encoding="utf-8") for name in _PARTS)
    references = [control.stream, control.holder, books.classes, books.rungs, BINS, LEAST, RATIO]
    references += [books.accumulator, clock, walks, packed_hashes(cost_hashes()) if learns else None]
    return Native(spark).compiled(source, references, "java.util.function.LongFunction" if learns else _RULE)


def cursor_of(spark: SparkSession, rule: Column, arrival: Column, row_hash: Column) -> Column:
    """The number of the row of the road map that is in force for a row; 0: none."""
    return Native(spark).invoke(rule, "applyAsLong", "bigint", _arrived(arrival), row_hash)


def _height(worth: Column) -> Column:
    """What a row is worth, between 0 and 1. One of which nobody knows it stands highest."""
    # Spark's `greatest` leaves nulls out: first they have to be gone.
    known = F.coalesce(F.nanvl(worth.cast("double"), F.lit(1.0)), F.lit(1.0))
    return F.least(F.greatest(known, F.lit(0.0)), F.lit(1.0))


def _usual(cost: Column) -> Column:
    """A cost as a power; what is not known costs as much as a usual row, and nothing costs less than nothing."""
    known = F.coalesce(F.nanvl(cost.cast("double"), F.lit(1.0)), F.lit(1.0))
    return F.greatest(known, F.lit(0.0))


def _arrived(arrival: Column) -> Column:
    return F.coalesce(F.unix_millis(arrival.cast("timestamp")), F.lit(_UNKNOWN).cast("bigint"))
