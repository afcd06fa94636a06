"""Control is data: which keep fraction a micro-batch runs with is read from one row of text.

The text is a history, `{"streamshed": 1, "plans": [[from, until, keep, version], …]}`, times in
milliseconds. A batch takes the last plan whose span holds the batch's own timestamp, the one that
Spark wrote into the checkpoint's offset log before it planned the batch. So

- a batch that runs again after a crash finds the same plan, whatever was published since;
- all drops of a batch agree, and so do several queries that read the file at different moments;
- a plan that nobody renews ends by itself (`until`), and nothing to read means nothing to drop:
  a dead controller or a broken file keeps rows.

A new plan starts a little in the future, so that it stands there before any batch can ask.

The row is a literal table in the query's logical plan, in the driver's memory, and a new text is put
into it while the query runs. Spark optimizes a streaming plan anew for each micro-batch, evaluates
literal tables while it does so, and what is left for the executors is the batch's own number, or an
empty table: reading a file instead costs a job and the compilation of its code in every batch
(docs/design.md). The file holds the same text. It is what outlives the process, and what a person can
look at, edit or delete: the row follows it after each batch.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.errors import InvalidArgument

KEPT_PLANS = 256
THRESHOLD, KEEP, SALT, KEY = (f"_streamshed_{name}" for name in ("threshold", "keep", "salt", "key"))
_HASH_BITS = 53


@dataclass(frozen=True, slots=True)
class Span:
    """A keep fraction and the batch times it holds for, in milliseconds."""

    start: int
    until: int
    keep: float
    version: int


@dataclass(frozen=True, slots=True)
class History:
    """The plans of a shed stream, oldest first. Immutable: adding one gives a new history.

    >>> history = History().add(Span(1000, 9000, 0.5, 1)).add(Span(2000, 9000, 0.25, 2))
    >>> [history.at(t).keep for t in (500, 1500, 2500, 9500)]
    [1.0, 0.5, 0.25, 1.0]
    >>> History.decode(history.encode()) == history
    True
    """

    spans: tuple[Span, ...] = ()

    @property
    def version(self) -> int:
        return self.spans[-1].version if self.spans else 0

    def at(self, batch_time: int) -> Span:
        """The plan for a batch with this timestamp; the same rule as `relation` computes on Spark."""
        for span in reversed(self.spans):
            if span.start <= batch_time:
                if batch_time < span.until:
                    return span
                break
        return Span(0, 0, 1.0, 0)

    def add(self, span: Span) -> History:
        earlier = tuple(s for s in self.spans if s.start < span.start)
        return History((*earlier, span)[-KEPT_PLANS:])

    def merge(self, other: History) -> History:
        """Both histories in one; they are parts of the same one, saved at different times."""
        by_start = {span.start: span for span in (*self.spans, *other.spans)}
        return History(tuple(by_start[start] for start in sorted(by_start))[-KEPT_PLANS:])

    def as_rows(self) -> list[list[float]]:
        return [[s.start, s.until, round(s.keep, 9), s.version] for s in self.spans]

    @staticmethod
    def from_rows(rows: list[list[float]]) -> History:
        return History(tuple(Span(int(a), int(b), float(keep), int(v)) for a, b, keep, v in rows))

    def encode(self) -> bytes:
        text = json.dumps({"streamshed": 1, "plans": self.as_rows()}, separators=(",", ":"))
        return text.encode()

    @staticmethod
    def decode(data: bytes) -> History:
        """Read a control file; a broken one is an empty history, as it is for Spark."""
        try:
            return History.from_rows(json.loads(data.decode())["plans"])
        except (ValueError, KeyError, TypeError):
            return History()


class Store:
    """Small files on any of Hadoop's file systems, replaced whole and at once."""

    # Object stores show a new object only when it is complete, and have no rename worth the name.
    _CREATE_IS_ATOMIC = frozenset({"s3", "s3a", "s3n", "gs", "oss", "obs", "cosn", "r2"})

    def __init__(self, spark: SparkSession, folder: str) -> None:
        gateway: Any = spark.sparkContext._gateway
        self._gateway = gateway
        self._jvm: Any = gateway.jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        self._hadoop: Any = self._jvm.org.apache.hadoop.fs
        path = self._hadoop.Path(folder)
        self._fs: Any = self._hadoop.FileSystem.get(path.toUri(), self._conf)
        self.folder: str = self._fs.makeQualified(path).toString()
        self._scheme: str = self._fs.getUri().getScheme()
        self._local = Path(path.toUri().getPath()).absolute() if self._scheme == "file" else None

    @property
    def is_local(self) -> bool:
        return self._local is not None

    def utf8(self, text: str) -> Any:
        """A string as Spark keeps it in rows."""
        return self._jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text)

    def path(self, name: str) -> str:
        return f"{self.folder.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes | None:
        if self._local is not None:
            file = self._local / name
            return file.read_bytes() if file.exists() else None
        path = self._hadoop.Path(self.path(name))
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        if self._local is not None:
            # The driver's own disk: Hadoop's file system for it does not rename onto a file, and its
            # FileContext adds a checksum that is not replaced in the same step.
            self._local.mkdir(parents=True, exist_ok=True)
            fresh_file = self._local / f".{name}.new"
            fresh_file.write_bytes(data)
            os.replace(fresh_file, self._local / name)
            return
        target = self._hadoop.Path(self.path(name))
        if self._scheme in self._CREATE_IS_ATOMIC:
            self._put(target, data)
            return
        fresh = self._hadoop.Path(self.path(f".{name}.new"))
        self._put(fresh, data)
        rename: Any = self._hadoop.Options.Rename
        overwrite = self._gateway.new_array(rename, 1)
        overwrite[0] = rename.OVERWRITE
        self._hadoop.FileContext.getFileContext(target.toUri(), self._conf).rename(fresh, target, overwrite)

    def append(self, name: str, data: bytes, older: str, most: int) -> None:
        """Add to a file; one of more than `most` bytes takes the place of `older` first, and a new one begins."""
        if self._local is None:
            # Few file systems can append: the file is written anew.
            before = self.read(name) or b""
            if len(before) > most:
                self.write(older, before)
                before = b""
            self.write(name, before + data)
            return
        self._local.mkdir(parents=True, exist_ok=True)
        file = self._local / name
        if file.exists() and file.stat().st_size > most:
            os.replace(file, self._local / older)
        with file.open("ab") as end:
            end.write(data)

    def names(self) -> list[str]:
        """The files in the folder."""
        path = self._hadoop.Path(self.folder)
        if not self._fs.exists(path):
            return []
        return sorted(str(each.getPath().getName()) for each in self._fs.listStatus(path))

    def remove(self, name: str) -> None:
        """Remove one file, if it is there."""
        self._fs.delete(self._hadoop.Path(self.path(name)), False)

    def delete(self) -> None:
        """Remove the folder and what is in it."""
        self._fs.delete(self._hadoop.Path(self.folder), True)

    def _put(self, path: Any, data: bytes) -> None:
        stream = self._fs.create(path, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()


class _Timed(Protocol):
    @property
    def start(self) -> int: ...


SpanT = TypeVar("SpanT", bound=_Timed)
HistoryT = TypeVar("HistoryT", bound="_TimedHistory[Any]")


class _TimedHistory(Protocol[SpanT]):
    """What was in force when: plans of a drop, or orders of the load-aware operator."""

    @property
    def spans(self) -> tuple[SpanT, ...]: ...
    def add(self: HistoryT, span: SpanT) -> HistoryT: ...
    def merge(self: HistoryT, other: HistoryT) -> HistoryT: ...
    def encode(self) -> bytes: ...


class HistoryFile(Generic[SpanT, HistoryT]):
    """A history, its file, and the row that the running plans read it from."""

    def __init__(
        self,
        store: Store,
        name: str,
        decode: Callable[[bytes], HistoryT],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._file = f"{name}.control.json"
        self._decode = decode
        self._now = now
        self._guard = 0.03
        self._cells: list[Any] = []
        self._written = b""
        self._next_look = 0.0
        self.path = store.path(self._file)
        self.shown: HistoryT
        """What the row says: the history, unless somebody else changed the file."""
        try:
            self.history = decode(store.read(self._file) or b"")
            self._write(self.history)
        except Exception as error:
            raise InvalidArgument(
                "the control file cannot be written",
                got=f"{self.path}: {_root_cause(error)}",
                hint="give control= a folder that this user may write to",
            ) from error

    def put(self, make: Callable[[int], SpanT], also: Callable[[HistoryT], None]) -> SpanT:
        """Put what `make(start)` gives in force for batches from now on.

        `also` stores the history beside the checkpoints first, so that what a batch has used is never
        only in this file.
        """
        while True:
            asked = self._now()
            # Strictly after every earlier plan, also if the clock was set back.
            start = max(int((asked + self._guard) * 1000), *(s.start + 1 for s in self.history.spans[-1:]), 0)
            span = make(start)
            history = self.history.add(span)
            also(history)
            self._write(history)
            took = self._now() - asked
            self.history = history
            if self._now() * 1000 < start or took > 5.0:
                # Aim for a third of the head start next time.
                self._guard = min(2.0, max(0.02, 0.9 * self._guard, 3.0 * took))
                return span
            # Too slow: a batch may have been planned in between. Start it again, later.
            self._guard = min(4.0, 3.0 * took)

    def adopt(self, other: HistoryT) -> None:
        """Take over plans that were saved beside a checkpoint by an earlier run."""
        merged = self.history.merge(other)
        if merged != self.history:
            self.history = merged
            self._write(merged)

    def text(self, spark: SparkSession) -> DataFrame:
        """One row with one column, `value`, that always has what was written last."""
        rows = spark.sql("SELECT value FROM VALUES ('') AS control(value)")
        table: Any = rows._jdf.queryExecution().analyzed().collectLeaves().head()
        self._cells.append(table.data().apply(0))
        self._show(self._written)
        return rows

    def follow(self) -> bool:
        """Have the row say what the file says; False if somebody else changed or removed the file."""
        now = self._now()
        if now < self._next_look:
            return True
        self._next_look = now + (0.0 if self._store.is_local else 10.0)
        found = self._store.read(self._file) or b""
        if found == self._written:
            return True
        self._written = found
        self.shown = self._decode(found)
        self._show(found)
        return False

    def open_row(self) -> None:
        """Keep everything from now on, whatever the storage says."""
        self.shown = self._decode(b"")
        self._show(b"")

    def _write(self, history: HistoryT) -> None:
        data = history.encode()
        self._store.write(self._file, data)
        self._written = data
        self.shown = history
        self._show(data)

    def _show(self, data: bytes) -> None:
        text = self._store.utf8(data.decode(errors="replace"))
        for cell in self._cells:
            cell.update(0, text)


class ControlFile(HistoryFile[Span, History]):
    """The plans of one shed stream."""

    def __init__(self, store: Store, name: str, now: Callable[[], float] = time.time) -> None:
        super().__init__(store, name, History.decode, now)

    def publish(self, keep: float, lease: float, version: int, also: Callable[[History], None]) -> Span:
        """Put a plan in force for batches from now on, for at most `lease` seconds."""
        return self.put(lambda start: Span(start, start + int(lease * 1000), keep, version), also)

    def relation(self, spark: SparkSession, rotate: float | None) -> DataFrame:
        """The drop order for the current batch: one row, or none if there is nothing to drop.

        `current_timestamp()` is the batch's own time here, also when it runs again. Nothing in this
        may fail, whatever the file holds: `get` and `try_element_at` answer null where `[]` raises.
        """
        now = F.unix_millis(F.current_timestamp())
        valid = F.filter("plans", lambda p: F.get(p, F.lit(0)) <= now)
        plan = (
            self.text(spark)
            .select(F.from_json("value", "plans array<array<double>>").getField("plans").alias("plans"))
            .select(F.try_element_at(valid, F.lit(-1)).alias("plan"))
        )
        keep = F.get("plan", F.lit(2))
        salt = F.lit(0) if rotate is None else F.floor(now / F.lit(int(rotate * 1000)))
        return plan.where((now < F.get("plan", F.lit(1))) & (keep < 1.0) & (keep >= 0.0)).select(
            (keep * F.lit(float(1 << _HASH_BITS))).cast("bigint").alias(THRESHOLD),
            keep.alias(KEEP),
            # Always 0, but not so that the optimizer could know: see `matches`.
            (keep * 0.0).cast("bigint").alias(KEY),
            salt.cast("bigint").alias(SALT),
        )


def matches(columns: list[Column]) -> Column:
    """The condition of the anti-join with `relation`: true for a row that the drop order takes away.

    The first part is always true. It is there to make the join one by equality, which Spark does as a
    broadcast hash join, and that one lets all rows through untouched when the right side is empty.
    """
    value = unit_hash(columns)
    return (F.shiftrightunsigned(value, _HASH_BITS) == F.col(KEY)) & (value >= F.col(THRESHOLD))


def unit_hash(columns: list[Column]) -> Column:
    """A stable hash of the columns, uniform over 0 … 2⁵³ − 1, to be compared with THRESHOLD."""
    return F.shiftrightunsigned(F.xxhash64(*columns), 64 - _HASH_BITS)


def control_store(spark: SparkSession, control: str | None) -> Store:
    """Where the control file goes: where the user says, else beside the checkpoints, else a temporary folder."""
    folder = control
    base = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    temporary = False
    if folder is None and base:
        folder = f"{base}/_streamshed"
    if folder is None:
        # Only the driver reads it, and what must outlive the driver is beside each checkpoint.
        folder, temporary = f"file://{tempfile.mkdtemp(prefix='streamshed-')}", True
    try:
        store = Store(spark, folder)
    except Exception as error:
        raise InvalidArgument(
            "the control folder cannot be used",
            got=f"{folder!r}: {error}",
            hint="is its file system known to Spark?",
        ) from error
    if temporary:
        atexit.register(_remove_quietly, store)
    return store


def _remove_quietly(store: Store) -> None:
    with contextlib.suppress(Exception):
        store.delete()


def _root_cause(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return java.toString() if java is not None else f"{type(error).__name__}: {error}"
