"""Costs that the ladder's rule learns, as Spark's own code runs it, against the same in plain Python."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from streamshed.records import Mode
from streamshed.sketch.hashing import PRIME, digest
from streamshed.spark.native import Native
from streamshed.spark.real_time.age_ladder import RUNGS, AgeLadder
from streamshed.spark.real_time.executor_control import ExecutorControl
from streamshed.spark.real_time.ladder_books import LadderBooks
from streamshed.spark.real_time.ladder_rule import FALLS, HASH_BITS, VERDICT, judged, rule_of, table_of
from streamshed.spark.real_time.learned_costs import HEIGHT_BITS, cost_digest
from tests.oracles.age_ladder import LadderOracle
from tests.oracles.learned_costs import FIRST, CostsOracle

pytestmark = pytest.mark.spark
TASKS, ROWS = 8, 1000  # PySpark deals rows out in batches of 1,024 at most: a task would get those of another
LADDER = AgeLadder(0.2, ("gold", "others"), floor=0.02)
SCHEMA = (
    "task int, place int, clock long, nanos long, arrived long, class int, hash long, key string, worth double"
)


def task(number: int) -> list[dict[str, Any]]:
    """Rows of one task: ages that wander, pauses, keys that differ in cost and change it, rows without a key."""
    chance = random.Random(number)
    nanos, age, rows, work = 1_700_000_000_000_000_000, 80.0, [], 0.0
    for place in range(ROWS):
        nanos += int(work * chance.uniform(0.5, 1.5) * 1e6)
        if chance.random() < 0.004:
            nanos += chance.choice([90, 300, 2500]) * 1_000_000
        clock = nanos // 1_000_000
        age = min(220.0, max(20.0, age + chance.gauss(0.0, 6.0)))
        key = chance.choice(["a", "b", "c", "d", None])
        dear = "a" if place < ROWS // 2 else "b"
        work = 5.0 if key == dear else 0.5
        rows.append(
            {
                "task": number, "place": place, "clock": clock, "nanos": nanos,
                "arrived": clock - round(age) if chance.random() < 0.97 else None,
                "class": chance.randrange(2), "hash": chance.getrandbits(HASH_BITS), "key": key,
                "worth": chance.random() if chance.random() < 0.9 else chance.choice([None, -1.0, 2.0, math.nan]),
            }
        )  # fmt: skip
    return rows


def expected(rows: list[dict[str, Any]], by_value: bool, learns: bool = True) -> list[bool]:
    table = table_of(LADDER, Mode.ENFORCE)
    ladder, costs = LadderOracle(*table[1:4], table[6:], table[4:6]), CostsOracle(table[1])
    falls = []
    for row in rows:
        key = PRIME if row["key"] is None else digest(row["key"])
        cost = costs.cost(row["nanos"], row["arrived"], key)
        height = row["hash"] >> (HASH_BITS - HEIGHT_BITS)
        if by_value:
            known = row["worth"] is not None and not math.isnan(row["worth"])
            worth = min(1.0, max(0.0, row["worth"])) if known else 1.0
            height = min((1 << HEIGHT_BITS) - 1, int(worth * (1 << HEIGHT_BITS)))
        step = (height / (1 << HEIGHT_BITS)) ** (cost if learns else 1.0)
        rung = row["class"] * RUNGS + min(RUNGS - 1, int(step * RUNGS))
        age = None if row["arrived"] is None else row["clock"] - row["arrived"]
        falls.append(ladder.falls(row["clock"], age, row["class"], rung, row["hash"], False))
        costs.judged(row["clock"], row["nanos"], key, not falls[-1])
    assert costs.samples > 2 * FIRST  # there is something to see
    return falls


@pytest.mark.parametrize("by_value", [False, True])
def test_the_generated_code_learns_what_the_rule_says(spark: SparkSession, by_value: bool) -> None:
    tasks = [task(number) for number in range(TASKS)]
    wanted = [expected(rows, by_value) for rows in tasks]
    blind = [expected(rows, by_value, learns=False) for rows in tasks]
    pairs = [pair for one, other in zip(wanted, blind, strict=True) for pair in zip(one, other, strict=True)]
    assert sum(learned != before for learned, before in pairs) > 100
    native = Native(spark)
    clock = native.jvm.java.util.concurrent.atomic.AtomicLongArray(2)
    hand = native.literal(clock, "java.util.concurrent.atomic.AtomicLongArray")
    books = LadderBooks(spark, len(LADDER.classes))
    rule = rule_of(spark, ExecutorControl(spark, table_of(LADDER, Mode.ENFORCE)), books, clock, learns=True)
    parts = spark.sparkContext.parallelize([Row(**row) for rows in tasks for row in rows], TASKS)
    frame = spark.createDataFrame(parts, SCHEMA)
    # The rule's clock is set for every row before it is asked.
    for place, column in enumerate(("clock", "nanos")):
        frame = frame.where(native.invoke(hand, "getAndSet", "bigint", F.lit(place), F.col(column)) >= 0)
    verdicts = judged(
        frame, rule, F.timestamp_millis("arrived"), F.col("hash"), F.col("class"),
        F.col("worth") if by_value else None, None, digest=cost_digest([F.col("key")]),
    )  # fmt: skip
    found = verdicts.select("task", "place", VERDICT).collect()
    for number in range(TASKS):
        ordered = sorted((row for row in found if row.task == number), key=lambda row: row.place)
        assert [row[VERDICT] == FALLS for row in ordered] == wanted[number], f"task {number}"
    counts = books.take()
    assert counts.shed == sum(map(sum, wanted)) == sum(sum(rungs.shed) for rungs in counts.by_class)
