"""Real-time mode on separate executors; run by test_real_time_executors with: FOLDER BROKER INTO OUT."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import streamshed as ss
from streamshed.lab.bench import kafka
from streamshed.spark.session import local_session


def main(folder: Path, address: str, into: str, out: str) -> None:
    settings = {"spark.driver.memory": "512m", "spark.jars": kafka.connector(), "spark.executor.cores": "1"}
    spark = local_session("real-time executors", "local-cluster[2,1,1024]", **settings)
    while _executors(spark) < 2:
        time.sleep(0.1)  # a query whose tasks find no slot waits as well, but nobody could tell why
    source = {"kafka.bootstrap.servers": address, "subscribe": into, "startingOffsets": "earliest"}
    events = spark.readStream.format("kafka").options(**source).load()
    kept = ss.shed(events, "1 hour", trigger="real-time", floor=0.0, name="e")
    handle = ss.handle(kept)
    writer = kept.select("value").writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", address).option("topic", out)
    query = writer.option("checkpointLocation", str(folder / "state")).trigger(realTime="10 minutes").start()
    (folder / "started").touch()
    while query.isActive and not (folder / "end").exists():
        if (folder / "tighten").exists() and handle.latency > 1.0:
            handle.latency = "50 ms"
            (folder / "tightened").write_text(json.dumps({"executors": _executors(spark), "at": time.time()}))
        time.sleep(0.05)
    if not query.isActive:
        (folder / "problem").write_text(str(query.exception()))
    query.stop()
    spark.stop()


def _executors(spark: object) -> int:
    return spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
