"""Real-time mode on separate executors, for test_real_time_executors."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

import streamshed as ss
from tests.spark.executors import executor_count


def main(spark: SparkSession, folder: Path, address: str, into: str, out: str) -> dict[str, int]:
    """Goes on until there is a file `end`. A file `tighten` makes the bound short; `tightened` says so."""
    source = {"kafka.bootstrap.servers": address, "subscribe": into, "startingOffsets": "earliest"}
    events = spark.readStream.format("kafka").options(**source).load()
    kept = ss.shed(events, "1 hour", trigger="real-time", floor=0.0, name="tightened")
    handle = ss.handle(kept)
    writer = kept.select("value").writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", address).option("topic", out)
    query = writer.option("checkpointLocation", str(folder / "state")).trigger(realTime="10 minutes").start()
    (folder / "started").touch()
    while not (folder / "end").exists():
        if not query.isActive:
            raise AssertionError(query.exception())
        if (folder / "tighten").exists() and handle.latency > 1.0:
            handle.latency = "50 ms"
            (folder / "tightened").touch()
        time.sleep(0.05)
    query.stop()
    return {"executors": executor_count(spark)}
