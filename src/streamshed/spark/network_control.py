"""The plans of a network as numbers, in one row of text: `control` for networks.

The same rule as for a shed stream: a batch takes the last plan whose span holds the batch's own time, so that
all drops of a batch agree, a batch that runs again drops the same rows, and what nobody renews ends by itself.
Queries with state read the row in their own plan; fused ones are given the numbers when a batch is built.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.spark.control import HistoryFile, Store
from streamshed.spark.slots import Numbers
from streamshed.spark.sql import CONTROL, KEY

_KEPT = 64


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
    >>> PlanHistory.decode(history.encode(), 2) == history
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

    def merge(self, other: PlanHistory) -> PlanHistory:
        """Both histories in one; they are parts of the same one, saved at different times."""
        by_start = {span.start: span for span in (*self.spans, *other.spans)}
        return PlanHistory(tuple(by_start[start] for start in sorted(by_start))[-_KEPT:])

    def encode(self) -> bytes:
        plans = [[s.start, s.until, s.version, s.share, *s.numbers] for s in self.spans]
        return json.dumps({"streamshed": 1, "plans": plans}, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes, size: int) -> PlanHistory:
        """Read a control file; a broken one is an empty history, as it is for Spark.

        Plans of another size are another network's, or of an earlier shape of this one, and mean nothing.
        """
        try:
            rows = json.loads(data.decode())["plans"]
            spans = tuple(PlanSpan(int(a), int(b), int(v), float(s), tuple(n)) for a, b, v, s, *n in rows)
            return PlanHistory(tuple(span for span in spans if len(span.numbers) in (0, size)))
        except (ValueError, KeyError, TypeError):
            return PlanHistory()


class NetworkControl(HistoryFile[PlanSpan, PlanHistory]):
    """The plans of one network."""

    def __init__(self, store: Store, size: int, now: Callable[[], float] = time.time) -> None:
        """`size`: how many numbers a plan of this network has."""
        self._size = size
        self._lock = threading.Lock()
        super().__init__(store, "network", lambda data: PlanHistory.decode(data, size), now)

    @property
    def version(self) -> int:
        return self.history.spans[-1].version if self.history.spans else 0

    def publish(self, numbers: Numbers, share: float, lease: float) -> PlanSpan:
        """Put a plan in force for batches from now on, for at most `lease` seconds."""
        with self._lock:
            version = self.version + 1
            return self.put(
                lambda start: PlanSpan(start, start + int(lease * 1000), version, share, numbers),
                # The file is beside the checkpoints already.
                also=lambda history: None,
            )

    def relation(self, spark: SparkSession) -> DataFrame:
        """The numbers for the current batch, in the column CONTROL; no row if nothing is dropped.

        `current_timestamp()` is the batch's own time here, also when it runs again. Nothing in this may fail,
        whatever the file holds.
        """
        now = F.unix_millis(F.current_timestamp())
        valid = F.filter("plans", lambda p: F.get(p, F.lit(0)) <= now)
        return (
            self.text(spark)
            .select(F.from_json("value", "plans array<array<double>>").getField("plans").alias("plans"))
            .select(F.try_element_at(valid, F.lit(-1)).alias("plan"))
            .where((now < F.get("plan", F.lit(1))) & (F.size("plan") == 4 + self._size))
            .select(
                F.slice("plan", 5, max(1, self._size)).alias(CONTROL),
                # Always 0, but not so that the optimizer could know.
                (F.get("plan", F.lit(0)) * 0.0).cast("bigint").alias(KEY),
            )
        )
