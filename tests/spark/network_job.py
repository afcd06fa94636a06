"""A network for test_network_restart; as a process, with FOLDER KEEP DIE_AT, it kills itself in a batch."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.network import Builder, Network
from streamshed.spark.session import local_session
from tests.spark.executors import executor_count
from tests.spark.helpers import stream, wait_for

QUERIES = ("all", "counts")  # their books: of the outputs without state, and of the one with


def network() -> Network:
    return (
        Builder("wards")
        .source("s", "id LONG, user LONG, priority STRING, at TIMESTAMP", arrived="at", watermark="1 hour")
        .filter("even", "s", "id % 2 = 0", selectivity=0.5)
        .filter("few", "even", "user < 50", selectivity=0.5)
        .aggregate("minutes", "even", "10 minutes", {"n": "count(*)"})
        .output("all", "even")
        .output("some", "few")
        .output("counts", "minutes", write={"format": "memory", "mode": "complete"})
        .build()
    )


def main(spark: SparkSession, folder: Path, keep: float, die_at: int = -1) -> dict[str, Any]:
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]

    def write(rows: DataFrame, number: int) -> None:
        ids = sorted(row.id for row in rows.select("id").collect())
        (folder / "out" / f"{number}.{os.getpid()}.json").write_text(json.dumps(ids))
        if number == die_at:
            # What came after the books of the batch before is lost with them, and owned up to: not here.
            wait_for(lambda: _last_in_books(folder) >= die_at - 1)
            os.kill(jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    running = ss.run(
        spark,
        network(),
        sources={"s": stream(spark, folder / "in")},
        sinks={"all": {"format": "json", "options": {"path": str(folder / "all")}}, "some": write},
        latency="1 hour",
        state=str(folder / "state"),
        trigger={"availableNow": True},
        pin=[ss.Drop("s->even", keep), ss.Drop("even->few", 0.5)],
    )
    running.await_termination()
    result = {
        "executors": executor_count(spark),
        "all": sorted(row.id for row in spark.read.json(str(folder / "all")).select("id").collect()),
        "counted": sum(row.n for row in _last(running)),
        "report": running.report().as_dict(),
    }
    running.close()
    return result


def _last_in_books(folder: Path) -> int:
    """The last batch that is in the books of every query, as they are saved."""
    books = [json.loads(file.read_text()) for file in (folder / "state").rglob("*.json") if file.stem in QUERIES]
    return min((saved["last_batch"] for saved in books), default=-1) if len(books) == len(QUERIES) else -1


def _last(running: ss.spark.runtime.RunningNetwork) -> list:  # type: ignore[name-defined, type-arg]
    batches = running.sinks["counts"]._batches
    return batches[max(batches)] if batches else []


if __name__ == "__main__":
    main(local_session("killed", "local[2]"), Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
