"""The load-aware operator's work in a Python worker: decide, run the user's function, time it.

One stage for all of it, over Arrow batches. What it has seen goes back to the driver through an accumulator when
the task ends; Spark drops the accounts of tasks that fail, so a retry counts once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamshed.errors import StreamshedError
from streamshed.las.admit import FORESEEN, FREE, admit, empty_queue
from streamshed.quality.latency_histogram import LatencyHistogram
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import CarterWegman, Digests
from streamshed.spark.load_aware.cost_orders import (
    ARRIVED,
    BROKEN,
    COST,
    DIGEST,
    DRY_RUN,
    ENFORCE,
    ORDER,
    CostTable,
    Order,
)
from streamshed.spark.worker import settle

KEPT_ERRORS = 5
TOO_OLD = 86_400.0
"""Seconds before its batch from which on an arrival is not believed. Nobody who bounds waits lets rows wait for a
day: it is a clock that was never set (1970), or a stream that is read again from its beginning."""
CLOCKS_DIFFER = 5.0
"""Seconds by which an arrival may be ahead without being called misdated: clocks of two machines differ."""
Seconds = NDArray[np.float64]


class BadRow(StreamshedError):
    """The user's function failed on a row, or gave something that is not a row of the schema."""


@dataclass(slots=True)
class Tally:
    """What one task did; times in seconds unless said otherwise."""

    frequencies: NDArray[np.int64]
    durations: NDArray[np.int64]
    """Nanoseconds."""
    arrived: int = 0
    shed: int = 0
    cut: int = 0
    """Of those shed: rows whose turn came when the batch's time was used up."""
    would_shed: int = 0
    """What the check wanted to drop; under dry-run it ran all the same."""
    failed: int = 0
    misdated: int = 0
    """Rows whose arrival time cannot be true; they count as arrived with their batch."""
    ran: int = 0
    """Rows on which the function was called."""
    checked: bool = False
    """Whether there was an order, and costs to check by."""
    planned: float = 0.0
    """The waits of the rows let in, as foreseen."""
    waited: float = 0.0
    waited_worst: float = 0.0
    queuing: LatencyHistogram = field(default_factory=LatencyHistogram)
    """The waits of the rows that ran: from their arrival until their turn."""
    latencies: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Of the same rows, from their arrival until the function was through with them."""
    worked: float = 0.0
    foreseen: float = 0.0
    """What the rows that ran should have cost, by the estimates."""
    delay: float | None = None
    """From the batch's timestamp to the start of the first row; None without an order or without rows."""
    free: float = 0.0
    """When the queue will be empty, as the shedder thinks; seconds since the epoch."""
    version: int = 0
    errors: list[str] = field(default_factory=list)

    @staticmethod
    def empty(hashes: CarterWegman) -> Tally:
        shape = (hashes.rows, hashes.columns)
        return Tally(np.zeros(shape, np.int64), np.zeros(shape, np.int64))


@dataclass(frozen=True, slots=True)
class Told:
    """What a stage is told when it is made anew for every batch, and not through the rows."""

    batch_time: int
    """Milliseconds."""
    order: Order | None
    table: CostTable | None


def arrow_schema(schema: StructType, spark: SparkSession) -> pa.Schema:
    return to_arrow_schema(schema, timezone=spark.conf.get("spark.sql.session.timeZone"))


class CostStage:
    """The function for `mapInArrow`."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        columns: Sequence[str],
        schema: pa.Schema,
        hashes: CarterWegman,
        caution: float,
        by: str,
        check: str,
        on_error: str,
        synchronised: bool,
        report: Any,
        told: Told | None = None,
        carried: Sequence[str] | None = None,
        budget: float | None = None,
        deadline: float | None = None,
    ) -> None:
        """`budget`: seconds that a batch may take. `deadline`: the moment instead, where somebody has set it."""
        self.budget = budget
        self.deadline = deadline
        self.function = function
        self.columns = list(columns)
        self.carried = list(columns if carried is None else carried)
        """What the columns are called in the batches that come in."""
        self.schema = schema
        self.hashes = hashes
        self.caution = caution
        """Factor on the estimates, 1 + ε."""
        self.by = by
        self.check = check
        self.on_error = on_error
        self.synchronised = synchronised
        self.report = report
        self.told = told

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        tally = Tally.empty(self.hashes)
        try:
            task = _Task(self, tally)
            for batch in batches:
                if batch.num_rows:
                    yield from task.run(batch)
        finally:
            context = TaskContext.get()
            if context is not None:
                # Of a task that failed, Spark drops this.
                query = context.getLocalProperty("sql.streaming.queryId") or ""
                number = int(context.getLocalProperty("streaming.sql.batchId") or -1)
                self.report.add({(query, number): {context.partitionId(): tally}})


class _Task:
    """One partition of one micro-batch: one queue."""

    def __init__(self, stage: CostStage, tally: Tally) -> None:
        self.stage = stage
        self.tally = tally
        self.sketch = CostSketch(stage.hashes, tally.frequencies, tally.durations)
        self.order: Order | None = None
        self.queue: Seconds = empty_queue()
        # One clock for starts and durations: durations must not jump when the wall clock is set.
        self.epoch = time.time() - time.perf_counter()
        self.batch_time = 0.0
        self.stage_begins = 0.0
        self.begun = False
        self.deadline = math.inf
        self._late = 0
        self._waits: list[Seconds] = []
        self._latencies: list[Seconds] = []

    def run(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        tally = self.tally
        if not self.begun:
            self._begin(batch)
        tally.arrived += batch.num_rows
        rows = batch.select(self.stage.carried).rename_columns(self.stage.columns)
        digests, known = _numbers(batch, DIGEST)
        arrivals = self._arrivals(batch)
        costs = self._costs(batch, digests)
        if not known.all():
            for at in np.flatnonzero(~known):
                self._complain(rows.slice(int(at), 1), "its key is null", None)
            rows = rows.filter(pa.array(known))
            digests, arrivals, costs = digests[known], arrivals[known], costs[known]
        chosen = np.ones(len(digests), np.bool_)
        if self.order is not None and self.stage.check == "ahead" and self._can_judge(self.order, costs):
            costs = costs * self.stage.caution
            chosen = self._admit(self.order, arrivals, np.nan_to_num(costs))
            tally.planned = float(self.queue[FORESEEN])
            tally.free = float(self.queue[FREE])
            self._judged(int((~chosen).sum()))
            if self.order.mode == DRY_RUN:
                chosen[:] = True
        if not chosen.all():
            picked = np.flatnonzero(chosen)
            rows = rows.take(pa.array(picked))
            digests, arrivals, costs = digests[picked], arrivals[picked], costs[picked]
        if rows.num_rows == 0:
            return
        if self.stage.by == "key":
            yield from self._key_by_key(rows, digests, arrivals)
        else:
            yield from self._row_by_row(rows, digests, arrivals)
        foreseen = float(costs.sum())
        tally.foreseen += 0.0 if np.isnan(foreseen) else foreseen
        self._sort_latencies()

    def _sort_latencies(self) -> None:
        """Once for all rows of an Arrow batch: by key they are accounted for in many small parts."""
        if self._waits:
            tally = self.tally
            tally.queuing = tally.queuing.plus(LatencyHistogram.of(np.concatenate(self._waits)))
            tally.latencies = tally.latencies.plus(LatencyHistogram.of(np.concatenate(self._latencies)))
            self._waits, self._latencies = [], []

    def _begin(self, batch: pa.RecordBatch) -> None:
        """The stage has really begun; find out what the driver wants."""
        self.begun = True
        now = self.epoch + time.perf_counter()
        order = self._order(batch)
        # Without the batch's own time there is no order either, and nothing is decided by this clock.
        self.batch_time = self.stage_begins = self.batch_time or now
        if order is None:
            return
        self.tally.delay = now - self.batch_time
        self.tally.version = order.version
        # By the order and not by this worker's clock: when the task runs again, the same rows are let in.
        self.stage_begins = begin = self.batch_time + order.delay
        # An order that nobody has renewed is over, and an unknown mode is none.
        if self.batch_time * 1000.0 >= order.until or order.mode not in (DRY_RUN, ENFORCE):
            return
        self.order = order
        if order.mode == ENFORCE:
            self.deadline = self._deadline(now)
        if not self.stage.synchronised:
            partition = TaskContext.get().partitionId()  # type: ignore[union-attr]
            begin = order.free[partition] if partition < len(order.free) else 0.0
        self.queue = empty_queue(begin, waited=order.waited, rows=order.rows)

    def _deadline(self, now: float) -> float:
        """Until when rows have their turn.

        Counted from the batch's own time, unless half of the budget is gone by now: then it is a batch that runs
        again, and its own time was used up long ago.
        """
        budget = self.stage.budget
        if budget is None:
            return math.inf if self.stage.deadline is None else self.stage.deadline
        on_time = 0.0 <= now - self.batch_time <= budget / 2.0
        return (self.batch_time if on_time else now) + budget

    def _too_late(self, rows: int = 1) -> bool:
        """Whether the turn of these rows comes too late; if so, they are counted. The floor's share is spared."""
        if self.deadline == math.inf or self.epoch + time.perf_counter() < self.deadline:
            return False
        floor = 0.0 if self.order is None else self.order.floor
        before, self._late = self._late, self._late + rows
        if int(self._late * floor) > int(before * floor):
            return False
        self.tally.cut += rows
        self._judged(rows)
        return True

    def _order(self, batch: pa.RecordBatch) -> Order | None:
        """The order in force at the batch's own time, which is noted."""
        told = self.stage.told
        if told is not None:
            self.batch_time = told.batch_time / 1000.0
            return told.order
        stamped = batch.column(batch.schema.get_field_index(ORDER))[0].as_py()
        self.batch_time = stamped[0] / 1000.0
        try:
            order = Order.from_row(stamped[1:])
            return order if all(map(math.isfinite, order.as_row())) else None
        except BROKEN:
            return None  # whatever stands in the control file, the rows go on

    def _costs(self, batch: pa.RecordBatch, digests: Digests) -> Seconds:
        """What the rows will cost, by the table in force; NaN if nothing is known yet."""
        told = self.stage.told
        if told is None:
            return _costs(batch)
        if told.table is None:
            return np.full(len(digests), np.nan)
        return told.table.estimates(self.stage.hashes, digests)

    def _arrivals(self, batch: pa.RecordBatch) -> Seconds:
        """Seconds since the epoch, as far as they can be true.

        A row without an arrival time came with its batch, and so did one that claims to be very old. None comes
        from the future: one arrival an hour ahead would hold up its queue for an hour.
        """
        micros = batch.column(batch.schema.get_field_index(ARRIVED))
        arrivals: Seconds = micros.fill_null(int(self.batch_time * 1e6)).to_numpy(zero_copy_only=False) / 1e6
        old = arrivals < self.batch_time - TOO_OLD
        ahead = arrivals > self.stage_begins + CLOCKS_DIFFER
        self.tally.misdated += int(old.sum() + ahead.sum())
        arrivals[old] = self.batch_time
        return np.minimum(arrivals, self.stage_begins)

    def _row_by_row(self, rows: pa.RecordBatch, digests: Digests, arrivals: Seconds) -> Iterator[pa.RecordBatch]:
        function, clock = self.stage.function, time.perf_counter_ns
        by_clock = self.order if self.stage.check == "clock" else None
        results: list[Any] = []
        ran: list[int] = []
        starts: list[int] = []
        for at, row in enumerate(rows.to_pylist()):
            if self._too_late():
                continue
            if by_clock is not None and not self._fits_now(by_clock, float(arrivals[at])):
                continue
            starts.append(clock())
            ran.append(at)
            try:
                results.append(function(row))
            except Exception as error:
                self._complain(rows.slice(at, 1), "the function failed on it", error)
                results.append(None)
        starts.append(clock())
        # From start to start: what stands between two calls is service too, for those who wait.
        self._account(digests[ran], arrivals[ran], np.array(starts, np.int64))
        yield from self._output(rows, ran, results)

    def _fits_now(self, order: Order, arrival: float) -> bool:
        """The check at the row's own turn, by the clock."""
        self.queue[FREE] = self.epoch + time.perf_counter()
        fits = self._admit(order, np.array([arrival]), np.zeros(1))
        self._judged(int(not fits[0]))
        return bool(fits[0]) or order.mode == DRY_RUN

    @staticmethod
    def _can_judge(order: Order, costs: Seconds) -> bool:
        """Whether rows can be judged by this order: by known costs, or by a pinned share."""
        return len(costs) > 0 and (order.is_pinned or not np.isnan(costs[0]))

    def _admit(self, order: Order, arrivals: Seconds, costs: Seconds) -> NDArray[np.bool_]:
        return admit(arrivals, costs, self.queue, order.kind, order.target, order.window, order.floor)

    def _judged(self, dropped: int) -> None:
        self.tally.checked = True
        self.tally.would_shed += dropped
        if self.order is not None and self.order.mode == ENFORCE:
            self.tally.shed += dropped

    def _key_by_key(self, rows: pa.RecordBatch, digests: Digests, arrivals: Seconds) -> Iterator[pa.RecordBatch]:
        """One call for all rows of a key, whose time they share evenly; keys in the order of their first row."""
        _, first, group = np.unique(digests, return_index=True, return_inverse=True)
        for number in np.argsort(first):
            members = np.flatnonzero(group == number)
            if self._too_late(len(members)):
                continue
            part = rows.take(pa.array(members))
            start = time.perf_counter_ns()
            try:
                result = self.stage.function(part)
            except Exception as error:
                self._complain(part, "the function failed on it", error)
                result = None
            took = time.perf_counter_ns() - start
            marks = start + took * np.arange(len(members) + 1) // len(members)
            self._account(digests[members], arrivals[members], marks.astype(np.int64))
            if result is not None:
                yield self._checked(part, result)

    def _account(self, digests: Digests, arrivals: Seconds, marks: NDArray[np.int64]) -> None:
        """Enter rows that ran one after the other, the n-th from mark n to mark n + 1."""
        if len(digests) == 0:
            return
        tally = self.tally
        durations = np.diff(marks)
        self.sketch.add_many(digests, durations)
        waits = np.maximum(0.0, self.epoch + marks[:-1] / 1e9 - arrivals)
        tally.ran += len(digests)
        tally.worked += float(durations.sum()) / 1e9
        tally.waited += float(waits.sum())
        tally.waited_worst = max(tally.waited_worst, float(waits.max()))
        self._waits.append(waits)
        self._latencies.append(waits + durations / 1e9)

    def _output(self, rows: pa.RecordBatch, ran: list[int], results: list[Any]) -> Iterator[pa.RecordBatch]:
        """The results as a batch of the schema; a function that gives None gives no row."""
        given = [(at, result) for at, result in zip(ran, results, strict=True) if result is not None]
        if not given:
            return
        try:
            yield _as_batch([result for _, result in given], self.stage.schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError, OverflowError):
            # One of them does not fit: find out which.
            for at, result in given:
                try:
                    fitting = _as_batch([result], self.stage.schema)
                except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError, OverflowError) as error:
                    what = f"the function gave {result!r:.200}, which is no row of {_ddl(self.stage.schema)}"
                    self._complain(rows.slice(at, 1), what, error)
                else:
                    yield fitting

    def _checked(self, rows: pa.RecordBatch, result: Any) -> pa.RecordBatch:
        if isinstance(result, pa.RecordBatch) and result.schema.names == self.stage.schema.names:
            try:
                return result.cast(self.stage.schema)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                self._complain(rows, f"its result does not fit {_ddl(self.stage.schema)}", error)
        else:
            kind = _ddl(result.schema) if isinstance(result, pa.RecordBatch) else type(result).__name__
            self._complain(
                rows, f"the function gave {kind}, not a record batch of {_ddl(self.stage.schema)}", None
            )
        return pa.RecordBatch.from_pylist([], self.stage.schema)

    def _complain(self, rows: pa.RecordBatch, what: str, error: Exception | None) -> None:
        """A row cannot be processed: the job's own policy decides."""
        cause = "" if error is None else f" ({type(error).__name__}: {error})"
        shown = f"{rows.slice(0, 1).to_pylist()[0]!r:.300}"
        if self.stage.on_error == "fail":
            raise BadRow(
                f"load_aware: a row cannot be processed: {what}{cause}",
                got=shown,
                hint='mend the function or the data, or give on_error="skip" to count and leave out such rows',
            ) from error
        self.tally.failed += rows.num_rows
        if len(self.tally.errors) < KEPT_ERRORS:
            self.tally.errors.append(f"{what}{cause}: {shown}")


def _as_batch(results: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Rows given as dicts, or as tuples, lists or Spark rows in the schema's order."""
    names = schema.names
    columns: list[list[Any]] = [[] for _ in names]
    for result in results:
        if isinstance(result, dict):
            if result.keys() != set(names):
                raise ValueError(f"fields {', '.join(map(str, result))}")
            values: Sequence[Any] = [result[name] for name in names]
        else:
            values = result if isinstance(result, (tuple, list)) else (result,)
            if len(values) != len(names):
                raise ValueError(f"{len(values)} fields")
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _numbers(batch: pa.RecordBatch, name: str) -> tuple[Digests, NDArray[np.bool_]]:
    column = batch.column(batch.schema.get_field_index(name))
    known = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), known


def _costs(batch: pa.RecordBatch) -> Seconds:
    """Estimated costs; a missing one is the mean of the others, and all are NaN if none is known."""
    column = batch.column(batch.schema.get_field_index(COST))
    costs = np.array(column.to_numpy(zero_copy_only=False), np.float64)
    unknown = ~(costs >= 0.0)
    if unknown.any():
        costs[unknown] = costs[~unknown].mean() if not unknown.all() else np.nan
    return costs


def _ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in schema)
