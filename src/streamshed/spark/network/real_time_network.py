"""The handle of a network that runs in real-time mode: one query, drops by the age of each row."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.errors import StreamshedError
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Network, arc
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.quality import Report
from streamshed.records import Flows, Mode, Plan, Sample
from streamshed.spark.network.arc_counts import ArcCounts
from streamshed.spark.network.books import batch_report
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.real_time_plan import SourcePlan, all_outputs, steps_of
from streamshed.spark.network.slots import Slots
from streamshed.spark.orders.store import Store
from streamshed.spark.real_time.aged_stream import AgedStream
from streamshed.spark.real_time.executor_control import ExecutorControl
from streamshed.spark.real_time.ladder_books import LadderBooks, LadderCounts, RungCounts
from streamshed.spark.real_time.ladder_rule import cursor_of, rule_of, table_of
from streamshed.spark.real_time.refusals import check_operators
from streamshed.spark.real_time.road_map_ladder import RoadMapLadder
from streamshed.spark.watch.plan_counts import next_serial
from streamshed.spark.watch.session_monitor import SessionMonitor


class NetworkLadderBooks:
    """Counts the rows of all sources by the row of the road map that they met, and of all arcs."""

    def __init__(self, spark: SparkSession, network: Network, rungs: int) -> None:
        self.rungs = rungs
        self.by_source = {source.name: LadderBooks(spark, 1, rungs) for source in network.sources}
        self.arcs = {source.name: ArcCounts(spark, steps_of(network, source)) for source in network.sources}
        self._network = network
        self.flows = Flows()
        """Of what was taken last."""

    def take(self) -> LadderCounts:
        """What was counted by the tasks that have ended since this was asked last."""
        counts = {name: books.take() for name, books in self.by_source.items()}
        came: dict[str, int] = dict.fromkeys(self._network.arcs, 0)
        passed: dict[str, int] = dict.fromkeys(self._network.arcs, 0)
        for books in self.arcs.values():
            for total, part in zip((came, passed), books.take(), strict=True):
                for on, rows in part.items():
                    total[on] += rows
        self.flows = Flows(
            arrived={name: each.arrived for name, each in counts.items()},
            passed=passed,
            left={
                box.name: came[arc(box.name, self._network.consumers[box.name][0])] for box in self._network.boxes
            },
            thinned=came != passed,
        )
        return reduce(LadderCounts.plus, counts.values())

    def running(self) -> LadderCounts:
        """What the tasks that run have counted so far, if they are listened to."""
        return reduce(LadderCounts.plus, (books.running() for books in self.by_source.values()))

    def listen(self) -> None:
        for books in self.by_source.values():
            books.listen()

    def cease(self) -> None:
        for books in self.by_source.values():
            books.cease()


class RealTimeNetwork(AgedStream):
    """The handle of a network in real-time mode: its query, its books, and its settings.

    `mode`, `latency` and `floor` can be set while it runs, and take effect in the batch that is running. As a
    context manager it closes itself.
    """

    network: Network
    policy: str

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        policy: str,
        catalog: Catalog,
        ladder: RoadMapLadder,
        mode: Mode,
        place: Store,
    ) -> None:
        control = ExecutorControl(spark, table_of(ladder, Mode.OFF))
        books = NetworkLadderBooks(spark, network, len(ladder.rows))
        super().__init__(next_serial(), network.name, True, control, books, spark, ladder, mode)
        self.network = network
        self.policy = policy
        self._query: StreamingQuery | None = None
        self._tables = books
        self._road_map = ladder
        self._catalog = catalog
        self._slots = slots_without_raw(network)
        self._layout = QueryLayout(network, network.name, tuple(o.name for o in network.outputs), False)
        self._place = place
        self._failed: StreamshedError | None = None
        SessionMonitor.of(spark).add(self)

    def stream(self, rows: Mapping[str, DataFrame], topics: Mapping[str, str]) -> DataFrame:
        """The messages of all outputs; an operator that real-time mode refuses is named."""
        parts = []
        for source in self.network.sources:
            rule = rule_of(self._spark, self._control, self._tables.by_source[source.name], walks=True)
            cursor = partial(cursor_of, self._spark, rule)
            plan = SourcePlan(
                self.network, source, self._slots, self._road_map, rows[source.name], cursor, self.serial
            )
            parts.append(plan.outputs(topics, self._tables.arcs[source.name]))
        made = all_outputs(parts)
        check_operators(made)
        return made

    def start(self, messages: DataFrame, options: Mapping[str, str], trigger: Mapping[str, Any]) -> None:
        writer = messages.writeStream.format("kafka").options(**options).outputMode("update")
        writer = writer.option("checkpointLocation", self._place.path("query")).queryName(self.network.name)
        self._query = writer.trigger(**trigger).start()

    # What the user sees.

    @property
    def query(self) -> StreamingQuery | None:
        """None before it is started."""
        return self._query

    @property
    def road_map(self) -> RoadMapLadder:
        """The rows of the road map, and the age from which on each is in force."""
        return self._ladder  # type: ignore[return-value]

    @property
    def by_row(self) -> RungCounts:
        """Rows that arrived, and how many of them met each row of the road map. Of the batches that are over."""
        return self._by_class[0]

    def report(self) -> Report:
        """What came in, what was dropped where, and what came out, in the batches that are over."""
        report = self.ledger.report()
        return replace(self._valued(report), by_query={n: self._valued(r) for n, r in report.by_query.items()})

    def _valued(self, report: Report) -> Report:
        graphs = loss_graphs(self._catalog)
        outputs = {
            name: replace(counts, utility=graphs[name](counts.percent))
            for name, counts in report.by_output.items()
        }
        return replace(report, by_output=outputs)

    def failure(self) -> StreamshedError | None:
        """What ended the query, if it has failed."""
        error = None if self._query is None else self._query.exception()
        return self._failed if error is None else StreamshedError(f"the network {self.name!r} failed:\n{error}")

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended; raises what ended it. False after `timeout` seconds."""
        return self._ended(lambda: self._query is not None and self._query.isActive, self.failure, timeout)

    def stop(self) -> None:
        """Stop the query; its checkpoint stays, and so does this handle with its report."""
        if self._query is not None:
            with contextlib.suppress(Exception):
                self._query.stop()
        self.settle()

    def close(self) -> None:
        """Stop, and let go of everything; the report can still be read."""
        if self._closed:
            return
        self.stop()
        with contextlib.suppress(Exception):
            self._failed = self.failure()
        super().close()
        self._place.discard()

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"<RealTimeNetwork {self.name!r}: {self.policy}, {self.mode.value}, "
            f"latency {self.latency * 1000:g} ms, {report.arrived:,} rows arrived, {report.shed:,} dropped>"
        )

    def _batch_report(self, sample: Sample, counts: LadderCounts) -> Report:
        """What one batch did, from what its tasks counted on every arc."""
        told = replace(sample, flows=self._tables.flows, arrived=counts.arrived, kept=counts.arrived)
        plan = Plan(mode=Mode.ENFORCE)
        report = batch_report(told, self._layout, self._slots, plan, bound=self.latency, catalog=self._catalog)
        met = counts.by_class[0].shed
        saved = sum(rows * share for rows, share in zip(met, self._road_map.saved, strict=True))
        return replace(
            report,
            would_shed=round(saved) if self.mode is Mode.DRY_RUN else 0,
            misdated=counts.misdated,
            over_bound=int(counts.ages.worst > self.latency),
            latency_last=counts.ages.worst,
            latencies=counts.ages,
        )


def slots_without_raw(network: Network) -> Slots:
    """Slots of a network whose sources are parsed before anything is dropped."""
    return replace(Slots.of(network), raw={})
