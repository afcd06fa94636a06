"""A real-time job that is killed and started again; run by test_real_time_restart with: FOLDER BROKER INTO OUT."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import streamshed as ss
from streamshed.lab.bench import kafka
from streamshed.spark.real_time.ladder_shedder import LadderShedder
from streamshed.spark.session import local_session


def main(folder: Path, address: str, into: str, out: str) -> None:
    spark = local_session("restart", "local[2]", **{"spark.jars": kafka.connector()})
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    source = {"kafka.bootstrap.servers": address, "subscribe": into, "startingOffsets": "earliest"}
    events = spark.readStream.format("kafka").options(**source).load()
    kept = ss.shed(events, "200 ms", trigger="real-time", protect="value like '%keep%'", name="r")
    handle = ss.handle(kept)
    assert isinstance(handle, LadderShedder)
    writer = kept.select("value").writeStream.format("kafka").outputMode("update")
    writer = writer.option("kafka.bootstrap.servers", address).option("topic", out)
    query = writer.option("checkpointLocation", str(folder / "state")).trigger(realTime="6 seconds").start()
    (folder / "pids.json").write_text(json.dumps([os.getpid(), jvm]))
    while query.isActive:
        report = handle.report()
        told = {"arrived": report.arrived, "kept": report.kept, "unseen": report.unseen, "batches": report.batches}
        told |= {"classes": {name: asdict(counts) for name, counts in handle.by_class.items()}}
        hidden = folder / ".books.json"
        hidden.write_text(json.dumps(told))
        hidden.replace(folder / "books.json")
        time.sleep(0.1)
    (folder / "problem").write_text(str(query.exception()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
