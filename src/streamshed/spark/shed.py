"""`shed`: the drop-in. One line in an existing job keeps it inside its latency bound."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.arbiter import Limits
from streamshed.controller import Controller
from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.policies import RandomShedding
from streamshed.quality import Ledger
from streamshed.records import Drop, Mode, Plan, QualityReport, Sample
from streamshed.spark.arguments import (
    check_arrival,
    check_floor,
    check_keys,
    check_mode,
    check_protect,
    check_stream,
)
from streamshed.spark.control import KEEP, SALT, ControlFile, History, Span, Store, control_store, matches
from streamshed.spark.counts import arrived_mark, kept_mark, next_serial
from streamshed.spark.monitor import QueryWatch, SessionMonitor
from streamshed.spark.progress import oldest_observed
from streamshed.spark.session import check_spark

log = logging.getLogger("streamshed")


def shed(
    events: DataFrame,
    latency: str | float | timedelta,
    *,
    arrived: str | None = None,
    key: str | Sequence[str] | None = None,
    protect: str | Column | None = None,
    floor: float = 0.02,
    mode: str | Mode = Mode.ENFORCE,
    weight: str | None = None,
    rotate: str | float | timedelta | None = None,
    measure: bool = False,
    control: str | None = None,
    name: str | None = None,
) -> DataFrame:
    """Keep the queries behind a streaming DataFrame inside a latency bound, by dropping rows.

    Returns a DataFrame of the same schema, to be used in place of `events`; what follows may be
    anything that Structured Streaming can do. While the load fits, every row passes. When the next
    micro-batch would make rows later than the bound, just so many rows are dropped, before any work
    that comes after this call, that it does not. `ss.shedder(kept)` gives the handle: the plan in
    force, its reason, the ledger of what was dropped, and the settings, to be changed while it runs.

    Parameters
    ----------
    events
        A streaming DataFrame. Shed as early as you can: what is dropped before the parse is not parsed.
    latency
        The bound on a row's end-to-end latency, from its arrival to the commit of its micro-batch.
    arrived
        Column with the arrival time, for `measure`. Otherwise how long rows waited is reckoned from when
        batches started, which is right for rows that reach the source as they arrive.
    key
        Column or columns whose values live or die together, so that joins, sessions and groups stay
        whole. Without a key each row is on its own (rows equal in all columns share their fate).
    protect
        A condition; rows that fulfil it are never dropped.
    floor
        Share of the rows that is always kept.
    mode
        "enforce", "dry-run" (keep all, report what would have been dropped) or "off".
    weight
        Name of a column to add: 1/keep for a row that stood for others, 1 for a protected one; sums
        and counts weighted with it estimate what they would be without shedding.
    rotate
        How often another set of keys is chosen, so that the loss is shared among keys.
    measure
        Measure the wait of each batch's oldest kept row from its `arrived` column. That is an observed
        metric in the plan: some 5 % of a light job. Use it where rows may be old before the source has
        them. One query can use such a stream once only (Spark's rule for observed metrics).
    control
        Folder for the control file, on any file system that Hadoop knows. Default: under
        `spark.sql.streaming.checkpointLocation` if set, else a temporary folder of the driver; the
        plans are kept in each query's checkpoint in any case. Delete the file, and rows are kept.
    name
        What to call this shed stream in reports and files.

    Example
    -------
    ::

        kept = ss.shed(events, latency="4 seconds", arrived="timestamp", key="user_id",
                       protect="priority = 'high'", floor=0.05)
        kept.groupBy(window("timestamp", "10 seconds"), "user_id").count().writeStream...start()
    """
    check_stream(events)
    spark = events.sparkSession
    check_spark(spark.version)
    bound = seconds(latency, "latency")
    if arrived is not None:
        check_arrival(events, arrived)
    elif measure:
        raise InvalidArgument(
            "measure needs the arrival column", got="measure=True without arrived", hint='give arrived="…" as well'
        )
    keys = check_keys(events, key)
    protected = check_protect(events, protect)
    limits = Limits(check_mode(mode), check_floor(floor))
    period = None if rotate is None else seconds(rotate, "rotate")
    if weight is not None and weight in events.columns:
        raise InvalidArgument("the weight column exists already", got=repr(weight), hint="choose another name")
    serial = next_serial()
    label = name or f"shed-{serial}"
    file = ControlFile(control_store(spark, control), label)
    shedder = Shedder(serial, label, name is not None, file, spark, bound, limits)
    orders = F.broadcast(file.relation(spark, period))
    hashed = [*keys, F.col(SALT)] if period is not None else keys
    falls = matches(hashed)
    if protected is not None:
        falls = falls & ~F.coalesce(protected, F.lit(False))
    incoming = events.where(arrived_mark(serial))
    if weight is None:
        # An anti-join adds no column and copies no row, and an empty right side keeps everything.
        kept = incoming.join(orders, falls, "left_anti").where(kept_mark(serial))
    else:
        kept = _weighted(incoming.join(orders, F.lit(True), "left"), events, falls, protected, weight, serial)
    if measure and arrived is not None:
        kept = oldest_observed(kept, serial, arrived)
    kept._streamshed = shedder  # type: ignore[attr-defined]
    SessionMonitor.of(spark).add(shedder)
    return kept


def shedder(kept: DataFrame) -> Shedder:
    """The handle of a DataFrame that `shed` returned."""
    handle = kept.__dict__.get("_streamshed") if isinstance(kept, DataFrame) else None
    if not isinstance(handle, Shedder):
        raise InvalidArgument(
            "this is not a shed stream",
            got=type(kept).__name__,
            hint="give the DataFrame that shed() returned",
        )
    return handle


class Shedder:
    """The handle of a shed stream: what it does and why, and its settings.

    One controller for each query that reads the stream; the most careful of them decides, since all
    of them read the same rows.
    """

    def __init__(
        self,
        serial: int,
        name: str,
        named: bool,
        control: ControlFile,
        spark: SparkSession,
        latency: float,
        limits: Limits,
    ) -> None:
        self.serial = serial
        self.name = name
        self._named = named
        self._control = control
        self._spark = spark
        self._latency = latency
        self._limits = limits
        self._controllers: dict[str, Controller] = {}
        self._queries: dict[str, QueryWatch] = {}
        self._stores: dict[str, tuple[Store, str]] = {}
        self._plan = Plan(version=control.history.version, mode=limits.mode)
        self._published: tuple[float, float] = (1.0, 0.0)
        self._pinned: Plan | None = None
        self._callbacks: list[Callable[[Plan], None]] = []
        self._lock = threading.RLock()
        self.ledger = Ledger()
        """Every batch's counts; `report()` adds them up."""
        self.samples: deque[Sample] = deque(maxlen=10_000)
        """What the controllers were told, in order; replaying it gives the same plans."""

    # What the user sees.

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def keep(self) -> float:
        """The share of unprotected rows that is kept now."""
        return self._plan.keep()

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
        return self._control.path

    def report(self) -> QualityReport:
        """What arrived, what was kept, and how late it was."""
        return self.ledger.report()

    def on_plan(self, callback: Callable[[Plan], None]) -> None:
        """Have `callback(plan)` called at each change of plan, on Streamshed's own thread."""
        self._callbacks.append(callback)

    @property
    def mode(self) -> Mode:
        return self._limits.mode

    @mode.setter
    def mode(self, mode: str | Mode) -> None:
        self.configure(mode=mode)

    @property
    def latency(self) -> float:
        """The bound, in seconds."""
        return self._latency

    @latency.setter
    def latency(self, latency: str | float | timedelta) -> None:
        self.configure(latency=latency)

    @property
    def floor(self) -> float:
        return self._limits.floor

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
        with self._lock:
            self._latency = wanted_latency or self._latency
            self._limits = Limits(
                wanted_mode or self._limits.mode, self._limits.floor if wanted_floor is None else wanted_floor
            )
            now = time.time()
            if wanted_mode is not None and self._pinned is not None:
                self.pin(self._pinned.would_keep())
            for controller in self._controllers.values():
                controller.configure(mode=wanted_mode, latency=wanted_latency, floor=wanted_floor, at=now)
            self._adopt_plan(now)

    def settle(self, seconds: float = 5.0) -> bool:
        """Wait until the ledger has every batch of the queries that have ended: reports come a moment later.

        False if that took longer than `seconds`.
        """
        deadline = time.monotonic() + seconds
        while any(not query.active for query in list(self._queries.values())):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def pin(self, keep: float | None) -> None:
        """Keep this share by hand, whatever the load is; None gives the decision back.

        The mode still rules: in "off" and "dry-run" nothing is dropped.
        """
        with self._lock:
            if keep is None:
                self._pinned = None
            else:
                share = check_floor(keep, "keep")
                drops = (Drop(self.name, share),) if self.mode is Mode.ENFORCE else ()
                self._pinned = Plan(
                    drops=drops,
                    wanted=(Drop(self.name, share),),
                    reason=f"pinned to {share:.3g} by hand",
                    version=self._plan.version + 1,
                    mode=self.mode,
                    at=time.time(),
                )
            self._adopt_plan(time.time())

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"<Shedder {self.name!r}: {self.mode.value}, keep {self.keep:.3f}, latency {self.latency:g} s, "
            f"{report.kept:,} of {report.arrived:,} rows kept>"
        )

    # What the monitor calls.

    def attach(self, query: QueryWatch, position: int) -> None:
        """A query that reads this stream starts; continue where an earlier run of it stopped."""
        with self._lock:
            file = f"{self.name if self._named else f'shed-{position}'}.json"
            store = Store(self._spark, f"{query.checkpoint}/streamshed")
            self._queries[query.id] = query
            self._stores[query.id] = (store, file)
            saved = _read_state(store, file)
            if saved:
                self._control.adopt(History.from_rows(saved["plans"]))
                self.ledger.restore(query.id, saved["ledger"])
            self._follow_file()
            self._controllers[query.id] = Controller(
                RandomShedding(self.name),
                latency=self._latency,
                limits=self._limits,
                version=max(self._plan.version, self._control.history.version),
            )

    def detach(self, query: QueryWatch) -> None:
        with self._lock:
            for kept in (self._controllers, self._stores, self._queries):
                kept.pop(query.id, None)
            if self._controllers:
                self._adopt_plan(time.time())

    def span_at(self, batch_time: int) -> Span:
        return self._control.history.at(batch_time)

    def look_after(self) -> float:
        """Seconds after which a running batch is worth a look: when it may break the bound."""
        return 0.4 * self._latency

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        with self._lock:
            self.ledger.record(sample, self._plan, bound=self._latency)
            self._save(query.id)
            self._follow_file()
            if sample.arrived > 0:
                self._observe(query, sample)
            elif self._plan.drops:
                self._adopt_plan(sample.at)

    def running(self, query: QueryWatch, sample: Sample) -> None:
        with self._lock:
            self._observe(query, sample)

    def fail_open(self, problem: BaseException) -> None:
        """Something of ours broke: keep every row."""
        with self._lock, contextlib.suppress(Exception):
            if self._published[0] < 1.0:
                log.warning("%s: rows are all kept from now on, because of: %s", self.name, problem)
                plan = Plan(reason=f"failed open: {problem}", version=self._plan.version + 1, mode=self.mode)
                self._publish(plan, time.time())

    def _follow_file(self) -> None:
        if not self._control.follow():
            log.warning(
                "%s: the control file was changed or removed by somebody else; what it says now holds, "
                "and rows are kept if it says nothing: %s",
                self.name,
                self._control.path,
            )

    def _observe(self, query: QueryWatch, sample: Sample) -> None:
        self.samples.append(sample)
        controller = self._controllers.get(query.id)
        if controller is not None:
            controller.observe(sample)
            self._adopt_plan(time.time())

    def _adopt_plan(self, now: float) -> None:
        """Of the plans of all queries, put the most careful one in force."""
        plans = [controller.plan for controller in self._controllers.values()]
        if self._pinned is not None:
            plans = [self._pinned]
        if not plans:
            self._plan = Plan(version=self._plan.version + 1, mode=self.mode, reason="no query is running")
            return
        plan = min(plans, key=lambda p: (p.keep(), p.would_keep()))
        keep, renew_at = self._published
        changed = plan.keep() != keep
        if changed or (keep < 1.0 and now >= renew_at):
            self._publish(plan, now)
        elif plan is not self._plan:
            self._announce(plan)

    def _publish(self, plan: Plan, now: float) -> None:
        lease = max(20.0, 5.0 * self._latency)
        version = self._control.history.version + 1
        self._control.publish(plan.keep(), lease, version, also=self._save_all)
        self._published = (plan.keep(), now + lease / 2.0)
        if plan is not self._plan:
            self._announce(plan)

    def _announce(self, plan: Plan) -> None:
        self._plan = plan
        for callback in self._callbacks:
            try:
                callback(plan)
            except Exception:
                log.warning("%s: an on_plan callback failed", self.name, exc_info=True)

    def _save_all(self, history: History) -> None:
        for query_id in self._stores:
            self._save(query_id, history)

    def _save(self, query_id: str, history: History | None = None) -> None:
        """Keep the plans and the ledger beside the query's checkpoint, for its next run."""
        if query_id not in self._stores:
            return
        store, file = self._stores[query_id]
        state = {
            "plans": (history or self._control.history).as_rows(),
            "ledger": self.ledger.totals(query_id),
        }
        store.write(file, json.dumps(state, separators=(",", ":")).encode())


def _weighted(
    joined: DataFrame, events: DataFrame, falls: Column, protected: Column | None, weight: str, serial: int
) -> DataFrame:
    """The drop as an outer join, which costs a copy of the row, so that the weight can be read off."""
    whole = F.coalesce(protected, F.lit(False)) if protected is not None else F.lit(False)
    kept = joined.where(~F.coalesce(falls, F.lit(False))).where(kept_mark(serial))
    value = F.when(whole, F.lit(1.0)).otherwise(F.coalesce(1.0 / F.col(KEEP), F.lit(1.0)))
    return kept.withColumn(weight, value).select(*events.columns, weight)


def _read_state(store: Store, file: str) -> dict[str, Any] | None:
    data = store.read(file)
    if data is None:
        return None
    try:
        state = json.loads(data)
        History.from_rows(state["plans"])
        return dict(state)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("%s is broken and is left aside; rows are kept (%s)", store.path(file), error)
        return None
