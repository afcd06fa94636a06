"""The plans of a network as numbers, in one small file: `control` for networks.

The same rule as for a shed stream: a batch takes the last plan whose span holds the batch's own time, so that
all drops of a batch agree, a batch that runs again drops the same rows, and what nobody renews ends by itself.
Queries with state read the file in their own plan; fused ones are given the numbers when a batch is built.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.errors import InvalidArgument
from streamshed.spark.control import Store
from streamshed.spark.slots import Numbers
from streamshed.spark.sql import CONTROL, KEY

_KEPT = 64
_DIGITS = 25  # of a number, with its comma; a double has at most 24


@dataclass(frozen=True, slots=True)
class PlanSpan:
    """The numbers of a plan and the batch times they hold for, in milliseconds."""

    start: int
    until: int
    version: int
    share: float
    """Share of the full load that the plan is meant to leave."""
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class PlanHistory:
    """The plans of a network, oldest first.

    >>> history = PlanHistory().add(PlanSpan(1000, 9000, 1, 0.5, (None, 0.5)))
    >>> history.at(500).version, history.at(1500).numbers, history.at(9500).version
    (0, (None, 0.5), 0)
    >>> PlanHistory.decode(history.encode(4096)) == history
    True
    """

    spans: tuple[PlanSpan, ...] = ()

    def at(self, batch_time: int) -> PlanSpan:
        for span in reversed(self.spans):
            if span.start <= batch_time:
                if batch_time < span.until:
                    return span
                break
        return PlanSpan(0, 0, 0, 1.0, ())

    def add(self, span: PlanSpan) -> PlanHistory:
        earlier = tuple(s for s in self.spans if s.start < span.start)
        return PlanHistory((*earlier, span)[-_KEPT:])

    def encode(self, length: int) -> bytes:
        plans = [[s.start, s.until, s.version, s.share, *s.numbers] for s in self.spans]
        return json.dumps({"streamshed": 1, "plans": plans}, separators=(",", ":")).ljust(length).encode()

    @staticmethod
    def decode(data: bytes) -> PlanHistory:
        """Read a control file; a broken one is an empty history, as it is for Spark."""
        try:
            rows = json.loads(data.decode())["plans"]
            return PlanHistory(
                tuple(PlanSpan(int(a), int(b), int(v), float(s), tuple(n)) for a, b, v, s, *n in rows)
            )
        except (ValueError, KeyError, TypeError):
            return PlanHistory()


class NetworkControl:
    """The history of a network's plans, and the file that running queries read it from."""

    FILE = "control.json"

    def __init__(self, store: Store, size: int, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._size = size
        self._now = now
        self._guard = 0.03
        self._lock = threading.Lock()
        # Always of one length: Spark remembers a file's length from when the query was built.
        self._length = 64 + _KEPT * (4 + size) * _DIGITS
        self.path = store.path(self.FILE)
        try:
            history = PlanHistory.decode(store.read(self.FILE) or b"")
            # Another network's plans, or those of an earlier shape of this one, mean nothing here.
            self.history = PlanHistory(tuple(s for s in history.spans if len(s.numbers) in (0, size)))
            store.write(self.FILE, self.history.encode(self._length))
        except Exception as error:
            raise InvalidArgument(
                "the control file cannot be written",
                got=f"{self.path}: {error}",
                hint="give checkpoint= a folder that this user may write to and every executor can read",
            ) from error

    @property
    def version(self) -> int:
        return self.history.spans[-1].version if self.history.spans else 0

    def publish(self, numbers: Numbers, share: float, lease: float) -> PlanSpan:
        """Put a plan in force for batches from now on, for at most `lease` seconds."""
        with self._lock:
            while True:
                asked = self._now()
                last = self.history.spans[-1].start + 1 if self.history.spans else 0
                start = max(int((asked + self._guard) * 1000), last)
                span = PlanSpan(start, start + int(lease * 1000), self.version + 1, share, numbers)
                history = self.history.add(span)
                self._store.write(self.FILE, history.encode(self._length))
                self.history = history
                took = self._now() - asked
                if self._now() * 1000 < start or took > 5.0:
                    self._guard = min(2.0, max(0.02, 0.9 * self._guard, 3.0 * took))
                    return span
                # Too slow: a batch may have been planned in between. Start it again, later.
                self._guard = min(4.0, 3.0 * took)

    def relation(self, spark: SparkSession) -> DataFrame:
        """The numbers for the current batch, in the column CONTROL; no row if nothing is dropped.

        `current_timestamp()` is the batch's own time here, also when it runs again. Nothing in this may fail,
        whatever the file holds.
        """
        now = F.unix_millis(F.current_timestamp())
        valid = F.filter("plans", lambda p: F.get(p, F.lit(0)) <= now)
        return (
            spark.read.option("ignoreMissingFiles", "true")
            .option("ignoreCorruptFiles", "true")
            .text(self.path, wholetext=True)
            .select(F.from_json("value", "plans array<array<double>>").getField("plans").alias("plans"))
            .select(F.try_element_at(valid, F.lit(-1)).alias("plan"))
            .where((now < F.get("plan", F.lit(1))) & (F.size("plan") == 4 + self._size))
            .select(
                F.slice("plan", 5, max(1, self._size)).alias(CONTROL),
                # Always 0, but not so that the optimizer could know.
                (F.get("plan", F.lit(0)) * 0.0).cast("bigint").alias(KEY),
            )
        )
