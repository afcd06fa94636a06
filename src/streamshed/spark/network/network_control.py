"""The plans of a network as numbers, in one row of text: `control` for networks.

The same rule as for a shed stream: a batch takes the last plan whose span holds the batch's own time, so that
all drops of a batch agree, a batch that runs again drops the same rows, and what nobody renews ends by itself.
Queries with state read the row in their own plan; fused ones are given the numbers when a batch is built.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.spark.network.slots import Numbers
from streamshed.spark.network.sql import CONTROL, KEY
from streamshed.spark.orders.order_file import HistoryFile
from streamshed.spark.orders.store import Store

_NEWEST = 64  # plans that are kept in any case
_PLANS = "network.plans.json"
_LONG = 10 * 365 * 86_400_000  # milliseconds: until somebody says otherwise
_MOST = 4096  # plans that are kept at most, also when nobody knows which are still needed


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
        """With one plan more. The plan that holds anyway is not another one: it only ends later.

        >>> history = PlanHistory().add(PlanSpan(1000, 9000, 1, 0.5, (0.5,)))
        >>> [(span.start, span.until) for span in history.add(PlanSpan(5000, 13000, 2, 0.5, (0.5,))).spans]
        [(1000, 13000)]
        """
        earlier = tuple(s for s in self.spans if s.start < span.start)
        last = earlier[-1] if earlier else None
        if (
            last is not None
            and (last.numbers, last.share) == (span.numbers, span.share)
            and span.start <= last.until <= span.until
        ):
            return PlanHistory((*earlier[:-1], replace(last, until=span.until)))
        return PlanHistory((*earlier, span))

    def merge(self, other: PlanHistory) -> PlanHistory:
        """Both histories in one; they are parts of the same one, saved at different times."""
        by_start = {span.start: span for span in (*self.spans, *other.spans)}
        return PlanHistory(tuple(by_start[start] for start in sorted(by_start)))

    def only(self, times: Collection[int]) -> PlanHistory:
        """The newest plans, and the ones that batches of these times have. Nothing else changes for them.

        >>> history = PlanHistory(tuple(PlanSpan(n, n + 50, n, 0.5, (float(n),)) for n in range(1, 1001)))
        >>> less = history.only([17])
        >>> len(less.spans), less.at(17) == replace(history.at(17), until=18), less.at(18).version
        (65, True, 0)
        """
        count = len(self.spans)
        kept = set(range(max(0, count - _NEWEST), count))
        for time_ in times:
            kept.update([at for at, span in enumerate(self.spans) if span.start <= time_][-1:])
        spans = []
        for at in sorted(kept):
            span = self.spans[at]
            if at + 1 < count and at + 1 not in kept:
                # The plan after it ended it; without that one, it has to end by itself.
                span = replace(span, until=min(span.until, self.spans[at + 1].start))
            spans.append(span)
        return PlanHistory(tuple(spans))

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
            spans = tuple(
                PlanSpan(int(a), int(b), int(v), float(s), tuple(map(_number, n))) for a, b, v, s, *n in rows
            )
            return PlanHistory(tuple(span for span in spans if len(span.numbers) in (0, size)))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return PlanHistory()


def _number(value: Any) -> float | None:
    """A number of a plan as it stands in a file that people may edit: it becomes part of a query's SQL."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"not a number: {value!r}")
    return float(value)


class NetworkControl(HistoryFile[PlanSpan, PlanHistory]):
    """The plans of one network.

    All queries of a network share them, and none may lose the plan of a batch that it has not finished: that batch
    may have to run again, in this process or in the next one, after any number of plans that others asked for. So
    the queries say which batch they are at. As long as one has not said so, no plan is given up.
    """

    def __init__(
        self, store: Store, size: int, now: Callable[[], float] = time.time, queries: Collection[str] = ()
    ) -> None:
        """`size`: how many numbers a plan of this network has."""
        self._size = size
        self._lock = threading.Lock()
        # Of its own: the other is held while files are written, and a batch must not wait for that.
        self._batches = threading.Lock()
        self._unheard = set(queries)
        self._unfinished: dict[str, tuple[int, int]] = {}
        # Before this process has a control file of its own; older versions stored the plans in that.
        saved = store.read(_PLANS) or store.read("network.control.json") or b""
        super().__init__(store, "network", lambda data: PlanHistory.decode(data, size), now)
        self.adopt(PlanHistory.decode(saved, size))

    def begun(self, query: str, batch: int, batch_time: int) -> None:
        """A query is at this batch, and has finished those before it."""
        with self._batches:
            self._unheard.discard(query)
            self._unfinished[query] = (batch, batch_time)

    def finished(self, query: str, batch: int) -> None:
        """A query has finished this batch and those before it, and is at none as far as it says."""
        with self._batches:
            self._unheard.discard(query)
            if self._unfinished.get(query, (batch, 0))[0] <= batch:
                self._unfinished.pop(query, None)

    @property
    def version(self) -> int:
        return self.history.spans[-1].version if self.history.spans else 0

    def keep_all(self) -> None:
        """Keep everything from this moment on, without asking the storage; then have it stored, if it works."""
        version = self.version + 1
        self.open_row(lambda start: PlanSpan(start, start + _LONG, version, 1.0, (None,) * self._size))
        self.save(self.history)

    def save(self, history: PlanHistory) -> None:
        """For the next process: the control file is a person's to change, and is not read again."""
        self._store.write(_PLANS, history.encode())

    def publish(self, numbers: Numbers, share: float, lease: float, *, mirror: bool = True) -> PlanSpan | None:
        """Put a plan in force for batches from now on, for at most `lease` seconds; None if that cannot be."""
        with self._lock:
            with self._batches:
                times = None if self._unheard else [batch_time for _, batch_time in self._unfinished.values()]
            if times is not None:
                self.history = self.history.only(times)
            self.history = PlanHistory(self.history.spans[-_MOST:])
            version = self.version + 1
            return self.put(
                lambda start: PlanSpan(start, start + int(lease * 1000), version, share, numbers),
                also=self.save,
                mirror=mirror,
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
