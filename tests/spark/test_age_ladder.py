"""The ladder's rule as Spark's own code runs it, against the same rule in plain Python; the clock is a column."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F

from streamshed.records import Mode
from streamshed.spark.native import Native
from streamshed.spark.real_time.age_ladder import RUNGS, AgeLadder
from streamshed.spark.real_time.executor_control import ExecutorControl
from streamshed.spark.real_time.ladder_books import LadderBooks, LadderCounts
from streamshed.spark.real_time.ladder_rule import FALLS, HASH_BITS, VERDICT, WOULD_FALL, rule_of, table_of
from streamshed.spark.real_time.ladder_rule import judged as judged_by
from tests.oracles.age_ladder import LadderOracle

pytestmark = pytest.mark.spark
TASKS, ROWS = 12, 400
LADDER = AgeLadder(0.2, ("gold", "silver", "others"), {"silver": 0.2}, floor=0.02)


def task(number: int) -> list[dict[str, Any]]:
    """Rows of one task: ages that wander, stalls, quiet times, rows without an age, rows from the future."""
    chance = random.Random(number)
    clock, age, rows = 1_700_000_000_000 + number, 0.0, []
    drift = chance.choice([0.5, 2.0, 5.0, 20.0])
    for place in range(ROWS):
        clock += chance.choice([0, 0, 1, 2, 5]) if chance.random() < 0.98 else chance.choice([90, 600, 2500])
        age = max(-50.0, age + chance.gauss(0.3 * drift if place < ROWS * 0.7 else -2 * drift, drift))
        arrived = clock - round(age) if chance.random() < 0.97 else None
        number_of_class = chance.randrange(3)
        row_hash = chance.getrandbits(HASH_BITS)
        rows.append(
            {
                "task": number, "place": place, "clock": clock, "arrived": arrived, "class": number_of_class,
                "hash": row_hash, "gold": chance.random() < 0.05,
            }
        )  # fmt: skip
    return rows


def judged(
    spark: SparkSession, mode: Mode, rows: list[list[dict[str, Any]]]
) -> tuple[list[list[Row]], LadderCounts]:
    """The verdicts of the plan, by task and in order, and what was counted."""
    schema = "task int, place int, clock long, arrived long, class int, hash long, gold boolean"
    flat = [Row(**row) for each in rows for row in each]
    parts = spark.sparkContext.parallelize(flat, len(rows))
    control = ExecutorControl(spark, table_of(LADDER, mode))
    books = LadderBooks(spark, len(LADDER.classes))
    native = Native(spark)
    clock = native.jvm.java.util.concurrent.atomic.AtomicLongArray(1)
    hand = native.literal(clock, "java.util.concurrent.atomic.AtomicLongArray")
    rule = rule_of(spark, control, books, clock)
    # The rule's clock is set for every row before it is asked.
    frame = spark.createDataFrame(parts, schema).where(
        native.invoke(hand, "getAndSet", "bigint", F.lit(0), F.col("clock")) >= 0
    )
    arrival = F.timestamp_millis("arrived")
    verdicts = judged_by(frame, rule, arrival, F.col("hash"), F.col("class"), None, F.col("gold"))
    found = verdicts.select("task", "place", VERDICT).collect()
    ordered = [sorted((r for r in found if r.task == n), key=lambda r: r.place) for n in range(len(rows))]
    return ordered, books.take()


def expected(rows: list[dict[str, Any]]) -> list[bool]:
    table = table_of(LADDER, Mode.ENFORCE)
    classes = len(LADDER.classes)
    oracle = LadderOracle(*table[1:4], table[4 + classes :], table[4 : 4 + classes])
    falls = []
    for row in rows:
        age = None if row["arrived"] is None else row["clock"] - row["arrived"]
        rung = row["class"] * RUNGS + (row["hash"] >> (HASH_BITS - 5))
        falls.append(oracle.falls(row["clock"], age, row["class"], rung, row["hash"], row["gold"]))
    return falls


def test_the_generated_code_judges_every_row_as_the_rule_says(spark: SparkSession) -> None:
    tasks = [task(number) for number in range(TASKS)]
    wanted = [expected(rows) for rows in tasks]
    found, counts = judged(spark, Mode.ENFORCE, tasks)
    assert sum(map(sum, wanted)) > 100  # there is something to see
    for number in range(TASKS):
        assert [row[VERDICT] == FALLS for row in found[number]] == wanted[number], f"task {number}"
    check_books(counts, tasks, wanted)


def check_books(counts: LadderCounts, tasks: list[list[dict[str, Any]]], fell: list[list[bool]]) -> None:
    rows = [
        (row, falls)
        for task, verdicts in zip(tasks, fell, strict=True)
        for row, falls in zip(task, verdicts, strict=True)
    ]
    kept = [row for row, falls in rows if not falls]
    ages = [max(0, row["clock"] - row["arrived"]) for row in kept if row["arrived"] is not None]
    assert counts.arrived == len(rows)
    assert counts.kept == len(kept)
    assert counts.undated == sum(row["arrived"] is None for row in kept)
    assert counts.ages.rows == sum(counts.ages.bins.values()) == len(ages)
    assert counts.ages.worst == max(ages) / 1000
    assert counts.ages.total == sum(ages) / 1000
    assert counts.ages.percentile(50) == pytest.approx(np.percentile(ages, 50) / 1000, rel=0.05)
    shed = Counter(row["class"] * RUNGS + (row["hash"] >> (HASH_BITS - 5)) for row, falls in rows if falls)
    assert [n for rungs in counts.by_class for n in rungs.shed] == [shed[place] for place in range(3 * RUNGS)]
    assert [rungs.arrived for rungs in counts.by_class] == [
        sum(row["class"] == n for row, _ in rows) for n in range(3)
    ]


def test_off_keeps_all_and_dry_run_keeps_all_and_says_what_would_fall(spark: SparkSession) -> None:
    tasks = [task(number) for number in range(2)]
    off, counts = judged(spark, Mode.OFF, tasks)
    assert not any(row[VERDICT] for rows in off for row in rows)
    assert (counts.kept, counts.would_shed) == (2 * ROWS, 0)
    dry, counts = judged(spark, Mode.DRY_RUN, tasks)
    rehearsed = [row for rows in dry for row in rows]
    assert counts.would_shed == sum(row[VERDICT] == WOULD_FALL for row in rehearsed)
    assert any(row[VERDICT] == WOULD_FALL for row in rehearsed)


def test_dear_rows_stand_lower_and_rows_of_unknown_cost_where_chance_puts_them(spark: SparkSession) -> None:
    """Which rung a row stands on is read off the books: every row would go here."""
    rows = [
        (n * (1 << HASH_BITS) // 64, cost)
        for n in range(64)
        for cost in (0.25, 1.0, 4.0, None, float("nan"), -1.0)
    ]
    found: dict[str, list[int]] = {}
    for cost in (0.25, 1.0, 4.0, None, float("nan"), -1.0):
        mine = [Row(hash=h, cost=c) for h, c in rows if repr(c) == repr(cost)]
        clock = Native(spark).jvm.java.util.concurrent.atomic.AtomicLongArray(1)
        clock.set(0, 1_700_000_000_000)
        control = ExecutorControl(spark, table_of(AgeLadder(0.2), Mode.DRY_RUN))
        books = LadderBooks(spark, 1)
        rule = rule_of(spark, control, books, clock)
        # Old rows, each of them 10 ms after the one before.
        hand = Native(spark).literal(clock, "java.util.concurrent.atomic.AtomicLongArray")
        frame = spark.createDataFrame(spark.sparkContext.parallelize([*mine * 12], 1), "hash long, cost double")
        frame = frame.where(
            Native(spark).invoke(hand, "addAndGet", "bigint", F.lit(0), F.lit(10).cast("long")) >= 0
        )
        arrival = F.timestamp_millis(F.lit(1_600_000_000_000))
        judged_by(frame, rule, arrival, F.col("hash"), F.lit(0), None, None, F.col("cost")).collect()
        found[repr(cost)] = list(books.take().by_class[0].shed)
    heights = {cost: np.average(range(RUNGS), weights=shed) for cost, shed in found.items()}
    assert heights["4.0"] < 0.5 * heights["1.0"] < heights["1.0"] < heights["0.25"]
    assert found["1.0"] == found["None"] == found["nan"]
    assert found["-1.0"][:-1] == [0] * (RUNGS - 1)  # free of charge: the highest


def test_rows_stand_by_their_value_and_those_of_unknown_value_highest(spark: SparkSession) -> None:
    values = [0.0, 0.3, 0.99, 1.0, -2.0, 7.0, float("inf"), float("nan"), None]
    wanted = [0, int(0.3 * RUNGS), RUNGS - 1, RUNGS - 1, 0, RUNGS - 1, RUNGS - 1, RUNGS - 1, RUNGS - 1]
    for cost in (None, F.lit(1.0)):
        assert [rung_of(spark, value, cost) for value in values] == wanted


def rung_of(spark: SparkSession, worth: float | None, cost: Column | None) -> int:
    """On which rung a row of a value stands: old ones go there, each of them 10 ms after the one before."""
    native = Native(spark)
    clock = native.jvm.java.util.concurrent.atomic.AtomicLongArray(1)
    clock.set(0, 1_700_000_000_000)
    books = LadderBooks(spark, 1)
    rule = rule_of(spark, ExecutorControl(spark, table_of(AgeLadder(0.2), Mode.DRY_RUN)), books, clock)
    hand = native.literal(clock, "java.util.concurrent.atomic.AtomicLongArray")
    frame = spark.range(0, 40, 1, 1).where(
        native.invoke(hand, "addAndGet", "bigint", F.lit(0), F.lit(10).cast("long")) >= 0
    )
    arrival = F.timestamp_millis(F.lit(1_600_000_000_000))
    value = F.lit(worth).cast("double")
    judged_by(frame, rule, arrival, F.col("id"), F.lit(0), value, None, cost).collect()
    (rung,) = [rung for rung, shed in enumerate(books.take().by_class[0].shed) if shed]
    return rung
