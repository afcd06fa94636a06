"""The handle of a load-aware operator: hears what its tasks did, learns costs from it, gives the next order."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pyspark.sql import SparkSession

from streamshed.quality import Ledger, Report
from streamshed.quality.saved_report import BROKEN, as_saved, from_saved
from streamshed.records import Mode, Sample
from streamshed.renamed import renamed, warn
from streamshed.sketch.hashing import CarterWegman, digest
from streamshed.spark import arguments
from streamshed.spark.handle import Ending, Handle, setting
from streamshed.spark.journal import Journal
from streamshed.spark.load_aware.cost_control import CostControl, Goal
from streamshed.spark.load_aware.cost_orders import DRY_RUN, ENFORCE, OFF, Order, OrderHistory
from streamshed.spark.load_aware.cost_stage import Tally, Told
from streamshed.spark.load_aware.load_report import LoadBatch, batch_report
from streamshed.spark.load_aware.mail import BatchId, Inbox, Parcel, close_mailbox
from streamshed.spark.orders.history import Span
from streamshed.spark.orders.order_file import HistoryFile
from streamshed.spark.orders.store import Store
from streamshed.spark.watch.query_watch import QueryWatch
from streamshed.spark.watch.session_monitor import SessionMonitor

log = logging.getLogger("streamshed")

SEED = 20160504
"""Of the hash functions: the same in every run, so that what was learned can be taken over."""
PAUSE = 30.0
"""Seconds without orders after something of ours broke."""
RETRY = 5.0
"""Seconds until an order that could not be stored is tried again."""
QUIET = 30.0
"""Seconds without a row shed after which shedding is said to have ended."""
_LEASE = 60.0  # seconds that an order holds at least, if nobody renews it
_LOOK_AFTER = 60.0  # seconds; a history full of renewals takes longer
_LOOK_AFTER_SEVERAL = 1.0  # seconds; one full of other queries' orders as well
_MOVED = 0.25  # a mean cost that moved by less is not worth a line in the log
_MODES = {Mode.OFF: OFF, Mode.DRY_RUN: DRY_RUN, Mode.ENFORCE: ENFORCE}


@dataclass(slots=True)
class _Reader:
    """A running query that has the operator in it."""

    query: QueryWatch
    store: Store
    name: str
    """Of its files beside the checkpoint."""
    journal: Journal
    saved: frozenset[int] = frozenset()
    """Orders that an earlier run left: its unfinished batch may be one of theirs."""
    used: dict[int, set[int]] = field(default_factory=dict)
    """Orders of batches that still run, by the batch's number."""
    last: LoadBatch | None = None
    since: Report = field(default_factory=Report)
    """What has happened since the last line in the journal."""
    shed_at: float | None = None
    """When the last batch that lost rows ended; None while nothing is shed."""

    @property
    def held(self) -> frozenset[int]:
        return self.saved.union(*self.used.values())


class LoadShedder(Handle):
    """The handle of a load-aware operator. Close it, or use it in a `with`, when its queries are over."""

    former: ClassVar[tuple[str, ...]] = ("latency",)
    serial: int
    errors: deque[str]
    """The newest rows that were skipped, and why."""
    batches: deque[LoadBatch]
    """The newest batches, oldest first."""

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
        floor: float = 0.0,
    ) -> None:
        # Its lock is held while something is stored. What Spark's own threads call (`receive`, `told`) must not
        # need it.
        super().__init__(name)
        self.serial = serial
        self._named = named
        self._control = control
        self._spark = spark
        self._goal = goal
        self._mode = mode
        self._rules = rules
        self._floor = floor
        self._pinned: float | None = None
        self._inbox = Inbox()
        self._monitor: SessionMonitor | None = None
        self._readers: dict[str, _Reader] = {}
        self._ledger = Ledger()
        self._learned: dict[BatchId, set[int]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._renew_at = 0.0
        self._renewal = False
        self._heard = 0.0
        self._broken = False
        self._opened = False
        self._paused_until = 0.0
        self._foreign = False
        self._mean_cost = 0.0
        self.errors = deque(maxlen=20)
        self.batches = deque(maxlen=10_000)

    # What the user sees.

    def report(self) -> Report:
        """Everything since the beginning, also across restarts."""
        with self._lock:
            return self._ledger.report()

    @setting
    def mode(self) -> Mode:
        return self._mode

    @setting
    def target(self) -> str:
        """The queuing latency aimed at, as it was written."""
        return str(self._goal)

    @property
    def latency(self) -> str:
        """The name of `target` before."""
        warn("LoadShedder.latency", "target")
        return self.target

    @latency.setter
    def latency(self, latency: str) -> None:
        warn("LoadShedder.latency", "target")
        self.target = latency

    @setting
    def floor(self) -> float:
        """Share of the rows that is let in whatever the target says."""
        return self._floor

    @renamed(latency="target")
    def configure(
        self, *, mode: str | Mode | None = None, target: str | None = None, floor: float | None = None
    ) -> None:
        """Change settings while the queries run; the next batches see them.

        Who sets something here takes the control file back from whoever changed or removed it.
        """
        wanted = self._mode if mode is None else arguments.check_mode(mode)
        goal = self._goal if target is None else Goal.parse(target)
        share = self._floor if floor is None else arguments.check_floor(floor)
        with self._lock:
            changes = []
            if wanted is not self._mode:
                changes.append(f"mode {self._mode.value} → {wanted.value}")
            if goal != self._goal:
                changes.append(f"target {self._goal} → {goal}")
            if share != self._floor:
                changes.append(f"floor {self._floor:g} → {share:g}")
            self._mode, self._goal, self._floor = wanted, goal, share
            self._foreign = False
            if self._readers:
                self._publish(follow=False)
            if changes:
                self._tell(f"{', '.join(changes)}, set by hand")

    def pin(self, keep: float | None) -> None:
        """Let in this share of the rows by hand, whatever they cost; None gives the decision back.

        Rows are counted for that, not drawn: of each queue's rows in a batch the share, rounded up. The mode still
        rules: in "off" and "dry-run" nothing is dropped.
        """
        share = None if keep is None else arguments.check_floor(keep, "keep")
        self._check_open()
        with self._lock:
            self._pinned = share
            self._foreign = False
            if self._readers:
                self._publish(follow=False)
            self._tell("no longer pinned" if share is None else f"pinned to {share:.3g} by hand")

    @property
    def control_path(self) -> str:
        """The file that says what is in force. Delete it, and every row is kept."""
        return self._control.path

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

    def cost_of(self, *key: object) -> float | None:
        """Seconds that a row of this key takes, as far as is known; None before anything is.

        The key is given as Spark holds it: a Python int is a BIGINT, `numpy.int32(7)` an INT.
        """
        with self._lock:
            table = self._rules.table
        if table is None:
            return None
        return float(table.estimates(self._rules.hashes, np.array([digest(*key)], np.int64))[0])

    def _watches(self) -> list[Ending]:
        return [reader.query for reader in list(self._readers.values())]

    def close(self) -> None:
        """Let go of thread, listeners and mailbox. A query that still runs keeps all its rows from then on."""
        self._open_row()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            monitor, thread = self._monitor, self._thread
            for reader in list(self._readers.values()):
                self._leave(reader)
            # The JVM may be gone, and the rows with it.
            with contextlib.suppress(Exception):
                self._control.close()
        close_mailbox(self)
        if monitor is not None:
            monitor.remove(self)
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(RETRY)

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"<LoadShedder {self.name!r}: {self.mode.value}, {self.target}, "
            f"{report.kept:,} of {report.arrived:,} rows kept, mean wait {report.queue_mean:.3f} s>"
        )

    # What Spark's threads call: quick, never raising, and never waiting for storage.

    def receive(self, parcel: Parcel) -> None:
        """Accounts of tasks that have ended."""
        for batch, tallies in parcel.items():
            query, number = batch
            if query in self._readers and number > self._ledger.last_batch(query):
                self._inbox.put(batch, tallies)
        self._wake.set()

    def told_at(self, batch_time: int) -> Told:
        """What the stage of a batch with this timestamp is to be told, if not through its rows."""
        history = self._control.history
        order = history.at(batch_time)
        return Told(batch_time, order, history.table(order.table) if order is not None else None)

    def told(self, batch: int) -> dict[int, Tally]:
        """What the tasks of a batch that still runs have reported so far, by partition."""
        return {
            partition: tally
            for (_, number), tallies in self._inbox.look().items()
            if number == batch
            for partition, tally in tallies.items()
        }

    def fail_open(self, problem: BaseException) -> None:
        """Something of ours broke: keep every row for a while, and go on learning.

        The row is opened first and without the lock: what broke may be the storage that somebody waits for.
        """
        first = not self._broken
        self._broken = self._opened = True
        self._paused_until = time.monotonic() + PAUSE
        self._renew_at = 0.0
        self._open_row()
        if first and self._readers:
            log.warning("%s: all rows are kept for the next %g s, because of: %s", self.name, PAUSE, problem)
        self._wake.set()

    # What the monitor calls.

    def watched_by(self, monitor: SessionMonitor) -> None:
        self._monitor = monitor
        monitor.add(self)

    def attach(self, query: QueryWatch, position: int) -> None:
        """A query starts; continue where an earlier run of it stopped."""
        name = self.name if self._named else f"load-aware-{position}"
        store = Store(self._spark, f"{query.checkpoint}/streamshed")
        with self._lock:
            if self._closed:
                return
            self._heard = time.monotonic()
            self._readers[query.id] = _Reader(query, store, name, Journal(store, name))
            self._ledger.open(query.id, query.name)
            # Of batches that an earlier run did not finish.
            self._inbox.forget(query.id)
            self._learned = {batch: seen for batch, seen in self._learned.items() if batch[0] != query.id}
            self._follow()
            self._guarded("what an earlier run saved cannot be used", lambda: self._restore(query.id))
            self._rules.numbered = max(self._rules.numbered, self._control.history.newest_table)
            # Before the first batch: should it run again, it must find what was in force.
            self._guarded("orders cannot be saved beside the checkpoint", lambda: self._save(query.id))
            self._publish()
            # A share that is pinned holds from the first batch on.
            self._control.await_start()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"streamshed {self.name}", daemon=True)
                self._thread.start()

    def detach(self, query: QueryWatch) -> None:
        with self._lock:
            reader = self._readers.get(query.id)
            # The news that a run has ended may come after the next one has begun.
            if reader is not None and reader.query is query:
                self._leave(reader)
        self._wake.set()

    def span_at(self, batch_time: int) -> Span:
        order = self._control.history.at(batch_time)
        return Span(order.start, order.until, 1.0, order.version) if order else Span(0, 0, 1.0, 0)

    def look_after(self) -> float:
        return _LOOK_AFTER_SEVERAL if len(self._readers) > 1 else _LOOK_AFTER

    def running(self, query: QueryWatch, sample: Sample) -> None:
        """Nothing to learn from a batch that still runs, but its order must be there for as long as it does."""
        if not sample.next_started:
            return  # nothing runs
        with self._lock:
            reader = self._readers.get(query.id)
            order = self._control.history.at(round(sample.started * 1000.0))
            if reader is not None and order is not None:
                reader.used.setdefault(sample.batch, set()).add(order.start)
                self._hold()

    def renew(self, now: float) -> None:
        """Called every second or so: an order is renewed when half its time is over."""
        self._heard = time.monotonic()
        if now >= self._renew_at:
            self._renewal = True
            self._wake.set()

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        """Spark has reported a batch: its tasks' accounts are all here."""
        with self._lock:
            self._heard = time.monotonic()
            reader = self._readers.get(query.id)
            batch = (query.id, sample.batch)
            if reader is None or sample.batch <= self._ledger.last_batch(query.id):
                return
            tallies = self._inbox.take(batch)
            self._learn(batch, tallies)
            self._learned = {b: s for b, s in self._learned.items() if b[0] != query.id or b[1] > sample.batch}
            if any(tally.arrived for tally in tallies.values()):
                # A batch without rows says nothing about how many queues there are.
                self._rules.queues = len(tallies)
            reader.used = {number: orders for number, orders in reader.used.items() if number > sample.batch}
            if reader.query is query:
                reader.saved = frozenset()
            self._hold()
            report = batch_report(tallies, sample.arrived, self._goal)
            self._ledger.enter(query.id, sample.batch, report)
            reader.last = LoadBatch.of(query.id, sample.batch, sample.started, sample.at, tallies, report)
            self.batches.append(reader.last)
            self.errors.extend(itertools.chain.from_iterable(tally.errors for tally in tallies.values()))
            self._follow()
            self._guarded("counts cannot be saved beside the checkpoint", lambda: self._save(query.id))
            self._tell_of(reader, reader.last)

    # On a thread of our own: the next batch is planned some 0.1 s after the last task has ended, and Spark's
    # report comes later than that.

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                if self._closed or not self._readers:
                    self._thread = None
                    return
                try:
                    self._step()
                except Exception as error:
                    self._grumble("what the tasks reported could not be used", error)
                    self.fail_open(error)

    def _step(self) -> None:
        if self._opened:
            self._opened = False
            self._end_orders()
        for batch, tallies in self._inbox.look().items():
            if len(tallies) >= self._rules.queues:
                self._learn(batch, tallies)
        if self._renewal:
            self._renewal = False
            self._publish()

    def _learn(self, batch: BatchId, tallies: dict[int, Tally]) -> None:
        seen = self._learned.setdefault(batch, set())
        fresh = {partition: tally for partition, tally in tallies.items() if partition not in seen}
        if not fresh:
            return
        seen.update(fresh)
        versions = {tally.version for tally in fresh.values()}
        if batch[0] in self._readers:
            orders = {order.start for order in self._control.history.spans if order.version in versions}
            self._readers[batch[0]].used.setdefault(batch[1], set()).update(orders)
            self._hold()
        before = self._rules.table
        self._rules.learn(fresh, self._goal.window, batch)
        if self._rules.table is not before and self._rules.stable:
            self._tell_costs()
        self._publish()

    def _publish(self, *, follow: bool = True) -> None:
        """Give an order for the batches from now on, if nothing speaks against it."""
        if follow:
            self._follow()
        lease = max(_LEASE, 30.0 * self._goal.target)
        # A monitor that says nothing for so long is dead. What was shed would not be counted any more.
        silent = time.monotonic() - self._heard > lease
        if self._foreign or self._closed or silent or time.monotonic() < self._paused_until:
            return
        self._renew_at = time.time() + RETRY
        self._control.history = self._with_table(self._control.history)
        version = self._control.history.version + 1
        mode = _MODES[self._mode]
        if self._guarded(
            "an order cannot be stored; the one before holds until it runs out, and rows are all kept then",
            lambda: (
                self._control.put(
                    lambda start: self._order(start, lease, version, mode),
                    also=self._save_all,
                )
                is not None
            ),
        ):
            if self._opened:
                # Something broke while the order was being stored, and now it is shown.
                self._open_row()
                return
            self._renew_at = time.time() + lease / 2
            if self._broken:
                self._broken = False
                self._tell("orders are given again")

    def _order(self, start: int, lease: float, version: int, mode: float) -> Order:
        order = self._rules.order(start, lease, version, mode, self._goal, self._floor)
        return order if self._pinned is None else order.pinned(self._pinned)

    def _follow(self) -> None:
        """Whoever changes or removes the control file has the say until something is set through the handle."""
        try:
            found = self._control.follow()
        except Exception as error:
            self._grumble("the control file cannot be read", error)
            return
        if found is None:
            return
        self._foreign = True
        if found.spans:
            self._control.show(found)
        else:
            self._end_orders()
        log.warning(
            "%s: the control file was changed or removed by somebody else; what it says now holds, and rows are "
            "kept if it says nothing, until mode, target or pin is set through the handle: %s",
            self.name,
            self._control.path,
        )

    def _end_orders(self) -> None:
        """Keep every row from now on, also when a batch from now on runs again."""
        self._open_row()
        for query_id in self._readers:
            self._guarded("orders cannot be saved beside the checkpoint", partial(self._save, query_id))

    def _open_row(self) -> None:
        """Keep every row from this moment on, without asking the storage."""
        # The JVM may be gone, and the rows with it.
        with contextlib.suppress(Exception):
            history = self._control.history
            if history.spans and history.spans[-1].mode != OFF:
                # From now on, and not after an order that was to start in a moment: no batch has seen that one.
                now = int(time.time() * 1000)
                off = self._rules.order(now, _LEASE, history.version + 1, OFF, self._goal)
                self._control.show(self._with_table(history).add(off))

    def _with_table(self, history: OrderHistory) -> OrderHistory:
        """A history with the table that the next order will name."""
        table = self._rules.table
        return history if table is None or history.table(table.number) is not None else history.with_table(table)

    def _hold(self) -> None:
        held = frozenset[int]().union(*(reader.held for reader in self._readers.values()))
        if held != self._control.history.held:
            self._control.history = self._control.history.holding(held)

    def _leave(self, reader: _Reader) -> None:
        if reader.since.arrived:
            self._note(reader, "the query ended")
        reader.journal.write()
        del self._readers[reader.query.id]
        self._inbox.forget(reader.query.id)
        self._hold()

    def _restore(self, query_id: str) -> None:
        reader = self._readers[query_id]
        file = f"{reader.name}.json"
        data = reader.store.read(file)
        if data is None:
            return
        try:
            state = json.loads(data)
            history = OrderHistory.from_dict(self._control.history.cells, state)
            totals = {**state["total"], "last_batch": int(state["done"])}
            from_saved(totals)
            queues = int(state["queues"])
        except BROKEN as error:
            path = reader.store.path(file)
            log.warning("%s is broken and is left aside; costs are learned anew (%s)", path, error)
            return
        reader.saved = frozenset(order.start for order in history.spans)
        history = history.holding(reader.saved)
        if self._foreign:
            self._control.history = self._control.history.merge(history)
        else:
            self._control.adopt(history)
            # Held also if there was nothing to adopt.
            self._hold()
        self._ledger.restore(query_id, totals)
        if self._rules.table is None and history.spans:
            newest = self._control.history.spans[-1]
            self._rules.resume(newest, self._control.history.table(newest.table), queues)

    def _save_all(self, history: OrderHistory) -> None:
        for query_id in self._readers:
            self._save(query_id, history)

    def _save(self, query_id: str, history: OrderHistory | None = None) -> None:
        """Keep orders, costs and totals beside the query's checkpoint, for its next run."""
        reader = self._readers[query_id]
        state = {
            **(history or self._control.history).as_dict(),
            "total": as_saved(self._ledger.of(query_id)),
            "done": self._ledger.last_batch(query_id),
            "queues": self._rules.queues,
        }
        reader.store.write(f"{reader.name}.json", json.dumps(state, separators=(",", ":")).encode())

    # What people are told.

    def _tell_of(self, reader: _Reader, batch: LoadBatch) -> None:
        """One line when shedding begins and when it ends, and one a minute in between."""
        report = batch.report
        reader.since = reader.since.plus(report)
        unwanted = report.shed + report.would_shed
        kept = f"{report.arrived - unwanted:,} of {report.arrived:,} rows of batch {batch.batch}"
        dry = "would be " if self._mode is Mode.DRY_RUN else ""
        if unwanted:
            if self._rules.delay > self._goal.target:
                kept += f" (before a batch's first row starts, {self._rules.delay:.2g} s have passed)"
            begins, reader.shed_at = reader.shed_at is None, batch.at
            if begins:
                self._say(reader, f"shedding begins: {kept} {dry}kept, to hold {self._goal}")
            elif reader.journal.due:
                self._note(reader, f"shedding goes on: {kept} {dry}kept, to hold {self._goal}")
        elif reader.shed_at is not None and batch.at - reader.shed_at >= QUIET:
            reader.shed_at = None
            self._say(reader, f"shedding ends: all rows were within {self._goal} for {QUIET:g} s")

    def _tell_costs(self) -> None:
        table = self._rules.table
        assert table is not None
        first_row = slice(self._rules.hashes.columns)
        often = table.frequencies[first_row]
        mean = float((often * table.costs[first_row]).sum() / max(1, often.sum()))
        if abs(mean - self._mean_cost) > _MOVED * self._mean_cost:
            before, self._mean_cost = self._mean_cost, mean
            moved = f"; they were {before * 1000:.3g}" if before else ""
            self._tell(f"costs are stable at {mean * 1000:.3g} ms a row on average{moved}")

    def _tell(self, reason: str) -> None:
        """Something that concerns every query of the handle."""
        log.info("%s: %s", self.name, reason)
        for reader in self._readers.values():
            self._note(reader, reason)

    def _say(self, reader: _Reader, reason: str) -> None:
        log.info("%s: query %s: %s", self.name, reader.query.name, reason)
        self._note(reader, reason)

    def _note(self, reader: _Reader, reason: str) -> None:
        last = reader.last.report if reader.last is not None else Report()
        reader.journal.note(
            keep=round(last.kept / last.arrived, 4) if last.arrived else 1.0,
            mode=self._mode.value,
            version=self._control.history.version,
            reason=reason,
            arrived=reader.since.arrived,
            kept=reader.since.kept,
            shed=reader.since.shed,
            latency=round(last.queue_mean, 3),
            target=self._goal.target,
        )
        reader.since = Report()

    def _guarded(self, problem: str, action: Callable[[], Any]) -> bool:
        """Do something that needs storage; whatever happens there, the rest goes on."""
        try:
            return action() is not False
        except Exception as error:
            self._grumble(problem, error)
            return False


def order_file(store: Store, name: str, hashes: CarterWegman) -> HistoryFile[Order, OrderHistory]:
    """The orders and cost tables of an operator."""
    cells = hashes.rows * hashes.columns
    return HistoryFile(store, name, lambda data: OrderHistory.decode(cells, data))
