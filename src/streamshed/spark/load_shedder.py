"""The handle of a load-aware operator: hears what its tasks did, learns costs from it, gives the next order."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
import weakref
from collections import deque
from dataclasses import asdict, dataclass, fields
from typing import Any

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from streamshed.records import Mode, Sample
from streamshed.sketch.hashing import CarterWegman
from streamshed.spark import arguments
from streamshed.spark.control import HistoryFile, Span, Store
from streamshed.spark.cost_control import CostControl, Goal
from streamshed.spark.cost_orders import DRY_RUN, ENFORCE, OFF, Order, OrderHistory
from streamshed.spark.cost_stage import Tally, Told
from streamshed.spark.monitor import QueryWatch

log = logging.getLogger("streamshed")

SEED = 20160504
"""Of the hash functions: the same in every run, so that what was learned can be taken over."""
_MODES = {Mode.OFF: OFF, Mode.DRY_RUN: DRY_RUN, Mode.ENFORCE: ENFORCE}

Parcel = dict[tuple[str, int], dict[int, Tally]]
"""By query and batch, the tallies of its partitions."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What the operator did, all told: arrived = kept + shed + failed. Times in seconds."""

    batches: int = 0
    arrived: int = 0
    kept: int = 0
    """Rows on which the function ran to its end."""
    shed: int = 0
    failed: int = 0
    """Rows on which it raised, or gave something else than a row, or whose key was null."""
    would_shed: int = 0
    """What the check wanted to drop, whether or not it was enforced."""
    ran: int = 0
    queue_sum: float = 0.0
    queue_worst: float = 0.0
    work_sum: float = 0.0
    unseen: int = 0
    """Batches whose tasks' accounts did not come, or not all."""

    @property
    def queue_mean(self) -> float:
        """Mean queuing latency of the rows that ran."""
        return self.queue_sum / self.ran if self.ran else 0.0

    @property
    def cost_mean(self) -> float:
        return self.work_sum / self.ran if self.ran else 0.0

    def plus(self, other: LoadReport) -> LoadReport:
        summed = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return LoadReport(**summed | {"queue_worst": max(self.queue_worst, other.queue_worst)})

    @staticmethod
    def of(tallies: dict[int, Tally], arrived: int) -> LoadReport:
        """One batch, of which Spark itself counted what arrived."""
        told = tallies.values()
        return LoadReport(
            batches=1,
            arrived=sum(t.arrived for t in told),
            kept=sum(t.arrived - t.shed - t.failed for t in told),
            shed=sum(t.shed for t in told),
            failed=sum(t.failed for t in told),
            would_shed=sum(t.would_shed for t in told),
            ran=sum(t.ran for t in told),
            queue_sum=sum(t.waited for t in told),
            queue_worst=max((t.waited_worst for t in told), default=0.0),
            work_sum=sum(t.worked for t in told),
            unseen=int(sum(t.arrived for t in told) != arrived),
        )


@dataclass(frozen=True, slots=True)
class LoadBatch:
    """One batch, as the handle remembers it."""

    query: str
    batch: int
    started: float
    at: float
    version: int
    """The order it ran with."""
    checked: bool
    delay: float
    foreseen: float
    """What the rows that ran should have cost, by the estimates; compare with `report.work_sum`."""
    report: LoadReport


class LoadShedder:
    """The handle of a load-aware operator."""

    def __init__(
        self,
        serial: int,
        name: str,
        named: bool,
        control: HistoryFile[Order, OrderHistory],
        spark: SparkSession,
        goal: Goal,
        mode: Mode,
        rules: CostControl,
    ) -> None:
        self.serial = serial
        self.name = name
        self._named = named
        self._control = control
        self._spark = spark
        self._goal = goal
        self._mode = mode
        self._rules = rules
        self._lock = threading.RLock()
        self._queries: dict[str, QueryWatch] = {}
        self._stores: dict[str, tuple[Store, str]] = {}
        self._totals: dict[str, LoadReport] = {}
        self._done: dict[str, int] = {}
        self._mail: Parcel = {}
        self._learned: dict[tuple[str, int], set[int]] = {}
        self._renew_at = 0.0
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.errors: deque[str] = deque(maxlen=20)
        """The newest rows that were skipped, and why."""
        self.batches: deque[LoadBatch] = deque(maxlen=10_000)
        """The newest batches, oldest first."""

    # What the user sees.

    def report(self) -> LoadReport:
        """Everything since the beginning, also across restarts."""
        with self._lock:
            total = LoadReport()
            for each in self._totals.values():
                total = total.plus(each)
            return total

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: str | Mode) -> None:
        self.configure(mode=mode)

    @property
    def latency(self) -> str:
        return str(self._goal)

    @latency.setter
    def latency(self, latency: str) -> None:
        self.configure(latency=latency)

    def configure(self, *, mode: str | Mode | None = None, latency: str | None = None) -> None:
        """Change settings while the queries run; the next batches see them."""
        wanted = self._mode if mode is None else arguments.check_mode(mode)
        goal = self._goal if latency is None else Goal.parse(latency)
        with self._lock:
            self._mode, self._goal = wanted, goal
            if self._queries:
                self._publish()

    @property
    def order(self) -> Order | None:
        """What the stage is told now."""
        spans = self._control.history.spans
        return spans[-1] if spans else None

    @property
    def costs(self) -> dict[str, Any]:
        """What has been learned: the table in use, and the sketch that is being filled."""
        with self._lock:
            table, sketch = self._rules.table, self._rules.operator.sketch
            return {
                "table": table.number if table else 0,
                "cells": self._rules.hashes.rows * self._rules.hashes.columns,
                "seconds": table.costs.reshape(self._rules.hashes.rows, -1) if table else None,
                "frequencies": table.frequencies.reshape(self._rules.hashes.rows, -1) if table else None,
                "learning_rows": sketch.seen,
                "learning_mean": sketch.mean / 1e9,
            }

    def settle(self, seconds: float = 5.0) -> bool:
        """Wait until every batch of the queries that have ended is accounted for; False if that takes too long."""
        deadline = time.monotonic() + seconds
        while any(not query.active for query in list(self._queries.values())):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"<LoadShedder {self.name!r}: {self.mode.value}, {self.latency}, "
            f"{report.kept:,} of {report.arrived:,} rows kept, mean wait {report.queue_mean:.3f} s>"
        )

    # What the tasks send, on a thread of Spark's: quick, and never raising.

    def receive(self, parcel: Parcel) -> None:
        with self._lock:
            for batch, tallies in parcel.items():
                if batch[0] in self._queries:
                    # A partition that ran again (a lost executor, a second action) replaces its first account.
                    self._mail.setdefault(batch, {}).update(tallies)
        self._wake.set()

    # What the monitor calls.

    def attach(self, query: QueryWatch, position: int) -> None:
        """A query starts; continue where an earlier run of it stopped."""
        with self._lock:
            file = f"{self.name if self._named else f'load-aware-{position}'}.json"
            store = Store(self._spark, f"{query.checkpoint}/streamshed")
            self._queries[query.id] = query
            self._stores[query.id] = (store, file)
            # Of batches that an earlier run did not finish.
            self._mail = {batch: told for batch, told in self._mail.items() if batch[0] != query.id}
            self._learned = {batch: seen for batch, seen in self._learned.items() if batch[0] != query.id}
            self._restore(query.id)
            self._publish()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name=f"streamshed {self.name}", daemon=True)
                self._thread.start()

    def detach(self, query: QueryWatch) -> None:
        with self._lock:
            self._stores.pop(query.id, None)
            self._queries.pop(query.id, None)
        self._wake.set()

    def told_at(self, batch_time: int) -> Told:
        """What the stage of a batch with this timestamp is to be told, if not through its rows."""
        history = self._control.history
        order = history.at(batch_time)
        return Told(batch_time, order, history.table(order.table) if order is not None else None)

    def told(self, batch: int) -> dict[int, Tally]:
        """What the tasks of a batch that still runs have reported so far, by partition."""
        with self._lock:
            return {
                partition: tally
                for (_, number), tallies in self._mail.items()
                if number == batch
                for partition, tally in tallies.items()
            }

    def span_at(self, batch_time: int) -> Span:
        order = self._control.history.at(batch_time)
        return Span(order.start, order.until, 1.0, order.version) if order else Span(0, 0, 1.0, 0)

    def look_after(self) -> float:
        return float("inf")

    def running(self, query: QueryWatch, sample: Sample) -> None:
        """Nothing to learn from a batch that still runs."""

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        """Spark has reported a batch: its tasks' accounts are all here."""
        with self._lock:
            batch = (query.id, sample.batch)
            if sample.batch <= self._done.get(query.id, -1):
                return
            tallies = self._mail.pop(batch, {})
            self._learn(batch, tallies)
            self._learned.pop(batch, None)
            self._mail = {b: told for b, told in self._mail.items() if b[0] != query.id or b[1] > sample.batch}
            if tallies:
                self._rules.queues = len(tallies)
            self._done[query.id] = sample.batch
            report = LoadReport.of(tallies, sample.arrived)
            self._totals[query.id] = self._totals.get(query.id, LoadReport()).plus(report)
            delays = [t.delay for t in tallies.values() if t.delay is not None]
            self.errors.extend(itertools.chain.from_iterable(t.errors for t in tallies.values()))
            self.batches.append(
                LoadBatch(
                    query.id,
                    sample.batch,
                    sample.started,
                    sample.at,
                    max((t.version for t in tallies.values()), default=0),
                    any(t.checked for t in tallies.values()),
                    sum(delays) / len(delays) if delays else 0.0,
                    sum(t.foreseen for t in tallies.values()),
                    report,
                )
            )
            self._save(query.id)

    def fail_open(self, problem: BaseException) -> None:
        """Something of ours broke: keep every row, by letting the order run out at once."""
        with self._lock:
            order = self.order
            if order is not None and order.mode != OFF:
                log.warning("%s: rows are all kept from now on, because of: %s", self.name, problem)
                self._mode = Mode.OFF
                self._publish()

    # On a thread of our own: the next batch is planned some 0.1 s after the last task has ended, and Spark's
    # report comes later than that.

    def _work(self) -> None:
        while self._queries:
            self._wake.wait(1.0)
            self._wake.clear()
            try:
                with self._lock:
                    for batch, tallies in list(self._mail.items()):
                        if len(tallies) >= self._rules.queues:
                            self._learn(batch, tallies)
                    if self._queries and time.monotonic() >= self._renew_at:
                        self._publish()
            except Exception as error:
                log.warning("%s: what the tasks reported could not be used (%s)", self.name, error, exc_info=error)
                self.fail_open(error)

    def _learn(self, batch: tuple[str, int], tallies: dict[int, Tally]) -> None:
        seen = self._learned.setdefault(batch, set())
        fresh = {partition: tally for partition, tally in tallies.items() if partition not in seen}
        if not fresh:
            return
        seen.update(fresh)
        before = self._rules.table
        self._rules.learn(fresh, self._goal.window)
        if self._rules.table is not None and self._rules.table is not before:
            self._control.history = self._control.history.with_table(self._rules.table)
        self._publish()

    def _publish(self) -> None:
        lease = max(60.0, 30.0 * self._goal.target)
        self._renew_at = time.monotonic() + lease / 2
        version = self._control.history.version + 1
        mode = _MODES[self._mode]
        self._control.put(
            lambda start: self._rules.order(start, lease, version, mode, self._goal), also=self._save_all
        )

    def _restore(self, query_id: str) -> None:
        store, file = self._stores[query_id]
        data = store.read(file)
        if data is None:
            return
        try:
            state = json.loads(data)
            history = OrderHistory.from_dict(self._control.history.cells, state)
            total = LoadReport(**state["total"])
            done, queues = int(state["done"]), int(state["queues"])
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s is broken and is left aside; costs are learned anew (%s)", store.path(file), error)
            return
        self._control.adopt(history)
        self._totals[query_id], self._done[query_id] = total, done
        if self._rules.table is None and history.spans:
            tables = {table.number: table for table in history.tables}
            newest = history.spans[-1]
            self._rules.resume(newest, tables.get(newest.table), queues)

    def _save_all(self, history: OrderHistory) -> None:
        for query_id in self._stores:
            self._save(query_id, history)

    def _save(self, query_id: str, history: OrderHistory | None = None) -> None:
        """Keep orders, costs and totals beside the query's checkpoint, for its next run."""
        if query_id not in self._stores:
            return
        store, file = self._stores[query_id]
        state = {
            **(history or self._control.history).as_dict(),
            "total": asdict(self._totals.get(query_id, LoadReport())),
            "done": self._done.get(query_id, -1),
            "queues": self._rules.queues,
        }
        store.write(file, json.dumps(state, separators=(",", ":")).encode())


_RECEIVERS: weakref.WeakValueDictionary[int, LoadShedder] = weakref.WeakValueDictionary()
"""Handles by serial number; in the driver only."""


def mailbox(spark: SparkSession, shedder: LoadShedder) -> Accumulator[Parcel]:
    """Where tasks put their accounts for a handle."""
    _RECEIVERS[shedder.serial] = shedder
    return spark.sparkContext.accumulator({}, _Mail(shedder.serial))


class _Mail(AccumulatorParam[Parcel]):
    """An accumulator as a mailbox: on the driver, what comes in is handed over and not kept."""

    def __init__(self, serial: int) -> None:
        self.serial = serial

    def zero(self, value: Parcel) -> Parcel:
        return {}

    def addInPlace(self, value1: Parcel, value2: Parcel) -> Parcel:  # noqa: N802
        receiver = _RECEIVERS.get(self.serial)
        if receiver is not None:
            receiver.receive(value2)
            return value1
        for batch, tallies in value2.items():
            value1.setdefault(batch, {}).update(tallies)
        return value1


def order_file(store: Store, name: str, hashes: CarterWegman) -> HistoryFile[Order, OrderHistory]:
    """The orders and cost tables of an operator."""
    cells = hashes.rows * hashes.columns
    return HistoryFile(store, name, lambda data: OrderHistory.decode(cells, data))
