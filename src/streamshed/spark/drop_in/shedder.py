"""The handle of a shed stream: what its queries did comes in, which plan is in force goes out."""

from __future__ import annotations

import json
import logging
import secrets
import time
import zlib
from collections import deque
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from streamshed.loop.arbiter import Limits, hopeless
from streamshed.loop.controller import Controller
from streamshed.policies import RandomShedding
from streamshed.quality import Ledger, Report
from streamshed.quality.saved_report import BROKEN, from_saved
from streamshed.records import Drop, Mode, Plan, Sample
from streamshed.spark.arguments import check_budget, check_expired, check_floor
from streamshed.spark.drop_in.drop_order import ControlFile
from streamshed.spark.drop_in.keep_carrier import KeepCarrier
from streamshed.spark.drop_in.unasked_place import UnaskedPlace
from streamshed.spark.handle import is_news
from streamshed.spark.journal import Journal
from streamshed.spark.orders.batch_clock import BatchClock
from streamshed.spark.orders.budget_carrier import BudgetCarrier
from streamshed.spark.orders.enforcer import Enforcer
from streamshed.spark.orders.history import History, Span
from streamshed.spark.orders.store import Store
from streamshed.spark.planned_handle import PlannedHandle
from streamshed.spark.watch.clock_skew import ClockSkew
from streamshed.spark.watch.query_watch import QueryWatch
from streamshed.spark.watch.session_monitor import SessionMonitor

log = logging.getLogger("streamshed")

_SAVE_EVERY = 60.0  # seconds: what a calm job's books may lose by a crash
_REAL_TIME = (
    "%s: query %s runs in real-time mode, but its stream is shed for micro-batches: all of its rows are kept, "
    'unless a share is pinned. Call shed with trigger="real-time"'
)


class Shedder(PlannedHandle):
    """The handle of a shed stream: what it does and why, and its settings.

    Every query that reads the stream is watched for itself; the one that is worst off decides, since all of them
    read the same rows.
    """

    serial: int
    ledger: Ledger
    """Every batch's counts; `report()` adds them up."""
    samples: deque[Sample]
    """What the controllers were told, in order; replaying it gives the same plans."""

    def __init__(
        self,
        serial: int,
        name: str,
        named: bool,
        control: ControlFile,
        spark: SparkSession,
        latency: float,
        limits: Limits,
        salt: str | None = None,
        *,
        clock: BatchClock,
        budget: float | None = None,
        expired: str | None = None,
        whole: bool = False,
    ) -> None:
        """`budget`: seconds at most, 0: none, None: what is right. `expired`: None without an arrival column.

        `whole`: what arrives is what its source gives, row for row.
        """
        super().__init__(name)
        self.serial = serial
        self.ledger = Ledger()
        self.samples = deque(maxlen=10_000)
        self._named = named
        self._whole = whole
        self._control = control
        self._spark = spark
        self._salted = salt is not None
        drawn = secrets.randbits(31) if salt is None else zlib.crc32(salt.encode())
        self._carrier = KeepCarrier(control, drawn, self._save_all)
        self._clocks = ClockSkew.of(spark)
        cores = spark.sparkContext.defaultParallelism
        self._budget = BudgetCarrier(clock, budget, cores, self._clocks.agree)
        self._expired = expired
        self._controller = Controller(RandomShedding(name), latency=latency, limits=limits)
        self._queries: dict[str, QueryWatch] = {}
        self._stores: dict[str, tuple[Store, str]] = {}
        self._journals: dict[str, tuple[Journal, Report]] = {}
        self._last_batches: dict[str, int] = {}
        self._plan = self._controller.plan
        self._announced = self._plan
        self._enforcer = Enforcer(name, self._carrier, self._plan, self._grumble)
        self._pinned: Plan | None = None
        self._next_save = 0.0

    # What the user sees.

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def keep(self) -> float:
        """The share of unprotected rows that is kept now."""
        return self._plan.keep

    @property
    def reason(self) -> str:
        """Why this plan."""
        return self._plan.reason

    @property
    def queries(self) -> list[str]:
        """Ids of the running queries that read this stream."""
        return list(self._queries)

    @property
    def control_path(self) -> str:
        """The file that says what is in force. Delete it, and every row is kept."""
        return self._control.path

    def report(self) -> Report:
        """What arrived, what was kept, and how late it was."""
        return self.ledger.report()

    def pin(self, keep: float | None, *, budget: str | float | timedelta | None = None, grace: int = 0) -> None:
        """Keep this share by hand, whatever the load is; None gives the decision back.

        With a `budget`, what comes to the drop later than that in its batch is dropped as well, but for
        `grace` rows, the first of each task. The mode still rules: in "off" and "dry-run" nothing is dropped.
        """
        share = None if keep is None else check_floor(keep, "keep")
        allowed = None if budget is None else check_budget(budget, self.latency)
        self._check_open()
        with self._locked():
            self._enforcer.release()
            self._pinned = None if share is None else self._pin_plan(share, time.time(), allowed, grace)
            self._adopt()

    def close(self) -> None:
        """Keep every row from now on, and let go of threads, listeners and files. The books stay readable."""
        with self._locked():
            if self._closed:
                return
            self._closed = True
            self._budget.open()
            self._control.close()
            self._plan = Plan(version=self._plan.version + 1, mode=self.mode, reason="closed: every row is kept")
            for journal, _ in self._journals.values():
                journal.write()
        UnaskedPlace.of(self._spark).remove(self.serial)
        SessionMonitor.of(self._spark).remove(self)

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"<Shedder {self.name!r}: {self.mode.value}, keep {self.keep:.3f}, latency {self.latency:g} s, "
            f"{report.kept:,} of {report.arrived:,} rows kept>"
        )

    # What the monitor calls.

    def attach(self, query: QueryWatch, position: int) -> None:
        """A query that reads this stream starts; continue where an earlier run of it stopped."""
        with self._locked():
            store = Store(self._spark, f"{query.checkpoint}/streamshed")
            stem = self._stem(query, position)
            saved = _read_state(store, f"{stem}.json")
            if saved:
                self._control.adopt(History.from_rows(saved["plans"]))
                if saved["ledger"]["last_batch"] > self.ledger.last_batch(query.id):
                    self.ledger.restore(query.id, saved["ledger"])
                if not self._salted and isinstance(saved.get("salt"), int):
                    self._carrier.salt = saved["salt"]
                if isinstance(saved.get("learned"), dict):
                    self._controller.recall({query.id: saved["learned"]})
            self.ledger.open(query.id, query.name, query.committed)
            self._queries[query.id] = query
            if query.real_time:
                log.warning(_REAL_TIME, self.name, query.name)
            query.counted_by_spark = self._whole and query.reads_one_source
            self._count()
            self._stores[query.id] = (store, f"{stem}.json")
            self._journals[query.id] = (Journal(store, stem), self.ledger.of(query.id))
            self._follow_file()
            # Before its first batch: what is in force then must not be known to this process only.
            self._save(query.id, self._control.history)
            # Nobody renewed a pinned plan before there was a query; and the first batch has a budget already.
            self._adopt(renew=self._pinned is not None)
            if self._pinned is not None:
                self._enforcer.await_start()

    def _count(self) -> None:
        """Have rows counted where a query needs it. If all is read, and once, Spark's own count will do."""
        queries = self._queries.values()
        self._control.count(
            always=not all(each.counted_by_spark for each in queries),
            fenced=any(each.filtered_later for each in queries),
        )

    def _stem(self, query: QueryWatch, position: int) -> str:
        """What this stream's files beside a query's checkpoint are called."""
        if not self._named:
            return f"shed-{position}"
        namesakes = sum(getattr(other, "name", None) == self.name for other in query.streams[:position])
        return self.name if not namesakes else f"{self.name}-{namesakes + 1}"

    def detach(self, query: QueryWatch) -> None:
        with self._locked():
            if self._queries.get(query.id) is not query:
                return  # the news that a run has ended may come after the next one has begun
            if query.id in self._journals:
                if self.ledger.of(query.id) != self._journals[query.id][1]:
                    self._note(query.id)  # what was counted since the last line
                self._journals.pop(query.id)[0].write()
            self._try_to_save(query.id)
            for kept in (self._stores, self._queries, self._last_batches):
                kept.pop(query.id, None)
            self._controller.forget(query.id, time.time())
            if self._closed:
                return
            if self._queries:
                self._adopt()
            elif self._pinned is None and not self._enforcer.by_hand:
                self._enforcer.open(Plan(reason="no query is running", mode=self.mode, at=time.time()))
                self._announce()

    def span_at(self, batch_time: int) -> Span:
        return self._control.history.at(batch_time)

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        with self._locked():
            self._enforcer.recovered()
            self._last_batches[query.id] = int(sample.started * 1000)
            self._budget.learn(sample.duration, sample.kept, query.lead)
            before = self._plan
            self._follow_file()
            if self._last_batches.keys() == self._queries.keys():
                self._control.forget(list(self._last_batches.values()))
            if sample.arrived > 0 and not query.real_time:
                self._observe(query, sample)
            else:
                self._adopt()
            rehearsed = None if self._pinned is not None else self._controller.would_shed(query.id)
            self.ledger.record(sample, before, bound=self.latency, would_shed=rehearsed)
            if self._plan.wanted and self._journals[query.id][0].due:
                self._note(query.id)
            if sample.at >= self._next_save:
                self._next_save = sample.at + _SAVE_EVERY
                self._try_to_save(*self._stores)

    def running(self, query: QueryWatch, sample: Sample) -> None:
        with self._locked():
            if not query.real_time:
                self._observe(query, sample)

    def renew(self, now: float) -> None:
        """Time passes: a plan in force must not end while its controller lives."""
        with self._locked():
            if self._enforcer.is_due(now):
                self._adopt(renew=True)
            else:
                self._limit()
            self._clocks.look()

    # How a plan comes into force.

    def _observe(self, query: QueryWatch, sample: Sample) -> None:
        if query.id not in self._queries:
            return
        if sample.finished:
            # The batch took its time for the rows of all shed streams that it reads.
            ours = [query.counts[each.serial] for each in query.streams if isinstance(each, Shedder)]
            totals = {name: sum(getattr(c, name) for c in ours) for name in ("arrived", "kept", "cut", "expired")}
            sample = replace(sample, **totals)
        self.samples.append(sample)
        self._controller.observe(sample)
        self._adopt()

    def _wanted_plan(self) -> Plan | None:
        if self._in_real_time():
            return self._pinned or Plan(reason="a query runs in real-time mode", mode=self.mode, at=time.time())
        return self._pinned or (self._controller.plan if self._queries else None)

    def _limit(self) -> None:
        if self._in_real_time():
            self._budget.open()
        else:
            super()._limit()

    def _in_real_time(self) -> bool:
        """Whether a query runs in real-time mode: its batches last for minutes, and have no bound to keep."""
        return any(query.real_time for query in self._queries.values())

    def _idle(self) -> bool:
        return not self._queries

    def _check_expired(self, expired: str) -> None:
        check_expired(expired, self._expired is not None)

    def _pinned_again(self, pinned: Plan) -> Plan:
        return self._pin_plan(pinned.would_keep, time.time(), pinned.budget, pinned.grace)

    def _announce(self) -> None:
        """Tell of the plan in force, if it is another."""
        self._limit()
        plan, before = self._enforcer.current.plan, self._plan
        if plan is self._announced:
            return
        self._announced = plan
        if replace(plan, version=before.version, at=before.at, overload=before.overload) == before:
            return  # the plan of another controller, but no other plan
        self._plan = replace(plan, version=before.version + 1)
        if is_news(before, plan):
            self._untold.append(self._plan)
        changed = (before.keep, before.would_keep, before.mode) != (plan.keep, plan.would_keep, plan.mode)
        in_vain = hopeless(plan) and not all(query.draining for query in self._queries.values())
        if changed or in_vain:
            # Only a person can help a bound that dropping cannot bring back.
            level = logging.WARNING if in_vain else logging.INFO
            log.log(level, "%s: keep %.3f instead of %.3f: %s", self.name, plan.keep, before.keep, plan.reason)
            for query_id in self._journals:
                self._note(query_id)

    def _note(self, query_id: str) -> None:
        """A line in the journal: what is in force, why, and what was counted since the last line."""
        journal, before = self._journals[query_id]
        report = self.ledger.of(query_id)
        newest = self.ledger.recent[-1].sample.latency if self.ledger.recent else 0.0
        journal.note(
            keep=round(self._plan.keep, 4),
            would_keep=round(self._plan.would_keep, 4),
            mode=self._plan.mode.value,
            version=self._plan.version,
            reason=self._plan.reason,
            arrived=report.arrived - before.arrived,
            kept=report.kept - before.kept,
            shed=report.shed - before.shed,
            latency=round(newest, 3),
            bound=self.latency,
        )
        self._journals[query_id] = (journal, report)

    def _pin_plan(self, share: float, now: float, budget: float | None, grace: int) -> Plan:
        drops = (Drop(self.name, share),)
        return Plan(
            drops=drops if self.mode is Mode.ENFORCE else (),
            wanted=drops,
            reason=f"pinned to {share:.3g} by hand",
            mode=self.mode,
            at=now,
            budget=budget,
            grace=grace,
        )

    def _follow_file(self) -> None:
        """Obey somebody who changed or removed the control file."""
        if self._enforcer.follow(self.mode, lambda keep: (Drop(self.name, keep),)):
            self._adopt()

    def _try_to_save(self, *query_ids: str) -> None:
        try:
            for query_id in query_ids:
                self._save(query_id, self._control.history)
        except Exception as error:
            self._grumble("what is in force could not be stored", error)

    def _save_all(self, history: History) -> None:
        for query_id in self._stores:
            self._save(query_id, history)

    def _save(self, query_id: str, history: History) -> None:
        """Keep the plans and the ledger beside the query's checkpoint, for its next run."""
        store, file = self._stores[query_id]
        state = {
            "plans": history.as_rows(),
            "ledger": self.ledger.totals(query_id),
            "salt": self._carrier.salt,
            "learned": self._controller.remember().get(query_id),
        }
        store.write(file, json.dumps(state, separators=(",", ":")).encode())


def _read_state(store: Store, file: str) -> dict[str, Any] | None:
    data = store.read(file)
    if data is None:
        return None
    try:
        state = json.loads(data)
        History.from_rows(state["plans"])
        from_saved(state["ledger"])
        int(state["ledger"]["last_batch"])
        return dict(state)
    except BROKEN as error:
        log.warning("%s is broken and is left aside; rows are kept (%s)", store.path(file), error)
        return None
