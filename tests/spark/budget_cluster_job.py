"""A job with a time budget on separate executors, one of which is lost inside a batch; for test_budget_cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.spark.watch.clock_skew import ClockSkew
from tests.spark.helpers import put_rows, stream, wait_for


def executors(application: str) -> list[int]:
    """Processes of an application's executors, oldest first."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if any("CoarseGrainedExecutorBackend" in part for part in command) and application in command:
                found.append(int(folder.name))
    return sorted(found)


def main(spark: SparkSession, folder: Path) -> dict[str, Any]:
    kept = ss.shed(stream(spark, folder / "in", files=100), "1 hour", name="budgeted", floor=0.0)
    handle = ss.shedder(kept)
    ClockSkew.of(spark).wait(60)
    slow = kept.where("reflect('java.lang.Thread', 'sleep', 4L) = 'null'")

    def deliver(rows: DataFrame, number: int) -> None:
        rows.select("id").write.mode("overwrite").parquet(str(folder / "out" / str(number)))

    handle.pin(1.0)
    query = slow.writeStream.foreachBatch(deliver).option("checkpointLocation", str(folder / "state")).start()
    put_rows(folder / "in", 0, 50)  # has the code compiled
    query.processAllAvailable()
    handle.pin(1.0, budget="4 seconds")
    application = spark.sparkContext.applicationId

    def lose() -> None:
        time.sleep(2.0)
        os.kill(executors(application)[0], signal.SIGKILL)

    for i in range(8):
        put_rows(folder / "in", 1000 + 400 * i, 400)
    loser = threading.Thread(target=lose)
    loser.start()
    query.processAllAvailable()
    loser.join()
    wait_for(lambda: handle.report().arrived >= 3250)
    query.stop()
    report = handle.report()
    delivered = spark.read.parquet(str(folder / "out" / "*")).agg(F.count("*"), F.countDistinct("id")).collect()[0]
    return {
        "skew": ClockSkew.of(spark).seconds,
        "arrived": report.arrived,
        "kept": report.kept,
        "cut": report.cut,
        "samples": [[e.sample.arrived, e.sample.kept, e.sample.cut] for e in handle.ledger.recent],
        "delivered": list(delivered),
    }
