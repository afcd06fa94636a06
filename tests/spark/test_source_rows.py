"""What a running batch was given, by what its source says: before it is over, and before anything was counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.network import Builder
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


@pytest.mark.complains
def test_a_look_at_a_running_batch_of_a_network_knows_them_too(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    network = (
        Builder("given").source("s", "id LONG", rate=1).filter("all", "s", "id >= 0").output("out", "all").build()
    )

    def given() -> int:
        return max((sample.arrived for sample in list(running.samples) if not sample.finished), default=0)

    def sink(rows: DataFrame, batch: int) -> None:
        if rows.count() > 200:
            wait_for(lambda: given() > 200)  # and so the batch runs until it was looked at

    rows = stream(spark, source).select("id")
    state = str(tmp_path / "s")
    with ss.run(
        spark, network, sources={"s": rows}, sinks={"out": sink}, latency=2.0, mode="dry-run", state=state
    ) as running:
        arrived = 0
        # The first batch reads its rows once more, to see how values are spread; the next three are rehearsals.
        for count in (20, 100, 20, 20, 400):
            put_rows(source, 20_000 + arrived, count)
            arrived += count
            wait_for(lambda all_of_them=arrived: running.report().arrived == all_of_them)  # type: ignore[misc]
        assert given() == pytest.approx(400, rel=0.05)


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
