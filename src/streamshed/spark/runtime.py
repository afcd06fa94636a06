"""`run`: a network on Spark, live. Compiles it, starts its queries, and sheds by policy while they run."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument, StreamshedError
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Network, Udf
from streamshed.network.qos import LossGraph
from streamshed.network.values import loss_graphs
from streamshed.network_controller import FlowSample, NetworkController
from streamshed.policies.contract import NetworkPolicy
from streamshed.policies.registry import live_policy
from streamshed.records import Drop, Mode, Plan
from streamshed.spark import arguments
from streamshed.spark.control import Store
from streamshed.spark.fused_query import FusedQuery
from streamshed.spark.journal import Journal
from streamshed.spark.layout import Layout
from streamshed.spark.load_aware_box import LoadAwareBox
from streamshed.spark.load_shedder import LoadShedder
from streamshed.spark.network_books import Books, NetworkReport, report_of
from streamshed.spark.network_control import NetworkControl
from streamshed.spark.network_diary import Diary
from streamshed.spark.network_query import NetworkQuery
from streamshed.spark.prepare import (
    check_boxes,
    check_formats,
    check_sinks,
    function_of,
    register_functions,
    streams,
)
from streamshed.spark.session import check_spark
from streamshed.spark.sinks import MemorySink, SinkSpec, sink_for
from streamshed.spark.slots import Slots
from streamshed.spark.stateful_query import StatefulQuery
from streamshed.spark.statistics import Spreads

log = logging.getLogger("streamshed")

_OFF = 0.1  # a selectivity this far from the planned one is worth planning anew
_LEARN_EVERY = 10.0  # seconds, at least: the tables of a large network take a while to build


def run(
    spark: SparkSession,
    network: Network,
    *,
    sources: Mapping[str, DataFrame] | None = None,
    sinks: Mapping[str, SinkSpec] | None = None,
    policy: str | NetworkPolicy = "lsrm-semantic",
    latency: str | float | timedelta = "4 seconds",
    mode: str | Mode = Mode.ENFORCE,
    checkpoint: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    pinned: Sequence[Drop] | None = None,
) -> RunningNetwork:
    """Run a network as streaming queries, and keep it inside a latency bound by dropping rows.

    Parameters
    ----------
    sources
        For each source its streaming DataFrame; where none is given, the spec's `read` says what to read.
    sinks
        For each output a format, `{"format": …, "options": {…}}`, or a function of (rows, number of the batch);
        where none is given, the spec's `write`.
    policy
        Who decides what to drop: "none", "random", "input-…", "lsrm-random", "lsrm-semantic", "optimal",
        "latency", or a policy of your own.
    latency
        The bound on a row's end-to-end latency, from its arrival to the commit of its micro-batch.
    mode
        "enforce", "dry-run" (keep all, report what would have been dropped) or "off".
    checkpoint
        Folder for the checkpoints of the queries and for the plans. A network that is run again with the same
        folder goes on where it stopped. Default: a temporary one.
    trigger
        As for Spark's `trigger`, such as `{"processingTime": "1 second"}` or `{"availableNow": True}`.
    pinned
        Drops to carry out from the first batch on, whatever the load is: see `RunningNetwork.pin`.

    Example
    -------
    ::

        network = ss.load_network("triage.yaml")
        running = ss.run(spark, network, sources={"vitals": events}, policy="lsrm-semantic", latency="4 seconds")
        running.await_termination()
    """
    check_spark(spark.version)
    bound = seconds(latency, "latency")
    wanted = arguments.check_mode(mode)
    chosen = live_policy(policy) if isinstance(policy, str) else policy
    how = check_trigger(trigger)
    rows = streams(spark, network, sources)
    specs = check_sinks(network, sinks)
    check_formats(spark, specs)
    functions = register_functions(spark, network)
    folder = checkpoint or tempfile.mkdtemp(prefix="streamshed-")
    running: RunningNetwork | None = None
    try:
        check_boxes(spark, network, rows, functions)
        made_sinks = {name: sink_for(spark, name, spec) for name, spec in specs.items()}
        store = Store(spark, f"{folder}/streamshed")
        running = RunningNetwork(spark, network, chosen, bound, wanted, store, made_sinks, functions)
        if pinned is not None:
            running.pin(pinned)
            time.sleep(0.05)  # a plan starts a little in the future: let the first batch be after that
        running.launch(rows, folder, how, temporary=checkpoint is None)
        return running
    except BaseException:
        if running is not None:
            running.close()
        else:
            drop_functions(spark, functions)
        if checkpoint is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise


_TRIGGERS = ("processingTime", "availableNow", "once")


def check_trigger(trigger: Mapping[str, Any] | None) -> dict[str, Any]:
    """A trigger that runs micro-batches: drops, counts and plans are all by the batch."""
    if trigger is None:
        return {}
    hint = 'leave it out, or give {"processingTime": "1 second"} or {"availableNow": True}'
    if not isinstance(trigger, Mapping):
        raise InvalidArgument("trigger must be a mapping", got=repr(trigger), hint=hint)
    given = {name: value for name, value in trigger.items() if value is not None}
    if set(given) & {"continuous", "realTime"}:
        raise InvalidArgument(
            "a network runs in micro-batches, and this trigger has none", got=repr(dict(trigger)), hint=hint
        )
    if set(given) - set(_TRIGGERS) or len(given) > 1:
        raise InvalidArgument("not a trigger", got=repr(dict(trigger)), hint=hint)
    for name, value in given.items():
        if name == "processingTime":
            seconds(value, 'the trigger\'s "processingTime"')
        elif value is not True:
            raise InvalidArgument(f"the trigger's {name!r} can only be True", got=repr(value), hint=hint)
    return given


def drop_functions(spark: SparkSession, functions: Mapping[str, str]) -> None:
    """Forget the functions of udf boxes, which are known to SQL in the user's session."""
    for name in functions.values():
        with contextlib.suppress(Exception):
            spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


class NetworkFailed(StreamshedError):
    """A query of a network failed while it ran."""


_SETTINGS = ("latency", "mode", "policy")


class RunningNetwork:
    """The handle of a running network: its queries, its plan and why, its books, and its settings.

    `latency`, `mode` and `policy` can be set while it runs. As a context manager it closes itself at the end:

        with ss.run(spark, network, …) as running:
            running.await_termination(60)
    """

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        policy: NetworkPolicy,
        latency: float,
        mode: Mode,
        store: Store,
        sinks: Mapping[str, Any],
        functions: Mapping[str, str],
    ) -> None:
        self._network = network
        self._sinks = sinks
        self._functions = functions
        self._spark = spark
        self._store = store
        self._layout = Layout.of(network)
        self._slots = Slots.of(network)
        names = [query.name for query in self._layout.queries]
        self._control = NetworkControl(store, self._slots.size, queries=names)
        cores = float(spark.sparkContext.defaultParallelism)
        self._costs = Catalog.of(network, capacity=cores)
        self._controller = NetworkController(
            policy,
            *self._weighed(policy),
            latency=latency,
            mode=mode,
            version=self._control.version,
            outputs={query.name: query.outputs for query in self._layout.queries},
        )
        self._load_aware = {
            box.name: LoadAwareBox(spark, network, box, function_of(box), store, mode)
            for box in network.boxes
            if isinstance(box, Udf) and box.load_aware is not None
        }
        self._queries: dict[str, NetworkQuery] = {}
        self._running: set[str] = set()
        self._books: dict[str, Books] = {name: Books() for name in names}
        self._published: tuple[Sequence[Drop], float] = ((), 0.0)
        self._pinned: Plan | None = None
        # The plan in force, and what it was made of: versions are counted here, for all who make plans.
        self._plan = self._adopted = self._controller.plan
        self._diary = Diary(network.name, Journal(store, "network"))
        self._lock = threading.RLock()
        self._learn_at = 0.0
        self._graphs: tuple[Catalog, dict[str, LossGraph]] | None = None
        self._spreads = Spreads()
        self._samples: deque[FlowSample] = deque(maxlen=10_000)
        self._warned: set[str] = set()
        self._temporary: str | None = None
        self._failed: StreamshedError | None = None
        self._closed = False

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in _SETTINGS:
            raise AttributeError(
                f"a running network has no setting {name!r}; its settings are {', '.join(_SETTINGS)}"
            )
        super().__setattr__(name, value)

    def __enter__(self) -> RunningNetwork:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def launch(
        self,
        rows: Mapping[str, DataFrame],
        folder: str,
        trigger: Mapping[str, Any],
        *,
        temporary: bool = False,
    ) -> None:
        """Start the queries; a temporary folder goes when the network is closed."""
        self._temporary = folder if temporary else None
        for layout in self._layout.queries:
            kind = StatefulQuery if layout.stateful else FusedQuery
            made = kind(
                self._spark,
                layout,
                self._slots,
                self._control,
                self,
                rows,
                self._sinks,
                self._functions,
                self._load_aware,
            )
            self._queries[made.name] = made
        for query in (self._queries[layout.name] for layout in self._layout.queries):
            query.start(f"{folder}/{query.name}", f"{self.network.name}-{query.name}", trigger)

    # What the user sees.

    @property
    def network(self) -> Network:
        return self._network

    @property
    def sinks(self) -> Mapping[str, Any]:
        """What each output is written to."""
        return self._sinks

    @property
    def samples(self) -> Sequence[FlowSample]:
        """What the controller was told, in order: the newest 10,000."""
        return self._samples

    @property
    def queries(self) -> dict[str, StreamingQuery]:
        """By name; none once the network is closed."""
        return {name: query.query for name, query in self._queries.items() if query.query is not None}

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def controller(self) -> NetworkController:
        return self._controller

    @property
    def policy(self) -> str:
        return self._controller.policy.name

    @policy.setter
    def policy(self, policy: str | NetworkPolicy) -> None:
        chosen = live_policy(policy) if isinstance(policy, str) else policy
        with self._lock:
            physical, queries = self._weighed(chosen)
            known = replace(self._controller.catalog, costs=physical.costs)
            self._controller.use(chosen, known, queries)

    @property
    def load_shedders(self) -> dict[str, LoadShedder]:
        """The handle of each load-aware box: its counts, latencies and learned costs."""
        return {name: box.shedder for name, box in self._load_aware.items()}

    @property
    def mode(self) -> Mode:
        return self._controller.mode

    @mode.setter
    def mode(self, mode: str | Mode) -> None:
        with self._lock:
            self._controller.configure(arguments.check_mode(mode), time.time())
            for shedder in self.load_shedders.values():
                shedder.mode = mode
            if self._pinned is not None:
                self._pinned = self._pinned_plan(self._pinned.wanted)
            self._adopt()

    @property
    def latency(self) -> float:
        """The bound, in seconds."""
        return self._controller.latency

    @latency.setter
    def latency(self, latency: str | float | timedelta) -> None:
        with self._lock:
            self._controller.latency = seconds(latency, "latency")

    def pin(self, drops: Sequence[Drop] | None) -> None:
        """Carry out these drops, whatever the load is; None gives the decision back."""
        with self._lock:
            if drops is not None:
                self._slots.encode(drops)
            self._pinned = None if drops is None else self._pinned_plan(tuple(drops))
            self._adopt()

    def _pinned_plan(self, drops: tuple[Drop, ...]) -> Plan:
        enforced = drops if self.mode is Mode.ENFORCE else ()
        return Plan(drops=enforced, wanted=drops, reason="pinned by hand", mode=self.mode, at=time.time())

    def on_plan(self, callback: Callable[[Plan], None]) -> None:
        """Have `callback(plan)` called at each change of plan, on Streamshed's own thread."""
        self._diary.on_plan(callback)

    def rows(self, output: str) -> list[Row]:
        """The rows that an output with a memory sink got."""
        sink = self.sinks.get(output)
        if not isinstance(sink, MemorySink):
            raise InvalidArgument("this output does not write to memory", got=repr(output))
        return sink.rows

    def report(self) -> NetworkReport:
        with self._lock:
            return report_of(self._books.values())

    def utility(self, output: str) -> float:
        """What an output has of what it got, between 0 and 1.

        Its loss graph at the share of its rows that it got so far, times its latency graph at the latency of its
        last batch: rows that nobody can use any more are worth nothing, however many they are.
        """
        catalog = self._controller.catalog
        if self._graphs is None or self._graphs[0] is not catalog:
            self._graphs = (catalog, loss_graphs(catalog))
        utility = self._graphs[1][output](self.report().percent.get(output, 100.0))
        late = next(each.qos.latency for each in self.network.outputs if each.name == output)
        books = next(self._books[query.name] for query in self._layout.queries if output in query.outputs)
        return utility * late(books.latency_last) if late is not None and books.batches else utility

    def failure(self) -> StreamshedError | None:
        """What ended a query, if one has failed: Spark's own words at the end."""
        for name, query in self.queries.items():
            error = query.exception()
            if error is not None:
                return NetworkFailed(
                    f"the query {name!r} of {self.network.name!r} failed and all were stopped:\n{error}"
                )
        return self._failed

    def process_all_available(self) -> None:
        """Wait until everything that is there now is processed (for tests)."""
        for query in self.queries.values():
            query.processAllAvailable()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until every query has ended; raises what ended one of them."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for query in self.queries.values():
            while query.isActive:
                if deadline is not None and time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
        self.settle()
        failed = self.failure()
        if failed is not None:
            raise failed
        return True

    def settle(self, timeout: float = 5.0) -> bool:
        """Wait until the books have every batch of the queries that have ended."""
        deadline = time.monotonic() + timeout
        while self._running & {name for name, query in self.queries.items() if not query.isActive}:
            # The books are kept by the thread that calls an on_plan callback.
            if time.monotonic() > deadline or self._diary.is_telling:
                return False
            time.sleep(0.02)
        return True

    def stop(self) -> None:
        """Stop the queries; their checkpoints stay, and so does this handle with its report."""
        for query in self._queries.values():
            with contextlib.suppress(Exception):
                query.stop()
        self.settle()

    def close(self) -> None:
        """Stop, and let go of everything that was made for this network; the report can still be read.

        Listeners and threads go (with the last stream of the session that uses them), and so do functions known to
        SQL, and the folder of the checkpoints if nobody named one. Closing twice is closing once.
        """
        if self._closed:
            return
        self.stop()
        with contextlib.suppress(Exception):
            self._failed = self.failure()
        with self._lock:
            self._closed = True
            self._diary.close()
        for shedder in self.load_shedders.values():
            with contextlib.suppress(Exception):
                getattr(shedder, "close", lambda: None)()
        for query in self._queries.values():
            with contextlib.suppress(Exception):
                query.close()
        drop_functions(self._spark, self._functions)
        if self._temporary is not None:
            # Spark may have taken the name for one on its own default file system.
            with contextlib.suppress(Exception):
                Store(self._spark, self._temporary).delete()
            shutil.rmtree(self._temporary, ignore_errors=True)

    # What the queries call.

    def attached(self, query: NetworkQuery) -> None:
        with self._lock:
            self._running.add(query.name)
            try:
                saved = self._store.read(f"{query.name}.json")
                if saved:
                    self._books[query.name] = Books.decode(saved)
            except Exception as error:
                self._warn(f"the books of {query.name!r} cannot be read and begin anew", error)
            self._diary.begin(self.report())

    def ended(self, query: NetworkQuery) -> None:
        with self._lock:
            self._running.discard(query.name)
        failed = query.query is not None and query.query.exception() is not None
        if failed:
            # A network without one of its parts would look alive; it stops as one.
            for other in self._queries.values():
                with contextlib.suppress(Exception):
                    other.stop()
        self._diary.tell()

    def look_after(self) -> float:
        return 0.4 * self.latency

    def finished(self, query: NetworkQuery, sample: FlowSample) -> None:
        with self._lock:
            books = self._books[query.name]
            if sample.batch <= books.last_batch:
                return
            self._follow_file()
            books.add(sample, query, self.latency, self._measured())
            saved = books.encode()
            if sum(sample.arrived.values()) and not sample.rehearsal:
                self._observe(sample)
            else:
                self._adopt()
            self._diary.still(self._plan, self._left(self._plan.drops), self.report(), self.latency)
        self._save(query, saved)
        self._diary.tell()

    def missed(self, query: NetworkQuery, batch: int) -> None:
        """A batch was done that nobody counted."""
        with self._lock:
            self._books[query.name].miss(batch)
            saved = self._books[query.name].encode()
        self._save(query, saved)

    def running(self, query: NetworkQuery, sample: FlowSample) -> None:
        with self._lock:
            if not sample.rehearsal:
                self._observe(sample)
        self._diary.tell()

    def renew(self, now: float) -> None:
        """Have the plan in force go on, if it is half over: while a batch runs, nothing else renews it.

        A plan that nobody needs any more, because nothing runs, may end.
        """
        with self._lock:
            published, renew_at = self._published
            if published and now >= renew_at and self._running and (self._pinned is not None or self._busy()):
                self._adopt(now)
        self._diary.tell()

    def fail_open(self, problem: BaseException) -> None:
        """Something of ours broke: keep every row."""
        with self._lock:
            # What the next batch reads comes first, and needs no storage: that may be what broke.
            self._control.open_row()
            if not self._published[0]:
                return
            self._published = ((), 0.0)
            log.warning("%s: rows are all kept from now on, because of: %s", self.network.name, problem)
            self._announce(
                Plan(reason=f"all rows are kept, because of: {problem}", mode=self.mode, at=time.time())
            )
            try:
                self._publish(())
            except Exception as error:
                self._control.open_row()
                self._warn("that all rows are kept could not be written down", error)

    def _follow_file(self) -> None:
        try:
            same = self._control.follow()
        except Exception as error:
            self._warn("the control file cannot be read; what was published last holds", error)
            return
        if not same:
            log.warning(
                "%s: the control file was changed or removed by somebody else; what it says now holds, "
                "and rows are kept if it says nothing: %s",
                self.network.name,
                self._control.path,
            )

    def _save(self, query: NetworkQuery, saved: bytes) -> None:
        """Without the lock: storage may take its time."""
        try:
            self._store.write(f"{query.name}.json", saved)
        except Exception as error:
            self._warn("the books cannot be written; they are right as long as this process lives", error)

    def _busy(self) -> bool:
        """Whether any query is in a batch."""
        for query in self.queries.values():
            with contextlib.suppress(Exception):
                if query.isActive and query.status["isDataAvailable"]:
                    return True
        return False

    def _warn(self, what: str, error: BaseException) -> None:
        """Once a kind."""
        kind = f"{what}: {type(error).__name__}"
        level = logging.DEBUG if kind in self._warned else logging.WARNING
        self._warned.add(kind)
        log.log(level, "%s: %s (%s: %s)", self.network.name, what, type(error).__name__, str(error)[:500])

    def _weighed(self, policy: NetworkPolicy) -> tuple[Catalog, dict[str, Catalog]]:
        """What really runs and could be saved by this policy, in all and by query."""
        layout = self._layout
        catalog = self._costs if getattr(policy, "by_value", False) else layout.parsing(self._costs)
        return layout.physical(catalog), {query.name: layout.of_query(catalog, query) for query in layout.queries}

    def _measured(self) -> Catalog:
        """The catalog with the selectivities seen so far."""
        return self._controller.catalog.measured(selectivities=self._controller.selectivities)

    def sampled(self, source: str, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Some values of a source, as they came in. Called from a batch, which must not wait for our lock."""
        self._spreads.add(source, values)

    def _learn(self) -> None:
        """Plan with what was measured, once that is far from what the plans were made with."""
        if time.monotonic() < self._learn_at:
            return
        catalog = self._measured()
        known = self._controller.catalog.selectivities
        off = any(
            abs(rows - known[box]) > _OFF * max(known[box], 0.01) for box, rows in catalog.selectivities.items()
        )
        before = catalog.network.sources
        sources = tuple(replace(source, values=self._spreads.of(source, _OFF)) for source in before)
        if off or any(now.values != then.values for now, then in zip(sources, before, strict=True)):
            self._learn_at = time.monotonic() + _LEARN_EVERY
            network = replace(catalog.network, sources=sources)
            self._controller.use(self._controller.policy, replace(catalog, network=network))

    def _observe(self, sample: FlowSample) -> None:
        self._samples.append(sample)
        if sample.finished:
            self._learn()
        self._controller.observe(sample)
        self._adopt()

    def _adopt(self, now: float | None = None) -> None:
        """Have the plan carried out that is wanted now."""
        if self._closed:
            return
        plan = self._pinned or self._controller.plan
        published, renew_at = self._published
        late = bool(published) and (time.time() if now is None else now) >= renew_at
        if late or tuple(plan.drops) != tuple(published):
            try:
                self._publish(plan.drops)
            except Exception as error:
                # A plan that is not stored must not be carried out: a batch that runs again would not find it.
                self._control.open_row()
                self._warn("a plan could not be stored, and all rows are kept", error)
                self.fail_open(error)
                return
        if plan is not self._adopted:
            self._adopted = plan
            self._announce(plan)

    def _announce(self, plan: Plan) -> None:
        self._plan = replace(plan, version=self._plan.version + 1)
        self._diary.change(self._plan, self._left(plan.drops), self.report(), self.latency)

    def _publish(self, drops: Sequence[Drop]) -> None:
        lease = max(20.0, 5.0 * self.latency) if self._pinned is None else 86400.0
        self._control.publish(self._slots.encode(drops), self._left(drops), lease)
        self._published = (tuple(drops), time.time() + lease / 2.0)

    def _left(self, drops: Sequence[Drop]) -> float:
        """Share of the work that is left by drops that are in force, or about to be."""
        if not drops:
            return 1.0
        share = self._controller.share if self._pinned is None else self._slots.left(drops, self._measured())
        # Below 1 is how a query tells a plan with drops from one without.
        return min(share, 0.999)
