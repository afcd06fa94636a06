"""A history of plans or orders, its file, and the row that the running plans read it from.

The row is a literal table in the query's logical plan, in the driver's memory, and a new text is put into it while
the query runs. Spark optimizes a streaming plan anew for each micro-batch, evaluates literal tables while it does
so, and what is left for the executors is the batch's own number, or an empty table: reading a file instead costs a
job and the compilation of its code in every batch (docs/design.md).

The file holds the same text. It is what a person can look at, edit or delete while the job runs. Nothing is ever
read from it but that: what the next process needs stands beside each checkpoint.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import time
import uuid
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession

from streamshed.errors import InvalidArgument
from streamshed.spark.orders.store import Store, root_cause

log = logging.getLogger("streamshed")

_ENDING = ".control.json"
_TRIES = 4
_MARGIN = 0.005  # seconds: showing the row takes a call into the JVM
_LONGEST = 60.0  # seconds of head start, for the slowest of storages
_HEAD_START = 1.0  # seconds for which a query is held up at its start, at most
_LOOK_EVERY = 10.0  # seconds between two looks at a file that is far away


class Timed(Protocol):
    @property
    def start(self) -> int: ...


SpanT = TypeVar("SpanT", bound=Timed)
HistoryT = TypeVar("HistoryT", bound="TimedHistory[Any]")


class TimedHistory(Protocol[SpanT]):
    """What was in force when: plans of a drop, or orders of the load-aware operator."""

    @property
    def spans(self) -> tuple[SpanT, ...]: ...
    def add(self: HistoryT, span: SpanT) -> HistoryT: ...
    def merge(self: HistoryT, other: HistoryT) -> HistoryT: ...
    def encode(self) -> bytes: ...


class HistoryFile(Generic[SpanT, HistoryT]):
    """A history, its file, and the row."""

    def __init__(
        self,
        store: Store,
        name: str,
        decode: Callable[[bytes], HistoryT],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._name = name
        self._decode = decode
        self._now = now
        self._owner = uuid.uuid4().hex
        self._guard = 0.03
        self._cells: list[Any] = []
        self._row = b""
        self._next_look = 0.0
        self._use_file(_free_name(store, name))
        self.history: HistoryT = decode(b"")
        """What is in force when, as the row says it."""
        try:
            self._written = self._text(self.history)
            self._store.write(self._file, self._written)
        except Exception as error:
            raise InvalidArgument(
                "the control file cannot be written",
                got=f"{self.path}: {root_cause(error)}",
                hint="give state= a folder that this user may write to",
            ) from error

    def put(
        self, make: Callable[[int], SpanT], also: Callable[[HistoryT], None], *, mirror: bool = True
    ) -> SpanT | None:
        """Put what `make(start)` gives in force for batches from now on; None if storage is too slow for that.

        It starts a little in the future. First the history is stored, by `also` beside the checkpoints and, unless
        `mirror` is false, in the file; then comes a look at the clock; and only if no batch can have passed the
        start is it shown. So what a batch has used is never in memory only, and what is stored was in force.
        """
        for _ in range(_TRIES):
            asked = self._now()
            # Strictly after every earlier plan, also if the clock was set back.
            start = max(int((asked + self._guard) * 1000), *(s.start + 1 for s in self.history.spans[-1:]), 0)
            span = make(start)
            history = self.history.add(span)
            data = self._text(history)
            also(history)
            if mirror:
                self._store.write(self._file, data)
            took = self._now() - asked
            if (asked + took + _MARGIN) * 1000 < start:
                # Aim for a third of the head start next time.
                self._guard = min(_LONGEST, max(0.02, 0.9 * self._guard, 3.0 * took))
                if mirror:
                    self._written = data
                self._take(history, data)
                return span
            self._guard = min(_LONGEST, 3.0 * took + 2 * _MARGIN)
        # Never shown, so it must not stand anywhere either.
        also(self.history)
        if mirror:
            self._written = self._text(self.history)
            self._store.write(self._file, self._written)
        log.warning(
            "%s: a plan was not put in force, because storing it took longer than its head start of %.1f s: %s",
            self._name,
            self._guard,
            self.path,
        )
        return None

    def await_start(self) -> None:
        """What was put in force last starts a little in the future: wait for that."""
        newest = max((span.start for span in self.history.spans), default=0) / 1000.0
        time.sleep(min(_HEAD_START, max(0.0, newest - self._now())))

    def open_row(self, make: Callable[[int], SpanT] | None = None) -> None:
        """Keep everything from this moment on, without asking the storage.

        `make(start)` is the order to keep everything, so that it can be told later what was in force when.
        """
        if make is None:
            self._row = b""
            self._show(b"")
        else:
            # In place of a plan that has not begun yet, too: no batch has seen it.
            history = self.history.add(make(int(self._now() * 1000)))
            self._take(history, self._text(history))

    def show(self, history: HistoryT) -> None:
        """Have the row say this at once: what a person wrote into the file."""
        self._take(history, self._text(history))

    def adopt(self, other: HistoryT) -> None:
        """Take over plans that were saved beside a checkpoint by an earlier run."""
        merged = self.history.merge(other)
        if merged != self.history:
            self._take(merged, self._text(merged))

    def text(self, spark: SparkSession) -> DataFrame:
        """One row with one column, `value`, that always has what was shown last."""
        rows = spark.sql("SELECT value FROM VALUES ('') AS control(value)")
        table: Any = rows._jdf.queryExecution().analyzed().collectLeaves().head()
        self._cells.append(table.data().apply(0))
        self._show(self._row)
        return rows

    def follow(self) -> HistoryT | None:
        """What the file says, if a person changed or removed it since the last look; else None.

        A file that another application writes to is left to it: ours gets another name.
        """
        now = self._now()
        if now < self._next_look:
            return None
        self._next_look = now + (0.0 if self._store.is_local else _LOOK_EVERY)
        found = self._store.read(self._file) or b""
        if found == self._written:
            return None
        if _owner_of(found) not in (None, self._owner):
            log.warning(
                "%s: another application has the same control file; its plans are not carried out here: %s",
                self._name,
                self.path,
            )
            self._use_file(f"{self._name}-{self._owner[:8]}")
            self._store.write(self._file, self._written)
            return None
        self._written = found
        return self._decode(found)

    def close(self) -> None:
        """Keep everything, and remove the file."""
        self.open_row()
        with contextlib.suppress(Exception):
            if _owner_of(self._store.read(self._file) or b"") == self._owner:
                self._store.remove(self._file)
        _taken.discard(self.path.removesuffix(_ENDING))
        self._store.discard()

    def _use_file(self, name: str) -> None:
        self._file = name + _ENDING
        self.path = self._store.path(self._file)

    def _text(self, history: HistoryT) -> bytes:
        return b'{"owner":"%s",' % self._owner.encode() + history.encode()[1:]

    def _take(self, history: HistoryT, data: bytes) -> None:
        self.history = history
        self._row = data
        self._show(data)

    def _show(self, data: bytes) -> None:
        text = self._store.utf8(data.decode(errors="replace"))
        for cell in self._cells:
            cell.update(0, text)


_taken: set[str] = set()
"""Paths of this process's control files, without their ending."""


def _free_name(store: Store, name: str) -> str:
    """The name, or a numbered one if this process has such a file in the folder already."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    free = next(each for each in names if store.path(each) not in _taken)
    _taken.add(store.path(free))
    return free


def _owner_of(data: bytes) -> str | None:
    try:
        owner = json.loads(data.decode())["owner"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return owner if isinstance(owner, str) else None
