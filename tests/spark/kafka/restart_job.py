"""A real-time job for test_real_time_restart; as a process, with FOLDER BROKER INTO OUT, it waits to be killed."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.lab.bench import kafka
from streamshed.spark.real_time.ladder_shedder import LadderShedder
from streamshed.spark.session import local_session


def start(
    spark: SparkSession, folder: Path, address: str, into: str, out: str
) -> tuple[LadderShedder, StreamingQuery]:
    source = {"kafka.bootstrap.servers": address, "subscribe": into, "startingOffsets": "earliest"}
    events = spark.readStream.format("kafka").options(**source).load()
    kept = ss.shed(events, "200 ms", trigger="real-time", protect="value like '%keep%'", name="live again")
    handle = ss.handle(kept)
    assert isinstance(handle, LadderShedder)
    writer = kept.select("value").writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", address).option("topic", out)
    writer = writer.option("checkpointLocation", str(folder / "state"))
    return handle, writer.trigger(realTime="6 seconds").start()


def books(handle: LadderShedder) -> dict[str, Any]:
    report = handle.report()
    told = {"arrived": report.arrived, "kept": report.kept, "unseen": report.unseen, "batches": report.batches}
    return told | {"classes": {name: asdict(counts) for name, counts in handle.by_class.items()}}


def main(folder: Path, *places: str) -> None:
    spark = local_session("killed", "local[2]", **{"spark.jars": kafka.connector()})
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    handle, query = start(spark, folder, *places)
    (folder / "pids.json").write_text(json.dumps([os.getpid(), jvm]))
    while query.isActive:
        hidden = folder / ".books.json"
        hidden.write_text(json.dumps(books(handle)))
        hidden.replace(folder / "books.json")
        time.sleep(0.1)
    (folder / "problem").write_text(str(query.exception()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
