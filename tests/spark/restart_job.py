"""A job for test_restart; as a process, with FOLDER KEEP DIE_AT, it kills itself in the middle of a batch."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.spark.session import local_session
from tests.spark.helpers import stream


def main(spark: SparkSession, folder: Path, keep: float, die_at: int = -1) -> dict[str, int]:
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    kept = ss.shed(stream(spark, folder / "in"), "1 hour", key="id", protect="priority = 'high'", name="restarted")
    handle = ss.shedder(kept)
    handle.pin(keep)
    time.sleep(0.2)  # so that a plan of this run would be in force

    def write(rows: DataFrame, number: int) -> None:
        ids = sorted(row.id for row in rows.select("id").collect())
        (folder / "out" / f"{number}.{os.getpid()}.json").write_text(json.dumps(ids))
        # Another plan for every batch.
        handle.pin(keep * (0.5 + 0.05 * number))
        time.sleep(0.3)
        if number == die_at:
            os.kill(jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    query = kept.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "state"))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    handle.settle(60.0)
    report = handle.report()
    return {"arrived": report.arrived, "kept": report.kept, "unseen": report.unseen}


if __name__ == "__main__":
    main(local_session("killed", "local[2]"), Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
