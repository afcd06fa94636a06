"""The handle of a running network: what its queries did comes in, one plan for all of them goes out."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.errors import InvalidArgument, StreamshedError
from streamshed.loop import Controller, Limits, QueryLoad
from streamshed.loop.arrival_rate import ArrivalRate
from streamshed.loop.network_shedding import NetworkShedding
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Network, Udf
from streamshed.network.qos import LossGraph
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.policies.contract import NetworkPolicy
from streamshed.policies.registry import network_policy
from streamshed.quality import Ledger, Report
from streamshed.quality.recent_information import WINDOW
from streamshed.records import Drop, Mode, Plan, Sample
from streamshed.spark import arguments
from streamshed.spark.handle import is_news, setting
from streamshed.spark.journal import Journal
from streamshed.spark.load_aware.load_shedder import LoadShedder
from streamshed.spark.network.books import batch_report
from streamshed.spark.network.diary import Diary
from streamshed.spark.network.fused_query import FusedQuery
from streamshed.spark.network.load_aware_box import LoadAwareBox
from streamshed.spark.network.network_control import NetworkControl
from streamshed.spark.network.network_query import NetworkQuery
from streamshed.spark.network.number_carrier import NumberCarrier
from streamshed.spark.network.parsed_work import ParsedWork
from streamshed.spark.network.prepare import check_expired, function_of
from streamshed.spark.network.query_layout import NetworkLayout
from streamshed.spark.network.sinks import MemorySink
from streamshed.spark.network.slots import Slots
from streamshed.spark.network.stateful_query import StatefulQuery
from streamshed.spark.network.statistics import Spreads
from streamshed.spark.orders.batch_clock import BatchClock, BatchLimits
from streamshed.spark.orders.budget_carrier import BudgetCarrier
from streamshed.spark.orders.enforcer import Enforcer
from streamshed.spark.orders.store import Store
from streamshed.spark.planned_handle import PlannedHandle
from streamshed.spark.watch.clock_skew import ClockSkew

log = logging.getLogger("streamshed")

_OFF = 0.1  # a selectivity this far from the planned one is worth planning anew
_LEARN_EVERY = 10.0  # seconds, at least: the tables of a large network take a while to build


class NetworkFailed(StreamshedError):
    """A query of a network failed while it ran."""


class RunningNetwork(PlannedHandle):
    """The handle of a running network: its queries, its plan and why, its books, and its settings.

    `latency`, `mode`, `floor`, `max_shed`, `budget`, `expired` and `policy` can be set while it runs. As a context
    manager it closes itself:

        with ss.run(spark, network, …) as running:
            running.await_termination(60)
    """

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
        budget: float | None = None,
        expired: str = "keep",
    ) -> None:
        """`place` is the folder of the checkpoints; it goes with this handle if it is a temporary one.

        `budget`: seconds that a batch is given at most; 0: no budget at all, None: what is right.
        """
        super().__init__(network.name)
        self.network = network
        self.sinks = sinks
        self.samples = deque(maxlen=10_000)
        self._functions = functions
        self._expired = expired
        self._spark = spark
        self._place = place
        self._store = Store(spark, place.path("streamshed"))
        self._layout = NetworkLayout.of(network)
        self._slots = Slots.of(network)
        names = [query.name for query in self._layout.queries]
        control = NetworkControl(self._store, self._slots.size, queries=names)
        cores = float(spark.sparkContext.defaultParallelism)
        self._costs = Catalog.of(network, capacity=cores)
        self._clock = BatchClock(spark)
        self._clocks = ClockSkew.of(spark)
        self._budget = BudgetCarrier(self._clock, budget, int(cores), self._clocks.agree)
        outputs = {query.name: query.outputs for query in self._layout.queries}
        self._shedding = NetworkShedding(
            policy,
            self._layout.physical(self._costs),
            rate=lambda: ArrivalRate(window=self.latency / 2.0),
            outputs=outputs,
        )
        self._works = {
            query.name: ParsedWork(self._layout.of_query(self._costs, query), self._selectivities)
            for query in self._layout.queries
        }
        self._controller = Controller(
            self._shedding,
            latency=latency,
            limits=limits,
            load=lambda query, bound: QueryLoad(bound, work=self._works[query]),
            version=control.version,
        )
        self._load_aware = {
            box.name: LoadAwareBox(spark, network, box, function_of(box), self._store, limits.mode)
            for box in network.boxes
            if isinstance(box, Udf) and box.load_aware is not None
        }
        self._queries: dict[str, NetworkQuery] = {}
        self._running: set[str] = set()
        self._ledger = Ledger()
        self._pinned: Plan | None = None
        # The plan in force, and what it was made of: versions are counted here, for all who make plans.
        self._plan = self._adopted = self._controller.plan
        self._control = control
        carrier = NumberCarrier(control, self._slots, self._left)
        self._enforcer = Enforcer(network.name, carrier, self._plan, self._grumble)
        self._diary = Diary(network.name, Journal(self._store, "network"))
        self._learn_at = 0.0
        self._graphs: tuple[Catalog, dict[str, LossGraph]] | None = None
        self._spreads = Spreads()
        self._needs: Mapping[str, tuple[bool, float]] = {}
        self._work: tuple[Catalog | None, tuple[Drop, ...], Mapping[str, float]] = (None, (), {})
        self._warned_of_window = False
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
                self._clock,
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
    def sic(self) -> dict[str, float]:
        """Of each output, the share of its sources' information that it got over the last source time window."""
        return self._shedding.sic

    @property
    def sic_too_late(self) -> float | None:
        """The delay of the slowest output, seconds, if the source time window is not longer; else None."""
        return self._shedding.sic_too_late

    @setting
    def policy(self) -> str:
        return self._shedding.name

    @property
    def load_shedders(self) -> dict[str, LoadShedder]:
        """The handle of each load-aware box: its counts, latencies and learned costs."""
        return {name: box.shedder for name, box in self._load_aware.items()}

    def configure(self, *, policy: str | NetworkPolicy | None = None, **settings: Any) -> None:
        """Change settings while the queries run; the next batches see them."""
        chosen = network_policy(policy) if isinstance(policy, str) else policy
        super().configure(**settings)
        if chosen is not None:
            with self._locked():
                self._shedding.use(chosen, self._shedding.catalog)
                self._controller.replan()

    def _mode_set(self, mode: Mode) -> None:
        for shedder in self.load_shedders.values():
            shedder.mode = mode
        super()._mode_set(mode)

    @property
    def control_path(self) -> str:
        """The file that says what is in force. Delete it, and every row is kept."""
        return self._control.path

    def pin(
        self, drops: Sequence[Drop] | None, *, budget: str | float | timedelta | None = None, grace: int = 0
    ) -> None:
        """Carry out these drops, whatever the load is; None gives the decision back.

        With a `budget`, rows that come later than that in their batch are dropped as well, but for `grace`
        rows, the first of each task. The mode still rules: in "off" and "dry-run" nothing is dropped.
        """
        allowed = None if budget is None else arguments.check_budget(budget, self.latency)
        with self._locked():
            if drops is not None:
                self._slots.encode(drops)
            self._enforcer.release()
            self._pinned = None if drops is None else self._pinned_plan(tuple(drops), allowed, grace)
            self._adopt()

    def _pinned_plan(self, drops: tuple[Drop, ...], budget: float | None, grace: int) -> Plan:
        enforced = drops if self.mode is Mode.ENFORCE else ()
        return Plan(
            drops=enforced,
            wanted=drops,
            reason="pinned by hand",
            mode=self.mode,
            at=time.time(),
            budget=budget,
            grace=grace,
        )

    def rows(self, output: str) -> list[Row]:
        """The rows that an output with a memory sink got."""
        sink = self.sinks.get(output)
        if not isinstance(sink, MemorySink):
            raise InvalidArgument("this output does not write to memory", got=repr(output))
        return sink.rows

    def report(self) -> Report:
        """What came in, what was dropped where, and what came out; also of earlier runs with this checkpoint."""
        with self._lock:
            report = self._ledger.report()
        by_query = {name: self._valued(part) for name, part in report.by_query.items()}
        return replace(self._valued(report), by_query=by_query)

    def _valued(self, report: Report) -> Report:
        """A report with the utilities of its outputs."""
        outputs = {
            name: replace(counts, utility=self._utility(name, counts.percent))
            for name, counts in report.by_output.items()
        }
        return replace(report, by_output=outputs)

    def utility(self, output: str) -> float:
        """What an output has of what it got, between 0 and 1.

        Its loss graph at the share of its rows that it got so far, times its latency graph at the latency of its
        last batch: rows that nobody can use any more are worth nothing, however many they are.
        """
        with self._lock:
            counts = self._ledger.report().by_output.get(output)
        return self._utility(output, 100.0 if counts is None else counts.percent)

    def _utility(self, output: str, percent: float) -> float:
        catalog = self._shedding.catalog
        if self._graphs is None or self._graphs[0] is not catalog:
            self._graphs = (catalog, loss_graphs(catalog))
        utility = self._graphs[1][output](percent)
        late = next(each.qos.latency for each in self.network.outputs if each.name == output)
        told = next(self._ledger.of(query.name) for query in self._layout.queries if output in query.outputs)
        return utility * late(told.latency_last) if late is not None and told.batches else utility

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
        return self._ended(lambda: any(query.isActive for query in self.queries.values()), self.failure, timeout)

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
            self._budget.open()
            self._diary.close()
            self._control.close()
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
        return (
            f"<RunningNetwork {self.name!r}: {self.policy}, {self.mode.value}, latency {self.latency:g} s, "
            f"{report.arrived:,} rows arrived, {report.shed:,} dropped>"
        )

    # What the queries call.

    def attached(self, query: NetworkQuery) -> None:
        with self._locked():
            self._running.add(query.name)
            try:
                saved = self._store.read(f"{query.name}.json")
                if saved:
                    books = json.loads(saved)
                    self._ledger.restore(query.name, books)
                    if isinstance(books.get("learned"), dict):
                        self._controller.recall({query.name: books["learned"]})
            except Exception as error:
                self._grumble(f"the books of {query.name!r} cannot be read and begin anew", error)
            self._diary.begin(self._ledger.report())
            # Nobody renewed a pinned plan before there was a query; and the first batch has a budget already.
            self._adopt(renew=self._pinned is not None)
            if self._pinned is not None:
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

    def limits(self) -> tuple[BatchLimits, int]:
        """What the next batch may take. Called from a batch, which must not wait for our lock."""
        return self._budget.limits, self._budget.stride

    def in_turn(self, outputs: Sequence[str]) -> Sequence[str]:
        """With `fair`, who had least comes first. Called from a batch, which must not wait for our lock."""
        needs = self._needs
        return sorted(outputs, key=lambda name: needs.get(name, (True, float("inf"))))

    def work(self) -> Mapping[str, float]:
        """With `fair`, who comes last is to lose. Called from a batch, which must not wait for our lock."""
        if not self._shedding.steady:
            return {}
        catalog, drops = self._shedding.catalog, self._plan.drops
        if self._work[:2] != (catalog, drops):
            self._work = (catalog, drops, self._slots.work(drops, catalog))
        return self._work[2]

    def finished(self, query: NetworkQuery, sample: Sample) -> None:
        with self._locked():
            if sample.batch <= self._ledger.last_batch(query.name):
                return
            self._enforcer.recovered()
            self._enforcer.follow(self.mode)
            self._budget.learn(sample.duration, sample.kept, query.lead)
            layout, bound, catalog = query.layout, self.latency, self._measured()
            told = batch_report(sample, layout, self._slots, self._plan, bound=bound, catalog=catalog)
            self._ledger.enter(query.name, sample.batch, told)
            saved = self._books(query)
            if sample.arrived and not sample.rehearsal:
                self._observe(sample)
            else:
                self._adopt()
            self._diary.still(self._plan, self._enforcer.current.value.share, self._ledger.report(), self.latency)
        self._save(query, saved)

    def missed(self, query: NetworkQuery, batch: int) -> None:
        """A batch was done that nobody counted."""
        with self._locked():
            self._ledger.miss(query.name, batch)
            saved = self._books(query)
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
            else:
                self._limit()
            self._clocks.look()

    def sampled(self, source: str, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Some values of a source, as they came in. Called from a batch, which must not wait for our lock."""
        self._spreads.add(source, values)

    # How a plan is made.

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
        self._needs = self._shedding.needs
        self._check_window()
        self._adopt()

    def _check_window(self) -> None:
        """Say once that `fair` goes by a source time window which is over before its results are there."""
        delay = self._shedding.sic_too_late
        if delay is None or self._shedding.steady or self._warned_of_window:
            return
        self._warned_of_window = True
        log.warning(
            "%s: the source time window of %g s is not longer than the delay of %.1f s that was measured; `fair` "
            "goes by single batches then",
            self.name,
            WINDOW,
            delay,
        )

    def _wanted_plan(self) -> Plan:
        return self._pinned or self._controller.plan

    def _idle(self) -> bool:
        return not self._running

    def _check_expired(self, expired: str) -> None:
        check_expired(self.network, expired)

    def _pinned_again(self, pinned: Plan) -> Plan:
        return self._pinned_plan(pinned.wanted, pinned.budget, pinned.grace)

    def _announce(self) -> None:
        """Tell of the plan in force, if it is another."""
        self._limit()
        carried = self._enforcer.current
        if carried.plan is self._adopted:
            return
        self._adopted = carried.plan
        before, self._plan = self._plan, replace(carried.plan, version=self._plan.version + 1)
        if is_news(before, self._plan):
            # All of them have the same trigger, and some may not have begun.
            share, draining = carried.value.share, any(query.draining for query in self._queries.values())
            self._diary.change(self._plan, share, self._ledger.report(), self.latency, draining=draining)
            self._untold.append(self._plan)

    def _left(self, drops: Sequence[Drop]) -> float:
        """Share of the work that is left by drops that are wanted."""
        return self._controller.share if self._pinned is None else self._slots.left(drops, self._measured())

    def _books(self, query: NetworkQuery) -> bytes:
        """What was counted of a query, as it is saved."""
        learned = self._controller.remember().get(query.name)
        return json.dumps({**self._ledger.totals(query.name), "learned": learned}, separators=(",", ":")).encode()

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
