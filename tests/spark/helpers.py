"""Small streams from files, and the batch query that says which rows a drop must keep."""

from __future__ import annotations

import itertools
import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.spark.drop_in.drop_order import unit_hash
from streamshed.spark.watch.session_monitor import SessionMonitor

SCHEMA = "id LONG, user LONG, priority STRING, at TIMESTAMP"
_serials = itertools.count()


def put_rows(folder: Path, first: int, count: int) -> None:
    """A file with rows first … first+count−1; every tenth is of high priority, users repeat."""
    name = f"{next(_serials):06d}.json"
    hidden = folder / f".{name}"
    lines = (
        json.dumps(
            {
                "id": i,
                "user": i % 97,
                "priority": "high" if i % 10 == 0 else "low",
                "at": f"2026-01-01T00:{i // 60 % 60:02d}:{i % 60:02d}Z",
            }
        )
        for i in range(first, first + count)
    )
    hidden.write_text("\n".join(lines) + "\n")
    os.replace(hidden, folder / name)


def fill(folder: Path, files: int = 4, rows: int = 2000, first: int = 0) -> None:
    """So many rows in so many files."""
    for i in range(files):
        put_rows(folder, first + i * rows // files, rows // files)


def delivered(report: ss.Report) -> dict[str, int]:
    """Rows that each output of a network got."""
    return {name: output.delivered for name, output in report.by_output.items()}


def ids(rows: list[dict[str, object]]) -> set[object]:
    return {row["id"] for row in rows}


def stream(spark: SparkSession, folder: Path, files: int = 1) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).json(str(folder))


def run_all(output: DataFrame, checkpoint: Path, name: str, mode: str = "append") -> list[dict[str, object]]:
    """Everything that is there, as rows of a memory table."""
    writer = output.writeStream.format("memory").queryName(name).outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    # The last reports come a moment after the end.
    wait_for(lambda: not SessionMonitor.of(output.sparkSession)._queries)
    return [row.asDict() for row in output.sparkSession.table(name).collect()]


def expected_ids(
    spark: SparkSession, folder: Path, keep: float, key: str | None, protect: str | None = None, salt: str = "test"
) -> set[int]:
    """The ids that a drop must keep, by a plain batch query: the oracle."""
    rows = spark.read.schema(SCHEMA).json(str(folder))
    columns: list[Column] = [F.col(key)] if key else [F.col(c) for c in rows.columns]
    mixed = unit_hash([unit_hash(columns), F.lit(zlib.crc32(salt.encode())).cast("bigint")])
    kept = mixed < F.lit(int(keep * 2**53))
    if protect is not None:
        kept = kept | F.expr(protect)
    return {row.id for row in rows.where(kept).select("id").collect()}


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something holds; give up after a time that no healthy run needs."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain"
        time.sleep(0.05)


def in_force(handle: Any) -> None:
    """Wait until what was asked for last has begun: a little later than it was asked, more on slow storage."""
    wait_for(lambda: max((span.start for span in handle._control.history.spans), default=0) < time.time() * 1000)
