"""What a running batch was given, by what its source says: before it is over, and before anything was counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamshed as ss
from tests.spark.helpers import put_rows, stream, wait_for

pytestmark = pytest.mark.spark


@pytest.mark.complains
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_look_at_a_running_batch_knows_the_rows_of_its_files(
    spark: SparkSession, source: Path, tmp_path: Path, adaptive: str
) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    # Rows sleep, so that the large batch is looked at on any machine; nothing is to be dropped.
    kept = ss.shed(stream(spark, source), "8 seconds", budget=False, mode="dry-run", name=f"given-{adaptive}")
    asleep = kept.where("reflect('java.lang.Thread', 'sleep', 10L) IS NULL")
    with ss.shedder(kept) as handle:
        writer = asleep.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "s"))
        query = writer.start()
        try:
            for number in range(3):
                put_rows(source, 10_000 + 20 * number, 20)
                wait_for(lambda n=number: handle.report().arrived == 20 * (n + 1))  # type: ignore[misc]
            put_rows(source, 20_000, 400)
            wait_for(lambda: any(not sample.finished and sample.arrived for sample in handle.samples))
            wait_for(lambda: handle.report().arrived == 460)
        finally:
            query.stop()
            spark.conf.set("spark.sql.adaptive.enabled", before or "true")
        looks = {sample.arrived for sample in handle.samples if not sample.finished and sample.arrived}
        assert all(rows == pytest.approx(400, rel=0.05) for rows in looks), looks


def test_that_nothing_waits_behind_the_first_batch_is_told(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", name="idle")
    with ss.shedder(kept) as handle:
        query = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "s")).start()
        try:
            put_rows(source, 0, 20)
            wait_for(lambda: any(not each.finished and not each.next_started for each in handle.samples))
        finally:
            query.stop()
        first, idle = list(handle.samples)[:2]
        assert first.finished
        assert (idle.finished, idle.batch, idle.arrived) == (False, first.batch, 0)
        assert idle.at > first.at
