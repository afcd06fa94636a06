"""A network with a time budget on separate executors, one of which is lost inside a batch: for the tests."""

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
from streamshed.network import Builder, Network
from streamshed.spark.watch.clock_skew import ClockSkew
from tests.spark.budget_cluster_job import executors
from tests.spark.helpers import wait_for
from tests.spark.test_network_expired import OLD, SCHEMA, YOUNG, parsed, put

FILES, ROWS = 8, 400
WARM = 50


def network() -> Network:
    """One output without state and one with: two queries, each of which reads the source."""
    builder = Builder("faulty", capacity=1.0).source(
        "s", SCHEMA, rate=1000, arrived="at", watermark="1 day", protect="kind = 'k0'"
    )
    builder.filter("all", "s", "v >= 0", cost=1e-5, selectivity=1.0).output("out", "all")
    builder.aggregate("w", "s", "1000 days", {"n": "count(*)"}, cost=1e-5)
    return builder.output("counts", "w", write={"mode": "update"}).build()


def main(spark: SparkSession, folder: Path) -> dict[str, Any]:
    (folder / "in").mkdir()
    rows = parsed(spark, folder / "in")
    slow = rows.where("reflect('java.lang.Thread', 'sleep', 4L) = 'null'")

    def deliver(batch: DataFrame, number: int) -> None:
        batch.select("id").write.mode("overwrite").parquet(str(folder / "out" / str(number)))

    running = ss.run(
        spark,
        network(),
        sources={"s": slow},
        sinks={"out": deliver, "counts": "memory"},
        latency="1 hour",
        floor=0.0,
        expired="drop",
        state=str(folder / "state"),
    )
    ClockSkew.of(spark).wait(60)
    running.pin([])
    put(folder / "in", [YOUNG] * WARM)  # has the code compiled
    running.process_all_available()
    running.pin([], budget="1500 ms", grace=20)
    application = spark.sparkContext.applicationId

    def lose() -> None:
        time.sleep(2.0)
        os.kill(executors(application)[0], signal.SIGKILL)

    for i in range(FILES):
        put(folder / "in", [OLD, *[YOUNG] * 4] * (ROWS // 5), first=1000 + ROWS * i)
    loser = threading.Thread(target=lose)
    loser.start()
    running.process_all_available()
    loser.join()
    whole = WARM + FILES * ROWS
    wait_for(lambda: all(part.arrived >= whole for part in running.report().by_query.values()))
    running.stop()
    report = running.report()
    delivered = spark.read.parquet(str(folder / "out" / "*"))
    came = delivered.agg(F.count("*"), F.countDistinct("id")).collect()[0]
    protected = delivered.where("id >= 1000 AND id % 10 = 0").count()
    result = {
        "whole": whole,
        "by_query": {
            name: {
                "arrived": part.arrived,
                "kept": part.kept,
                "cut": part.cut,
                "expired": part.expired,
                "thinned": part.thinned,
                "unseen": part.unseen,
                "arcs": {
                    on: [arc.arrived, arc.passed, arc.cut, arc.expired, arc.thinned]
                    for on, arc in part.by_arc.items()
                },
            }
            for name, part in report.by_query.items()
        },
        "delivered": list(came),
        "protected": protected,
        "counted": max((row.n for row in running.rows("counts")), default=0),
        "skew": ClockSkew.of(spark).seconds,
    }
    running.close()
    return result
