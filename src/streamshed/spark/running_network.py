"""The handle of a running network: what its queries did comes in, one plan for all of them goes out."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument, StreamshedError
from streamshed.loop import Controller, Limits, QueryLoad
from streamshed.loop.arrival_rate import ArrivalRate
from streamshed.loop.network_shedding import NetworkShedding
from streamshed.loop.workload import CatalogWork
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Network, Udf
from streamshed.network.qos import LossGraph
from streamshed.network.values import loss_graphs
from streamshed.policies.contract import NetworkPolicy
from streamshed.policies.registry import live_policy
from streamshed.records import Drop, Mode, Plan, Sample
from streamshed.spark import arguments
from streamshed.spark.fused_query import FusedQuery
from streamshed.spark.handle import Handle
from streamshed.spark.journal import Journal
from streamshed.spark.layout import Layout
from streamshed.spark.load_aware_box import LoadAwareBox
from streamshed.spark.load_shedder import LoadShedder
from streamshed.spark.network_books import Books, NetworkReport, report_of
from streamshed.spark.network_control import NetworkControl
from streamshed.spark.network_diary import Diary
from streamshed.spark.network_enforcer import Enforcer
from streamshed.spark.network_query import NetworkQuery
from streamshed.spark.orders.store import Store
from streamshed.spark.prepare import function_of
from streamshed.spark.sinks import MemorySink
from streamshed.spark.slots import Slots
from streamshed.spark.stateful_query import StatefulQuery
from streamshed.spark.statistics import Spreads

log = logging.getLogger("streamshed")

_OFF = 0.1  # a selectivity this far from the planned one is worth planning anew
_LEARN_EVERY = 10.0  # seconds, at least: the tables of a large network take a while to build


class NetworkFailed(StreamshedError):
    """A query of a network failed while it ran."""


class RunningNetwork(Handle):
    """The handle of a running network: its queries, its plan and why, its books, and its settings.

    `latency`, `mode`, `floor` and `policy` can be set while it runs. As a context manager it closes itself:

        with ss.run(spark, network, …) as running:
            running.await_termination(60)
    """

    settings: ClassVar[tuple[str, ...]] = ("latency", "mode", "floor", "policy")
    network: Network
    sinks: Mapping[str, Any]
    """What each output is written to."""
    samples: deque[Sample]
    """What the controller was told, in order: the newest 10,000."""

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        policy: NetworkPolicy,
        latency: float,
        limits: Limits,
        place: Store,
        sinks: Mapping[str, Any],
        functions: Mapping[str, str],
    ) -> None:
        """`place` is the folder of the checkpoints; it goes with this handle if it is a temporary one."""
        super().__init__(network.name)
        self.network = network
        self.sinks = sinks
        self.samples = deque(maxlen=10_000)
        self._functions = functions
        self._spark = spark
        self._place = place
        self._store = Store(spark, place.path("streamshed"))
        self._layout = Layout.of(network)
        self._slots = Slots.of(network)
        names = [query.name for query in self._layout.queries]
        control = NetworkControl(self._store, self._slots.size, queries=names)
        cores = float(spark.sparkContext.defaultParallelism)
        self._costs = Catalog.of(network, capacity=cores)
        physical, works = self._weighed(policy)
        outputs = {query.name: query.outputs for query in self._layout.queries}
        self._shedding = NetworkShedding(
            policy, physical, rate=lambda: ArrivalRate(window=self.latency / 2.0), outputs=outputs
        )
        self._works = {name: CatalogWork(one, self._selectivities) for name, one in works.items()}
        self._controller = Controller(
            self._shedding,
            latency=latency,
            limits=limits,
            load=lambda query, bound: QueryLoad(bound, work=self._works[query], lasting=True),
            version=control.version,
        )
        self._load_aware = {
            box.name: LoadAwareBox(spark, network, box, function_of(box), self._store, limits.mode)
            for box in network.boxes
            if isinstance(box, Udf) and box.load_aware is not None
        }
        self._queries: dict[str, NetworkQuery] = {}
        self._running: set[str] = set()
        self._books: dict[str, Books] = {name: Books() for name in names}
        self._pinned: Plan | None = None
        # The plan in force, and what it was made of: versions are counted here, for all who make plans.
        self._plan = self._adopted = self._controller.plan
        self._control = control
        self._enforcer = Enforcer(network.name, control, self._slots, self._plan, self._grumble)
        self._diary = Diary(network.name, Journal(self._store, "network"))
        self._learn_at = 0.0
        self._graphs: tuple[Catalog, dict[str, LossGraph]] | None = None
        self._spreads = Spreads()
        self._failed: StreamshedError | None = None

    def launch(self, rows: Mapping[str, DataFrame], trigger: Mapping[str, Any]) -> None:
        """Start the queries."""
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
                self._functions,
                self._load_aware,
            )
            self._queries[made.name] = made
        for query in self._queries.values():
            query.start(self._place.path(query.name), f"{self.network.name}-{query.name}", trigger)

    # What the user sees.

    @property
    def queries(self) -> dict[str, StreamingQuery]:
        """By name; none once the network is closed."""
        return {name: query.query for name, query in self._queries.items() if query.query is not None}

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def rates(self) -> dict[str, float]:
        """Rows per second of each source, as measured; those of the spec where nothing was seen yet."""
        return self._shedding.rates

    @property
    def load(self) -> float:
        """Core-seconds per second that the measured rates ask for, by the costs of the spec."""
        return self._shedding.load

    @property
    def limit(self) -> float | None:
        """The load that can be carried, on the same scale; None while it is not known, and if none can be."""
        return self._shedding.limit(self._controller.full_share)

    @property
    def latencies(self) -> dict[str, float]:
        """Of each output, the latency of its last batch."""
        return self._shedding.latencies

    @property
    def policy(self) -> str:
        return self._shedding.name

    @policy.setter
    def policy(self, policy: str | NetworkPolicy) -> None:
        chosen = live_policy(policy) if isinstance(policy, str) else policy
        with self._locked():
            physical, works = self._weighed(chosen)
            for name, one in works.items():
                self._works[name].catalog = one
            self._shedding.use(chosen, replace(self._shedding.catalog, costs=physical.costs))
            self._controller.replan()

    @property
    def load_shedders(self) -> dict[str, LoadShedder]:
        """The handle of each load-aware box: its counts, latencies and learned costs."""
        return {name: box.shedder for name, box in self._load_aware.items()}

    @property
    def mode(self) -> Mode:
        return self._controller.limits.mode

    @mode.setter
    def mode(self, mode: str | Mode) -> None:
        wanted = arguments.check_mode(mode)
        with self._locked():
            self._controller.configure(mode=wanted, at=time.time())
            for shedder in self.load_shedders.values():
                shedder.mode = wanted
            self._enforcer.release()
            if self._pinned is not None:
                self._pinned = self._pinned_plan(self._pinned.wanted)
            self._adopt()

    @property
    def floor(self) -> float:
        """Share of the work that is always done."""
        return self._controller.limits.floor

    @floor.setter
    def floor(self, floor: float) -> None:
        wanted = arguments.check_floor(floor)
        with self._locked():
            self._controller.configure(floor=wanted)

    @property
    def latency(self) -> float:
        """The bound, in seconds."""
        return self._controller.latency

    @latency.setter
    def latency(self, latency: str | float | timedelta) -> None:
        bound = seconds(latency, "latency")
        with self._locked():
            self._controller.configure(latency=bound)

    @property
    def control_path(self) -> str:
        """The file that says what is in force. Delete it, and every row is kept."""
        return self._control.path

    def pin(self, drops: Sequence[Drop] | None) -> None:
        """Carry out these drops, whatever the load is; None gives the decision back.

        The mode still rules: in "off" and "dry-run" nothing is dropped.
        """
        with self._locked():
            if drops is not None:
                self._slots.encode(drops)
            self._enforcer.release()
            self._pinned = None if drops is None else self._pinned_plan(tuple(drops))
            self._adopt()

    def _pinned_plan(self, drops: tuple[Drop, ...]) -> Plan:
        enforced = drops if self.mode is Mode.ENFORCE else ()
        return Plan(drops=enforced, wanted=drops, reason="pinned by hand", mode=self.mode, at=time.time())

    def rows(self, output: str) -> list[Row]:
        """The rows that an output with a memory sink got."""
        sink = self.sinks.get(output)
        if not isinstance(sink, MemorySink):
            raise InvalidArgument("this output does not write to memory", got=repr(output))
        return sink.rows

    def report(self) -> NetworkReport:
        """What came in, what was dropped where, and what came out; also of earlier runs with this checkpoint."""
        with self._lock:
            return report_of(self._books.values())

    def utility(self, output: str) -> float:
        """What an output has of what it got, between 0 and 1.

        Its loss graph at the share of its rows that it got so far, times its latency graph at the latency of its
        last batch: rows that nobody can use any more are worth nothing, however many they are.
        """
        catalog = self._shedding.catalog
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

    def settle(self, seconds: float = 5.0) -> bool:
        """Wait until the books have every batch of the queries that have ended; False if that takes too long."""
        deadline = time.monotonic() + seconds
        while self._running & {name for name, query in self.queries.items() if not query.isActive}:
            # A callback on the thread that keeps the books would wait for itself.
            if time.monotonic() > deadline or any(query.watched_here for query in self._queries.values()):
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

        Listeners and threads go (with the last stream of the session that uses them), and so do functions known
        to SQL, and the folder of the checkpoints if nobody named one. Closing twice is closing once.
        """
        if self._closed:
            return
        self.stop()
        with contextlib.suppress(Exception):
            self._failed = self.failure()
        with self._locked():
            self._closed = True
            self._diary.close()
            self._enforcer.close()
        for shedder in self.load_shedders.values():
            with contextlib.suppress(Exception):
                shedder.close()
        for query in self._queries.values():
            with contextlib.suppress(Exception):
                query.close()
        drop_functions(self._spark, self._functions)
        self._place.discard()

    def __repr__(self) -> str:
        report = self.report()
        arrived, shed = sum(report.arrived.values()), sum(report.shed.values())
        return (
            f"<RunningNetwork {self.name!r}: {self.policy}, {self.mode.value}, latency {self.latency:g} s, "
            f"{arrived:,} rows arrived, {shed:,} dropped>"
        )

    # What the queries call.

    def attached(self, query: NetworkQuery) -> None:
        with self._locked():
            self._running.add(query.name)
            try:
                saved = self._store.read(f"{query.name}.json")
                if saved:
                    self._books[query.name] = Books.decode(saved)
            except Exception as error:
                self._grumble(f"the books of {query.name!r} cannot be read and begin anew", error)
            self._diary.begin(self.report())
            if self._pinned is not None:
                # Nobody renewed it before there was a query.
                self._adopt(renew=True)
                self._enforcer.await_start()

    def ended(self, query: NetworkQuery) -> None:
        with self._locked():
            self._running.discard(query.name)
        failed = query.query is not None and query.query.exception() is not None
        if failed:
            # A network without one of its parts would look alive; it stops as one.
            for other in self._queries.values():
                with contextlib.suppress(Exception):
                    other.stop()

    def look_after(self) -> float:
        return 0.4 * self.latency

    def finished(self, query: NetworkQuery, sample: Sample) -> None:
        with self._locked():
            books = self._books[query.name]
            if sample.batch <= books.last_batch:
                return
            self._enforcer.recovered()
            self._enforcer.follow(self.mode)
            books.add(sample, query, self.latency, self._measured())
            saved = books.encode()
            if sample.arrived and not sample.rehearsal:
                self._observe(sample)
            else:
                self._adopt()
            self._diary.still(self._plan, self._enforcer.current.share, self.report(), self.latency)
        self._save(query, saved)

    def missed(self, query: NetworkQuery, batch: int) -> None:
        """A batch was done that nobody counted."""
        with self._locked():
            self._books[query.name].miss(batch)
            saved = self._books[query.name].encode()
        self._save(query, saved)

    def running(self, query: NetworkQuery, sample: Sample) -> None:
        with self._locked():
            if not sample.rehearsal:
                self._observe(sample)

    def renew(self, now: float) -> None:
        """Have the plan in force go on, if it is half over: while a batch runs, nothing else renews it.

        A plan that nobody needs any more, because nothing runs, may end.
        """
        with self._locked():
            if self._enforcer.is_due(now) and self._running and (self._pinned is not None or self._busy()):
                self._adopt(renew=True)

    def fail_open(self, problem: BaseException) -> None:
        """Something of ours broke: keep every row, until a batch can be read again."""
        with self._locked():
            self._enforcer.fail_open(problem, self.mode)
            self._announce()

    def sampled(self, source: str, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Some values of a source, as they came in. Called from a batch, which must not wait for our lock."""
        self._spreads.add(source, values)

    # How a plan is made.

    def _weighed(self, policy: NetworkPolicy) -> tuple[Catalog, dict[str, Catalog]]:
        """What really runs and could be saved by this policy, in all and by query."""
        layout = self._layout
        catalog = self._costs if getattr(policy, "by_value", False) else layout.parsing(self._costs)
        return layout.physical(catalog), {query.name: layout.of_query(catalog, query) for query in layout.queries}

    def _measured(self) -> Catalog:
        """The catalog with the selectivities seen so far."""
        return self._shedding.catalog.measured(selectivities=self._shedding.selectivities)

    def _selectivities(self) -> Mapping[str, float]:
        """What plans are made with."""
        return self._shedding.catalog.selectivities

    def _learn(self) -> None:
        """Plan with what was measured, once that is far from what the plans were made with."""
        if time.monotonic() < self._learn_at:
            return
        catalog = self._measured()
        known = self._selectivities()
        off = any(
            abs(rows - known[box]) > _OFF * max(known[box], 0.01) for box, rows in catalog.selectivities.items()
        )
        before = catalog.network.sources
        sources = tuple(replace(source, values=self._spreads.of(source, _OFF)) for source in before)
        if off or any(now.values != then.values for now, then in zip(sources, before, strict=True)):
            self._learn_at = time.monotonic() + _LEARN_EVERY
            network = replace(catalog.network, sources=sources)
            self._shedding.use(self._shedding.policy, replace(catalog, network=network))
            self._controller.replan()

    def _observe(self, sample: Sample) -> None:
        self.samples.append(sample)
        if sample.finished:
            self._learn()
        self._controller.observe(sample)
        self._adopt()

    def _adopt(self, *, renew: bool = False) -> None:
        """Have the plan carried out that is wanted now."""
        if self._closed:
            return
        plan = self._pinned or self._controller.plan
        self._enforcer.carry_out(plan, self._left(plan.drops), max(20.0, 5.0 * self.latency), renew=renew)
        self._announce()

    def _announce(self) -> None:
        """Tell of the plan in force, if it is another."""
        carried = self._enforcer.current
        if carried.plan is self._adopted:
            return
        self._adopted = carried.plan
        self._plan = replace(carried.plan, version=self._plan.version + 1)
        self._diary.change(self._plan, carried.share, self.report(), self.latency)
        self._untold.append(self._plan)

    def _left(self, drops: Sequence[Drop]) -> float:
        """Share of the work that is left by drops that are wanted."""
        if not drops:
            return 1.0
        share = self._controller.share if self._pinned is None else self._slots.left(drops, self._measured())
        # Below 1 is how a query tells a plan with drops from one without.
        return min(share, 0.999)

    def _save(self, query: NetworkQuery, saved: bytes) -> None:
        """Without the lock: storage may take its time."""
        try:
            self._store.write(f"{query.name}.json", saved)
        except Exception as error:
            self._grumble("the books cannot be written; they are right as long as this process lives", error)

    def _busy(self) -> bool:
        """Whether any query is in a batch."""
        for query in self.queries.values():
            with contextlib.suppress(Exception):
                if query.isActive and query.status["isDataAvailable"]:
                    return True
        return False


def drop_functions(spark: SparkSession, functions: Mapping[str, str]) -> None:
    """Forget the functions of udf boxes, which are known to SQL in the user's session."""
    for name in functions.values():
        with contextlib.suppress(Exception):
            spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")
