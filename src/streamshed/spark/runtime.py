"""`run`: a network on Spark, live. Compiles it, starts its queries, and sheds by policy while they run."""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
import threading
import time
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
from streamshed.spark.layout import Layout
from streamshed.spark.load_aware_box import LoadAwareBox
from streamshed.spark.load_shedder import LoadShedder
from streamshed.spark.network_books import Books, NetworkReport, report_of
from streamshed.spark.network_control import NetworkControl
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
from streamshed.spark.statistics import ValueSample

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
    rows = streams(spark, network, sources)
    specs = check_sinks(network, sinks)
    check_formats(spark, specs)
    functions = register_functions(spark, network)
    check_boxes(spark, network, rows, functions)
    made_sinks = {name: sink_for(spark, name, spec) for name, spec in specs.items()}
    folder = checkpoint or tempfile.mkdtemp(prefix="streamshed-")
    running = RunningNetwork(spark, network, chosen, bound, wanted, Store(spark, f"{folder}/streamshed"))
    running.sinks = made_sinks
    if pinned is not None:
        running.pin(pinned)
        time.sleep(0.05)  # a plan starts a little in the future: let the first batch be after that
    running.launch(rows, functions, folder, trigger or {})
    return running


class NetworkFailed(StreamshedError):
    """A query of a network failed while it ran."""


class RunningNetwork:
    """The handle of a running network: its queries, its plan and why, its books, and its settings."""

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        policy: NetworkPolicy,
        latency: float,
        mode: Mode,
        store: Store,
    ) -> None:
        self.network = network
        self.sinks: Mapping[str, Any] = {}
        self._spark = spark
        self._store = store
        self._layout = Layout.of(network)
        self._slots = Slots.of(network)
        self._control = NetworkControl(store, self._slots.size)
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
        self._books: dict[str, Books] = {query.name: Books() for query in self._layout.queries}
        self._published: tuple[Sequence[Drop], float] = ((), 0.0)
        self._pinned: tuple[Drop, ...] | None = None
        self._callbacks: list[Callable[[Plan], None]] = []
        self._lock = threading.RLock()
        self._learn_at = 0.0
        self._graphs: tuple[Catalog, dict[str, LossGraph]] | None = None
        self._values: dict[tuple[str, str], ValueSample] = {}
        self.samples: list[FlowSample] = []
        """What the controller was told, in order."""

    def launch(
        self,
        rows: Mapping[str, DataFrame],
        functions: Mapping[str, str],
        folder: str,
        trigger: Mapping[str, Any],
    ) -> None:
        for layout in self._layout.queries:
            kind = StatefulQuery if layout.stateful else FusedQuery
            made = kind(
                self._spark,
                layout,
                self._slots,
                self._control,
                self,
                rows,
                self.sinks,
                functions,
                self._load_aware,
            )
            self._queries[made.name] = made
        try:
            for query in (self._queries[layout.name] for layout in self._layout.queries):
                query.start(f"{folder}/{query.name}", f"{self.network.name}-{query.name}", trigger)
        except Exception:
            self.stop()
            raise

    # What the user sees.

    @property
    def queries(self) -> dict[str, StreamingQuery]:
        return {name: query.query for name, query in self._queries.items() if query.query is not None}

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._controller.plan

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
            self._pinned = None if drops is None else tuple(drops)
            self._adopt()

    def on_plan(self, callback: Callable[[Plan], None]) -> None:
        """Have `callback(plan)` called at each change of plan, on Streamshed's own thread."""
        self._callbacks.append(callback)

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
        """What the loss graph of an output makes of the share that it got so far."""
        catalog = self._controller.catalog
        if self._graphs is None or self._graphs[0] is not catalog:
            self._graphs = (catalog, loss_graphs(catalog))
        return self._graphs[1][output](self.report().percent.get(output, 100.0))

    def failure(self) -> StreamshedError | None:
        """What ended a query, if one has failed: Spark's own words at the end."""
        for name, query in self.queries.items():
            error = query.exception()
            if error is not None:
                return NetworkFailed(
                    f"the query {name!r} of {self.network.name!r} failed and all were stopped:\n{error}"
                )
        return None

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
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def stop(self) -> None:
        """Stop the queries; their checkpoints stay."""
        for query in self._queries.values():
            with contextlib.suppress(Exception):
                query.stop()
        self.settle()

    # What the queries call.

    def attached(self, query: NetworkQuery) -> None:
        with self._lock:
            self._running.add(query.name)
            saved = self._store.read(f"{query.name}.json")
            if saved:
                with contextlib.suppress(ValueError, TypeError):
                    self._books[query.name] = Books(**json.loads(saved))

    def ended(self, query: NetworkQuery) -> None:
        with self._lock:
            self._running.discard(query.name)
        failed = query.query is not None and query.query.exception() is not None
        if failed:
            # A network without one of its parts would look alive; it stops as one.
            for other in self._queries.values():
                with contextlib.suppress(Exception):
                    other.stop()

    def look_after(self) -> float:
        return 0.4 * self.latency

    def finished(self, query: NetworkQuery, sample: FlowSample) -> None:
        with self._lock:
            books = self._books[query.name]
            if sample.batch <= books.last_batch:
                return
            if not self._control.follow():
                log.warning(
                    "%s: the control file was changed or removed by somebody else; what it says now holds, "
                    "and rows are kept if it says nothing: %s",
                    self.network.name,
                    self._control.path,
                )
            books.add(sample, query, self.latency, self._measured())
            self._store.write(f"{query.name}.json", json.dumps(books.__dict__).encode())
            if sum(sample.arrived.values()) and not sample.rehearsal:
                self._observe(sample)
            else:
                self._adopt()

    def running(self, query: NetworkQuery, sample: FlowSample) -> None:
        with self._lock:
            if not sample.rehearsal:
                self._observe(sample)

    def fail_open(self, problem: BaseException) -> None:
        with self._lock, contextlib.suppress(Exception):
            if self._published[0]:
                log.warning("%s: rows are all kept from now on, because of: %s", self.network.name, problem)
                self._publish(())

    def _weighed(self, policy: NetworkPolicy) -> tuple[Catalog, dict[str, Catalog]]:
        """What really runs and could be saved by this policy, in all and by query."""
        layout = self._layout
        catalog = self._costs if getattr(policy, "by_value", False) else layout.parsing(self._costs)
        return layout.physical(catalog), {query.name: layout.of_query(catalog, query) for query in layout.queries}

    def _measured(self) -> Catalog:
        """The catalog with the selectivities seen so far."""
        return self._controller.catalog.measured(selectivities=self._controller.selectivities)

    def sampled(self, source: str, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Some values of a source, as they came in."""
        with self._lock:
            for field_name, seen in values.items():
                self._values.setdefault((source, field_name), ValueSample()).add(seen)

    def _learn(self) -> None:
        """Plan with what was measured, once that is far from what the plans were made with."""
        if time.monotonic() < self._learn_at:
            return
        catalog = self._measured()
        known = self._controller.catalog.selectivities
        off = any(
            abs(rows - known[box]) > _OFF * max(known[box], 0.01) for box, rows in catalog.selectivities.items()
        )
        sources = []
        for source in catalog.network.sources:
            spread = dict(source.values)
            for (name, column), sample in self._values.items():
                histogram = sample.histogram() if name == source.name else None
                if histogram is not None and (column not in spread or sample.distance(spread[column]) > _OFF):
                    spread[column] = histogram
                    off = True
            sources.append(replace(source, values=spread))
        if off:
            self._learn_at = time.monotonic() + _LEARN_EVERY
            network = replace(catalog.network, sources=tuple(sources))
            self._controller.use(self._controller.policy, replace(catalog, network=network))

    def _observe(self, sample: FlowSample) -> None:
        self.samples.append(sample)
        if sample.finished:
            self._learn()
        before = self._controller.plan
        plan = self._controller.observe(sample)
        self._adopt()
        if plan is not before:
            for callback in self._callbacks:
                try:
                    callback(plan)
                except Exception:
                    log.warning("%s: an on_plan callback failed", self.network.name, exc_info=True)

    def _adopt(self) -> None:
        drops: Sequence[Drop] = self._controller.plan.drops
        if self._pinned is not None:
            drops = self._pinned if self.mode is Mode.ENFORCE else ()
        published, renew_at = self._published
        if tuple(drops) != tuple(published) or (published and time.time() >= renew_at):
            self._publish(drops)

    def _publish(self, drops: Sequence[Drop]) -> None:
        lease = max(20.0, 5.0 * self.latency) if self._pinned is None else 86400.0
        share = self._controller.share if self._pinned is None else (0.5 if drops else 1.0)
        # Below 1 is how a query tells a plan with drops from one without.
        share = min(share, 0.999) if drops else 1.0
        self._control.publish(self._slots.encode(drops), share, lease)
        self._published = (tuple(drops), time.time() + lease / 2.0)
