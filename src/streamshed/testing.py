"""For tests of jobs that shed: a source of what is put into it, a sink that remembers, a clock set by hand.

source = ListSource(spark, "id LONG, user STRING")
sink = ListSink()
kept = ss.shed(source.frame, latency="4 seconds", key="user")
with ss.handle(kept) as handle, sink.start(kept):
    handle.pin(0.5)
    source.put({"id": 1, "user": "ann"}, {"id": 2, "user": "bob"})     # one micro-batch
    sink.wait()
    assert handle.report().arrived == 2
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from streamshed.errors import InvalidArgument


class ListSource:
    """A streaming source of rows that a test puts in; what is put at once is one micro-batch."""

    def __init__(self, spark: SparkSession, schema: str | StructType) -> None:
        self.schema = spark.createDataFrame([], schema).schema
        self._arrow = to_arrow_schema(self.schema, timezone="UTC")
        self._folder = Path(tempfile.mkdtemp(prefix="streamshed-list-"))
        self._count = 0
        self.frame: DataFrame = (
            spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).parquet(str(self._folder))
        )
        """The stream."""

    def put(self, *rows: Mapping[str, Any]) -> None:
        """The rows of the next micro-batch; a column that a row does not name is null."""
        unknown = sorted({name for row in rows for name in row} - set(self.schema.names))
        if unknown:
            raise InvalidArgument(
                "the source has no such column",
                got=", ".join(unknown),
                hint=f"it has {', '.join(self.schema.names)}",
            )
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=self._arrow)
        name = f"{self._count:06d}.parquet"
        self._count += 1
        # Spark does not look at names that begin with a dot: it never sees half a file.
        pq.write_table(table, self._folder / f".{name}")
        os.replace(self._folder / f".{name}", self._folder / name)

    def close(self) -> None:
        """Forget everything that was put in."""
        shutil.rmtree(self._folder, ignore_errors=True)


class ListSink:
    """Remembers what queries write to it; a batch that runs again replaces what it wrote before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        """The rows of each batch, by its number."""
        self._query: StreamingQuery | None = None

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of their batches."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @contextmanager
    def start(
        self, frame: DataFrame, state: str | Path | None = None, mode: str = "append", **trigger: Any
    ) -> Iterator[StreamingQuery]:
        """Start a query that writes here; it ends with the block. `state`: folder of its checkpoint."""
        folder = str(state) if state is not None else tempfile.mkdtemp(prefix="streamshed-list-")
        writer = frame.writeStream.foreachBatch(self._take).outputMode(mode).option("checkpointLocation", folder)
        self._query = (writer.trigger(**trigger) if trigger else writer).start()
        try:
            yield self._query
        finally:
            self._query.stop()
            if state is None:
                shutil.rmtree(folder, ignore_errors=True)

    def wait(self) -> None:
        """Wait until everything that was put in has been written."""
        if self._query is not None:
            self._query.processAllAvailable()

    def _take(self, rows: DataFrame, number: int) -> None:
        self.batches[number] = rows.collect()


class ManualClock:
    """A clock that stands still until it is told to go on.

    >>> clock = ManualClock(100.0)
    >>> clock.advance(2.5)
    >>> clock()
    102.5
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise InvalidArgument("time goes forward", got=seconds)
        self.now += seconds
