"""The handle of a network that runs in real-time mode: its queries, and drops by the age of each row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.errors import StreamshedError
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Network, ends
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.quality import Report
from streamshed.quality.row_counts import RowCounts
from streamshed.records import Mode, Plan, Sample
from streamshed.spark.network.books import batch_report
from streamshed.spark.network.query_layout import NetworkLayout, QueryLayout
from streamshed.spark.network.real_time_query import QueryBooks, RealTimeQuery
from streamshed.spark.network.slots import Slots
from streamshed.spark.orders.store import Store
from streamshed.spark.real_time.aged_stream import AgedStream
from streamshed.spark.real_time.executor_control import ExecutorControl
from streamshed.spark.real_time.ladder_books import LadderBooks, LadderCounts, RungCounts
from streamshed.spark.real_time.ladder_rule import cursor_of, rule_of, table_of
from streamshed.spark.real_time.road_map_ladder import RoadMapLadder
from streamshed.spark.real_time.task_slots import check_slots, partitions_of
from streamshed.spark.watch.plan_counts import next_serial
from streamshed.spark.watch.query_watch import QueryWatch
from streamshed.spark.watch.session_monitor import SessionMonitor


class AllBooks:
    """The books of all queries of a network, as one."""

    def __init__(self, queries: Sequence[RealTimeQuery]) -> None:
        self._books = [query.books for query in queries]
        self.rungs = self._books[0].rungs

    def take(self) -> LadderCounts:
        return reduce(LadderCounts.plus, (books.take() for books in self._books))

    def running(self) -> LadderCounts:
        return reduce(LadderCounts.plus, (books.running() for books in self._books))

    def listen(self) -> None:
        for books in self._books:
            books.listen()

    def cease(self) -> None:
        for books in self._books:
            books.cease()


class RealTimeNetwork(AgedStream):
    """The handle of a network in real-time mode: its queries, its books, and its settings.

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
        layouts = NetworkLayout.in_real_time(network).queries
        parts = [RealTimeQuery(spark, layout, len(ladder.rows), place.path(_folder(layout))) for layout in layouts]
        super().__init__(next_serial(), network.name, True, control, AllBooks(parts), spark, ladder, mode)
        self.network = network
        self.policy = policy
        self._parts = {part.layout.name: part for part in parts}
        self._road_map = ladder
        self._catalog = catalog
        self._slots = slots_without_raw(network)
        self._place = place
        self._failed: StreamshedError | None = None
        SessionMonitor.of(spark).add(self)

    def streams(self, rows: Mapping[str, DataFrame], topics: Mapping[str, str]) -> dict[str, DataFrame]:
        """The messages of each query, by its name; an operator that real-time mode refuses is named."""
        return {
            name: part.stream(rows, topics, self._slots, self._road_map, self._cursor_of, self.serial)
            for name, part in self._parts.items()
        }

    def _cursor_of(self, books: LadderBooks) -> Callable[[Column, Column], Column]:
        """All queries have the same limits, and each of them books of its own."""
        return partial(cursor_of, self._spark, rule_of(self._spark, self._control, books, walks=True))

    def start(
        self,
        rows: Mapping[str, DataFrame],
        topics: Mapping[str, str],
        options: Mapping[str, Mapping[str, str]],
        trigger: Mapping[str, Any],
    ) -> None:
        """Start the queries, if there are slots for all; `options` by output."""
        streams = self.streams(rows, topics)
        partitions = {name: partitions_of(each) for name, each in rows.items()}
        check_slots(self._spark, {name: part.slots_wanted(partitions) for name, part in self._parts.items()})
        for name, part in self._parts.items():
            part.start(streams[name], options[part.layout.outputs[0]], trigger)

    # What the user sees.

    @property
    def query(self) -> StreamingQuery | None:
        """The first one: that of the outputs without windows, if there are any. None before it is started."""
        return next(iter(self.queries.values()), None)

    @property
    def queries(self) -> dict[str, StreamingQuery]:
        """By name: one for all outputs without windows, and one for each output below a window."""
        return {name: part.query for name, part in self._parts.items() if part.query is not None}

    @property
    def road_map(self) -> RoadMapLadder:
        """The rows of the road map, and the age from which on each is in force."""
        return self._ladder  # type: ignore[return-value]

    @property
    def by_row(self) -> RungCounts:
        """Rows that arrived, and how many of them met each row of the road map. Of the batches that are over.

        Each query reads the sources by itself, and has counted its own rows.
        """
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
        """What ended a query, if one has failed."""
        for name, query in self.queries.items():
            error = query.exception()
            if error is not None:
                others = " and all were stopped" if len(self._parts) > 1 else ""
                return StreamshedError(f"the query {name!r} of {self.name!r} failed{others}:\n{error}")
        return self._failed

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until every query has ended; raises what ended one of them. False after `timeout` seconds."""
        return self._ended(lambda: any(query.isActive for query in self.queries.values()), self.failure, timeout)

    def stop(self) -> None:
        """Stop the queries; their checkpoints stay, and so does this handle with its report."""
        for part in self._parts.values():
            part.stop()
        self.settle()

    def detach(self, query: QueryWatch) -> None:
        super().detach(query)
        part = self._parts.get(query.name)
        if part is not None and part.query is not None and part.query.exception() is not None:
            # A network without one of its parts would look alive; it stops as one.
            for other in self._parts.values():
                other.stop()

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

    def _part_of(self, query: QueryWatch) -> RealTimeQuery:
        """A query that somebody else started from our stream has another name; there is one stream then."""
        return self._parts.get(query.name) or next(iter(self._parts.values()))

    def _books_of(self, query: QueryWatch) -> QueryBooks:
        return self._part_of(query).books

    def _batch_report(self, query: QueryWatch, sample: Sample, counts: LadderCounts) -> Report:
        """What one batch did, from what its tasks counted on every arc."""
        part = self._part_of(query)
        told = replace(sample, flows=part.books.flows, arrived=counts.arrived, kept=counts.arrived)
        plan = Plan(mode=Mode.ENFORCE)
        report = batch_report(told, part.layout, self._slots, plan, bound=self.latency, catalog=self._catalog)
        met = counts.by_class[0].shed
        saved = sum(rows * share for rows, share in zip(met, self._road_map.saved, strict=True))
        would_shed = saved if self.mode is Mode.DRY_RUN else 0.0
        return replace(
            report,
            by_arc=with_would_shed(report.by_arc, part.layout, would_shed / max(1, counts.arrived)),
            would_shed=round(would_shed),
            misdated=counts.misdated,
            over_bound=int(counts.ages.worst > self.latency),
            latency_last=counts.ages.worst,
            latencies=counts.ages,
        )


def _folder(layout: QueryLayout) -> str:
    """Where a query's checkpoint is, in the folder of the network."""
    return f"query-{layout.outputs[0]}" if layout.stateful else "query"


def with_would_shed(arcs: Mapping[str, RowCounts], layout: QueryLayout, share: float) -> dict[str, RowCounts]:
    """Counts of arcs, with a share of what came from sources as dropped there: reports add up by arcs."""
    return {
        on: replace(rows, would_shed=share * rows.arrived) if ends(on)[0] in layout.sources else rows
        for on, rows in arcs.items()
    }


def slots_without_raw(network: Network) -> Slots:
    """Slots of a network whose sources are parsed before anything is dropped."""
    return replace(Slots.of(network), raw={})
