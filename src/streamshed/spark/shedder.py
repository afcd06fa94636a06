"""The handle of a shed stream: what its queries did comes in, which plan is in force goes out."""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
import zlib
from collections import deque
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from streamshed.durations import seconds
from streamshed.loop.arbiter import Limits, hopeless
from streamshed.loop.controller import Controller
from streamshed.policies import RandomShedding
from streamshed.quality import Ledger
from streamshed.records import Drop, Mode, Plan, QualityReport, Sample
from streamshed.spark.arguments import check_floor, check_mode
from streamshed.spark.handle import Handle
from streamshed.spark.journal import Journal
from streamshed.spark.monitor import QueryWatch, SessionMonitor
from streamshed.spark.orders.drop_order import ControlFile
from streamshed.spark.orders.history import History, Span
from streamshed.spark.orders.store import Store

log = logging.getLogger("streamshed")

_FOREVER = 10 * 365 * 86400.0  # seconds: what holds until somebody says otherwise


class Shedder(Handle):
    """The handle of a shed stream: what it does and why, and its settings.

    Every query that reads the stream is watched for itself; the one that is worst off decides, since all of them
    read the same rows.
    """

    settings: ClassVar[tuple[str, ...]] = ("mode", "latency", "floor")
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
    ) -> None:
        super().__init__(name)
        self.serial = serial
        self.ledger = Ledger()
        self.samples = deque(maxlen=10_000)
        self._named = named
        self._control = control
        self._spark = spark
        self._salt = secrets.randbits(31) if salt is None else zlib.crc32(salt.encode())
        self._salted = salt is not None
        self._controller = Controller(RandomShedding(name), latency=latency, limits=limits)
        self._queries: dict[str, QueryWatch] = {}
        self._stores: dict[str, tuple[Store, str]] = {}
        self._journals: dict[str, tuple[Journal, QualityReport]] = {}
        self._last_batches: dict[str, int] = {}
        self._plan = Plan(mode=limits.mode)
        self._chosen = self._plan
        self._published: tuple[float, float] = (1.0, 0.0)
        self._pinned: Plan | None = None
        self._by_hand: Plan | None = None
        self._by_hand_until = 0.0
        self._failed = False

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

    def report(self) -> QualityReport:
        """What arrived, what was kept, and how late it was."""
        return self.ledger.report()

    @property
    def mode(self) -> Mode:
        return self._controller.limits.mode

    @mode.setter
    def mode(self, mode: str | Mode) -> None:
        self.configure(mode=mode)

    @property
    def latency(self) -> float:
        """The bound, in seconds."""
        return self._controller.latency

    @latency.setter
    def latency(self, latency: str | float | timedelta) -> None:
        self.configure(latency=latency)

    @property
    def floor(self) -> float:
        return self._controller.limits.floor

    @floor.setter
    def floor(self, floor: float) -> None:
        self.configure(floor=floor)

    def configure(
        self,
        *,
        mode: str | Mode | None = None,
        latency: str | float | timedelta | None = None,
        floor: float | None = None,
    ) -> None:
        """Change settings while the queries run; the next batches see them."""
        wanted_mode = None if mode is None else check_mode(mode)
        wanted_latency = None if latency is None else seconds(latency, "latency")
        wanted_floor = None if floor is None else check_floor(floor)
        self._check_open()
        with self._locked():
            now = time.time()
            self._controller.configure(mode=wanted_mode, latency=wanted_latency, floor=wanted_floor, at=now)
            if wanted_mode is not None:
                self._by_hand = None
                if self._pinned is not None:
                    self._pinned = self._pin_plan(self._pinned.would_keep, now)
            self._adopt_plan(now)

    def pin(self, keep: float | None) -> None:
        """Keep this share by hand, whatever the load is; None gives the decision back.

        The mode still rules: in "off" and "dry-run" nothing is dropped.
        """
        share = None if keep is None else check_floor(keep, "keep")
        self._check_open()
        with self._locked():
            now = time.time()
            self._by_hand = None
            self._pinned = None if share is None else self._pin_plan(share, now)
            self._adopt_plan(now)

    def close(self) -> None:
        """Keep every row from now on, and let go of threads, listeners and files. The books stay readable."""
        with self._locked():
            if self._closed:
                return
            self._closed = True
            self._control.close()
            self._plan = Plan(version=self._plan.version + 1, mode=self.mode, reason="closed: every row is kept")
            for journal, _ in self._journals.values():
                journal.write()
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
                self.ledger.restore(query.id, saved["ledger"])
                if not self._salted and isinstance(saved.get("salt"), int):
                    self._salt = saved["salt"]
            self.ledger.open(query.id, query.name, query.committed)
            self._queries[query.id] = query
            self._stores[query.id] = (store, f"{stem}.json")
            self._journals[query.id] = (Journal(store, stem), self.ledger.of(query.id))
            self._follow_file()
            # Before its first batch: what is in force then must not be known to this process only.
            self._save(query.id, self._control.history)
            if self._pinned is not None and self._by_hand is None:
                self._publish(self._pinned, time.time())
                self._await_start()

    def _stem(self, query: QueryWatch, position: int) -> str:
        """What this stream's files beside a query's checkpoint are called."""
        if not self._named:
            return f"shed-{position}"
        namesakes = sum(getattr(other, "name", None) == self.name for other in query.streams[:position])
        return self.name if not namesakes else f"{self.name}-{namesakes + 1}"

    def _await_start(self) -> None:
        """A plan starts a little in the future; let a query's first batch be after that."""
        start = max((span.start for span in self._control.history.spans), default=0) / 1000.0
        time.sleep(min(1.0, max(0.0, start - time.time())))

    def detach(self, query: QueryWatch) -> None:
        with self._locked():
            if query.id in self._journals:
                if self.ledger.of(query.id) != self._journals[query.id][1]:
                    self._note(query.id)  # what was counted since the last line
                self._journals.pop(query.id)[0].write()
            for kept in (self._stores, self._queries, self._last_batches):
                kept.pop(query.id, None)
            self._controller.forget(query.id, time.time())
            if self._closed:
                return
            if self._queries:
                self._adopt_plan(time.time())
            elif self._pinned is None and self._by_hand is None:
                self._open("no query is running")

    def span_at(self, batch_time: int) -> Span:
        return self._control.history.at(batch_time)

    def look_after(self) -> float:
        """Seconds after which a running batch is worth a look: when it may break the bound."""
        return 0.4 * self.latency

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        with self._locked():
            self._failed = False
            self._last_batches[query.id] = int(sample.started * 1000)
            self.ledger.record(sample, self._plan, bound=self.latency)
            self._follow_file()
            if self._last_batches.keys() == self._queries.keys():
                self._control.forget(list(self._last_batches.values()))
            if sample.arrived > 0:
                self._observe(query, sample)
            elif self._plan.drops:
                self._adopt_plan(sample.at)
            if self._plan.wanted and self._journals[query.id][0].due:
                self._note(query.id)

    def running(self, query: QueryWatch, sample: Sample) -> None:
        with self._locked():
            self._observe(query, sample)

    def renew(self, now: float) -> None:
        """Time passes: a plan in force must not end while its controller lives."""
        with self._locked():
            if self._published[0] < 1.0 and now >= self._published[1]:
                self._adopt_plan(now)

    def fail_open(self, problem: BaseException) -> None:
        """Something of ours broke: keep every row, until a batch can be read again."""
        with self._locked():
            self._failed = True
            if self._published[0] < 1.0:
                log.warning("%s: rows are all kept from now on, because of: %s", self.name, problem)
                self._open(f"failed open: {problem}")

    # How a plan comes into force.

    def _observe(self, query: QueryWatch, sample: Sample) -> None:
        if query.id not in self._queries:
            return
        if sample.finished:
            # The batch took its time for the rows of all shed streams that it reads.
            ours = [query.counts[each.serial] for each in query.streams if isinstance(each, Shedder)]
            sample = replace(sample, arrived=sum(c.arrived for c in ours), kept=sum(c.kept for c in ours))
        self.samples.append(sample)
        self._controller.observe(sample)
        self._adopt_plan(time.time())

    def _adopt_plan(self, now: float) -> None:
        """Choose among what was decided by hand and by the controller, and put it in force."""
        if self._by_hand is not None and now >= self._by_hand_until:
            self._by_hand = None
        plan = self._by_hand or self._pinned or (self._controller.plan if self._queries else None)
        if plan is None or self._closed or (self._failed and plan.drops):
            return
        keep, renew_at = self._published
        if plan.keep != keep or (keep < 1.0 and now >= renew_at):
            self._publish(plan, now)
        elif plan is not self._chosen:
            self._announce(plan)

    def _publish(self, plan: Plan, now: float) -> None:
        lease = max(20.0, 5.0 * self.latency)
        by_hand = plan is self._by_hand
        if by_hand:
            lease = min(_FOREVER, self._by_hand_until - now)
        version = self._control.history.version + 1
        try:
            span = self._control.publish(
                plan.keep, lease, version, also=self._save_all, salt=self._salt, mirror=not by_hand
            )
        except Exception as error:
            self._grumble("a plan could not be stored, and is not carried out", error)
            span = None
        if span is None:
            if plan.keep == 1.0:
                self._open(plan.reason)
            return
        self._published = (plan.keep, now + lease / 2.0)
        if plan is not self._chosen:
            self._announce(plan)

    def _open(self, reason: str) -> None:
        """Keep every row from this moment on, whether or not the storage works."""
        version = self._control.history.version + 1
        self._control.open_row(lambda start: Span(start, start + int(_FOREVER * 1000), 1.0, version))
        self._published = (1.0, 0.0)
        self._announce(Plan(reason=reason, mode=self.mode, at=time.time()))
        try:
            self._save_all(self._control.history)
        except Exception as error:
            self._grumble("what is in force could not be stored", error)

    def _announce(self, plan: Plan) -> None:
        before = self._plan
        self._chosen = plan
        if replace(plan, version=before.version, at=before.at, overload=before.overload) == before:
            return  # the plan of another controller, but no other plan
        self._plan = replace(plan, version=before.version + 1)
        self._untold.append(self._plan)
        changed = (before.keep, before.would_keep, before.mode) != (plan.keep, plan.would_keep, plan.mode)
        if changed or hopeless(plan):
            # Only a person can help a bound that dropping cannot bring back.
            level = logging.WARNING if hopeless(plan) else logging.INFO
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

    def _pin_plan(self, share: float, now: float) -> Plan:
        drops = (Drop(self.name, share),)
        return Plan(
            drops=drops if self.mode is Mode.ENFORCE else (),
            wanted=drops,
            reason=f"pinned to {share:.3g} by hand",
            mode=self.mode,
            at=now,
        )

    def _follow_file(self) -> None:
        """Obey somebody who changed or removed the control file."""
        try:
            found = self._control.follow()
        except Exception as error:
            self._grumble("the control file could not be looked at", error)
            return
        if found is None:
            return
        now = time.time()
        span = found.at(int(now * 1000))
        drops = (Drop(self.name, span.keep),) if span.keep < 1.0 and self.mode is Mode.ENFORCE else ()
        self._by_hand_until = span.until / 1000.0 if drops else math.inf
        until = "its plan ends, or " if drops else ""
        self._by_hand = Plan(
            drops=drops,
            wanted=drops,
            reason=f"the control file was changed or removed by hand; that holds until {until}mode or pin is set",
            mode=self.mode,
            at=now,
        )
        log.warning("%s: %s: %s", self.name, self._by_hand.reason, self.control_path)
        self._adopt_plan(now)

    def _save_all(self, history: History) -> None:
        for query_id in self._stores:
            self._save(query_id, history)

    def _save(self, query_id: str, history: History) -> None:
        """Keep the plans and the ledger beside the query's checkpoint, for its next run."""
        store, file = self._stores[query_id]
        state = {"plans": history.as_rows(), "ledger": self.ledger.totals(query_id), "salt": self._salt}
        store.write(file, json.dumps(state, separators=(",", ":")).encode())


def _read_state(store: Store, file: str) -> dict[str, Any] | None:
    data = store.read(file)
    if data is None:
        return None
    try:
        state = json.loads(data)
        History.from_rows(state["plans"])
        return dict(state)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        log.warning("%s is broken and is left aside; rows are kept (%s)", store.path(file), error)
        return None
