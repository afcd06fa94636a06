"""`bench las-spark`: the load-aware operator against the same function in a plain `mapInArrow`.

Three questions, with real work on the stream of mentions (`experiments/las_spark_mentions.py`):

- what it costs when there is nothing to shed: the same backlog through both, in turn, and for each pair the ratio
  of their median batches;
- 1.3 times what the plain job can process: mean queuing latency against the target, and the plain job's;
- every cost doubles while it runs: how many batches until it is back at the target.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamshed.lab.bench.play import Say
from streamshed.lab.experiments import las_spark
from streamshed.lab.experiments.las_spark import Busy, LivePoint, Plain, Recording
from streamshed.lab.experiments.las_spark_mentions import MEAN_MS, recording

LOAD = 1.3
TARGET = 2.0
LATENCY = f"avg {TARGET:g} seconds over 1000 rows"
BATCH_SECONDS = 2.0  # what batches come to under this target
BATCHES = 7
SET_UP = 5  # the first batches of a query compile, and start workers that load what they need
WARM_UP, CALM, AFTER = 15.0, 35.0, 30.0
SETTLED = 10.0
"""Seconds after a change of load from which latencies count."""


def run(say: Say, pairs: int = 5) -> dict[str, Any]:
    spark = las_spark.session("bench las-spark")
    say("calibrating")
    busy = las_spark.calibrated(spark)
    able = las_spark.capacity(spark, busy, recording(1000.0, 3.3, seed=7), BATCH_SECONDS)
    ratios = overhead(spark, busy, able, pairs, say)
    steady = recording(0.6 * able, WARM_UP, seed=1).then(recording(LOAD * able, CALM, seed=2))
    stream = steady.then(recording(LOAD * able, AFTER, seed=3, factor=2.0))

    def one(algorithm: str, stream: Recording) -> list[LivePoint]:
        return las_spark.play(
            spark,
            stream,
            busy,
            algorithm,
            LATENCY,
            MEAN_MS,
            lambda second: say(f"{algorithm}: second {second:.0f} of {stream.seconds:.0f}"),
        )

    las, plain = one("las", stream), one("plain", steady)
    return {"bench": "las-spark", "capacity_per_s": round(able), "target_s": TARGET, **judge(las, plain)} | {
        "overhead_ratio": round(statistics.median(ratios), 4),
        "overhead_low": round(sorted(ratios)[len(ratios) // 4], 4),
        "overhead_high": round(sorted(ratios)[-1 - len(ratios) // 4], 4),
        "pairs": pairs,
    }


def overhead(spark: SparkSession, busy: Busy, able: float, pairs: int, say: Say) -> list[float]:
    """Time with the operator over time without it, pair by pair; nothing is shed."""
    per_batch = int(able * BATCH_SECONDS)
    path = recording(1000.0, per_batch * (SET_UP + BATCHES) / 1000.0 + 0.01, seed=5).save()

    def with_operator(events: DataFrame) -> DataFrame:
        return las_spark.operator(events, busy, "las", "avg 10 hours", MEAN_MS)

    def without(events: DataFrame) -> DataFrame:
        return events.mapInArrow(Plain(busy), las_spark.RESULT)

    ratios = []
    try:
        for pair in range(-1, pairs):  # the first pair warms up
            took = {}
            for make in (without, with_operator) if pair % 2 else (with_operator, without):
                batches = las_spark.drain(spark, path, per_batch, make)[SET_UP : SET_UP + BATCHES]
                # The median: one batch that something else held up says nothing of either.
                took[make] = statistics.median(batches)
            if pair >= 0:
                ratios.append(took[with_operator] / took[without])
                say(f"pair {pair + 1} of {pairs}: {ratios[-1]:.3f}")
    finally:
        Path(path).unlink()
    return ratios


def judge(las: list[LivePoint], plain: list[LivePoint]) -> dict[str, Any]:
    """The numbers that count, from the points of both jobs."""
    changed = WARM_UP + CALM
    steady = [p for p in las if WARM_UP + SETTLED <= p.at < changed]
    doubled = [p for p in las if p.at >= changed]
    return {
        "queue_mean_s": round(mean_wait(steady), 3),
        "off_target": round(mean_wait(steady) / TARGET - 1.0, 4),
        "kept_share": round(sum(p.kept for p in steady) / sum(p.arrived for p in steady), 4),
        "plain_queue_mean_s": round(mean_wait([p for p in plain if WARM_UP + SETTLED <= p.at < changed]), 3),
        "plain_queue_last_s": round(plain[-1].wait, 3),
        "doubled_batches_to_target": batches_to_target(doubled),
        "doubled_worst_s": round(max((p.wait for p in doubled), default=0.0), 3),
        "doubled_queue_mean_s": round(mean_wait([p for p in doubled if p.at >= changed + SETTLED]), 3),
    }


def mean_wait(points: list[LivePoint]) -> float:
    """Mean queuing latency of the rows that ran."""
    kept = sum(point.kept for point in points)
    return sum(point.wait * point.kept for point in points) / kept if kept else 0.0


def batches_to_target(points: list[LivePoint], within: float = 0.15) -> int | None:
    """Batches from the first that has new costs to the first of three whose mean wait is at the target again.

    >>> waits = [2.0, 4.0, 3.0, 2.1, 1.9, 2.2, 2.0]
    >>> batches_to_target([LivePoint(float(i), 2.0, 100, 80, wait, True, 0.01) for i, wait in enumerate(waits)])
    3
    """
    late = [i for i, point in enumerate(points) if point.wait > TARGET * (1 + within)]
    if not late:
        return 0
    for i in range(late[0], len(points) - 2):
        if abs(mean_wait(points[i : i + 3]) / TARGET - 1.0) <= within:
            return i
    return None
