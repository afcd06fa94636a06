"""Spark's own books of stages: which of them read the source, and when the last of these had ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streamshed.spark.watch.stage_times import StageBooks, StageTimes, stages_of, times_of
from tests.spark.helpers import wait_for


def job(group: str | None, second: int, *stages: int) -> dict[str, Any]:
    begun = f"1970-01-01T00:00:{second:02d}.000GMT"
    return {"info": {"jobGroup": group, "submissionTime": begun, "stageIds": list(stages)}}


def test_the_jobs_of_a_batch_are_those_of_its_run_and_its_time() -> None:
    newest_first = [
        job("mine", 30, 9),
        job("other", 21, 8),
        job("mine", 20, 6, 7),
        job(None, 15, 5),
        job("mine", 9, 4),
    ]
    assert stages_of(newest_first, "mine", 10.0, 25.0) == [6, 7]
    assert stages_of(newest_first, "nobody's", 10.0, 25.0) == []


def test_only_stages_that_read_and_have_ended_count() -> None:
    reads = {"completionTime": "1970-01-01T00:00:02.500GMT", "inputRecords": 10, "numTasks": 3}
    behind_a_shuffle = {"completionTime": "1970-01-01T00:00:09.000GMT", "inputRecords": 0, "numTasks": 2}
    runs = {"completionTime": None, "inputRecords": 10, "numTasks": 2}
    assert times_of([reads, behind_a_shuffle, runs]) == StageTimes(2.5, 3)
    assert times_of([behind_a_shuffle]) is None


def test_spark_tells_when_a_job_had_read(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0, 1000, 1, 2).write.parquet(str(tmp_path / "rows"))
    context = spark.sparkContext
    started = time.time()
    context.setJobGroup("stage-times", "a job of this test")
    try:
        assert spark.read.parquet(str(tmp_path / "rows")).groupBy("id").count().count() == 1000
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    ended = time.time()
    books = StageBooks(spark)
    # Spark writes its books from a thread of its own.
    wait_for(lambda: books.times("stage-times", started, ended) is not None)
    times = books.times("stage-times", started, ended)
    assert times is not None
    assert started - 0.001 <= times.ended <= ended
    assert times.tasks == 2
    assert books.times("stage-times", ended + 1.0, ended + 2.0) is None
