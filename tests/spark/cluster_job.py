"""A stateful job on separate executors, for test_cluster."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from tests.spark.executors import executor_count
from tests.spark.helpers import expected_ids, run_all, stream


def main(spark: SparkSession, folder: Path) -> dict[str, int]:
    rows = stream(spark, folder / "in", files=2)
    kept = ss.shed(rows, "1 hour", arrived="at", key="id", name="counted", salt="test")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    counts = kept.withWatermark("at", "1 hour").groupBy(F.window("at", "10 minutes")).agg(F.count("*").alias("n"))
    windows = run_all(counts, folder / "state", "counted", mode="complete")
    return {
        "executors": executor_count(spark),
        "counted": sum(row["n"] for row in windows),  # type: ignore[misc]
        "expected": len(expected_ids(spark, folder / "in", 0.5, "id")),
        "arrived": handle.report().arrived,
        "kept": handle.report().kept,
    }
