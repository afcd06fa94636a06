"""One streaming query of a network: built, started, counted."""

from __future__ import annotations

import itertools
import logging
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.network.graph import Map, Udf, Union, ends
from streamshed.network_controller import FlowSample
from streamshed.records import Sample
from streamshed.spark.control import Span
from streamshed.spark.counts import PlanReader, arrived_mark, marks_of, next_serial
from streamshed.spark.layout import QueryLayout
from streamshed.spark.monitor import QueryWatch, SessionMonitor
from streamshed.spark.network_control import NetworkControl, PlanSpan
from streamshed.spark.sinks import Sink
from streamshed.spark.slots import Numbers, Slots
from streamshed.spark.sql import Marks, Writer, counted_nodes

log = logging.getLogger("streamshed")

_view_numbers = itertools.count(1)
_MARKS = re.compile(r"spark_partition_id\(\) >= -(\d+)")
_AT_A_TIME = 3
_REMEMBERED = 50  # batches for which a drop that is no longer in force stays in the plan


class Runtime(Protocol):
    """The network, as its queries see it."""

    def attached(self, query: NetworkQuery) -> None: ...
    def finished(self, query: NetworkQuery, sample: FlowSample) -> None: ...
    def running(self, query: NetworkQuery, sample: FlowSample) -> None: ...
    def ended(self, query: NetworkQuery) -> None: ...
    def look_after(self) -> float: ...
    def fail_open(self, problem: BaseException) -> None: ...


def marks_for(layout: QueryLayout, slots: Slots) -> Marks:
    """A mark for each source, each box that changes the number of rows, and each arc with a drop."""
    names = [*layout.sources, *counted_nodes(layout), *(on for on in layout.arcs if on in slots.slots)]
    found: dict[str, int] = {}
    for name in names:
        found[name] = marks_of(next_serial())[1]
    return Marks(found)


def flows(layout: QueryLayout, counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Rows that passed each arc, and that left each node, from the rows that were counted."""
    network = layout.network
    left: dict[str, int] = {name: counts.get(name, 0) for name in layout.sources}
    passed: dict[str, int] = {}
    for name in layout.boxes:
        box = network.nodes[name]
        for on in network.arcs_into(name):
            passed[on] = counts.get(on, left[ends(on)[0]])
        if isinstance(box, Map | Union | Udf):
            left[name] = sum(passed[on] for on in network.arcs_into(name))
        else:
            left[name] = counts.get(name, 0)
    for name in layout.outputs:
        (on,) = network.arcs_into(name)
        passed[on] = counts.get(on, left[ends(on)[0]])
    return passed, left


class _Probe:
    """How the session's monitor sees a query of a network: one shed stream."""

    def __init__(self, query: NetworkQuery, serial: int) -> None:
        self.serial = serial
        self._query = query

    def attach(self, query: QueryWatch, position: int) -> None:
        self._query.attach(query)

    def detach(self, query: QueryWatch) -> None:
        self._query.runtime.ended(self._query)

    def span_at(self, batch_time: int) -> Span:
        span = self._query.control.history.at(batch_time)
        return Span(span.start, span.until, span.share, span.version)

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        self._query.finished(sample)

    def running(self, query: QueryWatch, sample: Sample) -> None:
        self._query.looked_at(sample)

    def look_after(self) -> float:
        return self._query.runtime.look_after()

    def fail_open(self, problem: BaseException) -> None:
        self._query.runtime.fail_open(problem)


class NetworkQuery:
    """What fused and stateful queries have in common."""

    def __init__(
        self,
        spark: SparkSession,
        layout: QueryLayout,
        slots: Slots,
        control: NetworkControl,
        runtime: Runtime,
        sources: Mapping[str, DataFrame],
        sinks: Mapping[str, Sink],
        functions: Mapping[str, str],
    ) -> None:
        self.spark = spark
        self.layout = layout
        self.name = layout.name
        self.slots = slots
        self.control = control
        self.runtime = runtime
        self.sources = {name: sources[name] for name in layout.sources}
        self.sinks = {name: sinks[name] for name in layout.outputs}
        self.functions = functions
        self.marks = marks_for(layout, slots)
        self.query: StreamingQuery | None = None
        self.serial = next_serial()
        self._counts: dict[int, dict[str, int]] = {}
        self._named = {mark: name for name, mark in self.marks.of.items()}
        self._execution: Any = None
        self._lock = threading.Lock()
        SessionMonitor.of(spark).add(_Probe(self, self.serial))

    def attach(self, watch: QueryWatch) -> None:
        self._execution = watch._execution
        self.runtime.attached(self)

    def finished(self, sample: Sample) -> None:
        """A batch was reported."""
        with self._lock:
            counts = self._counts.pop(sample.batch, None)
            for number in [n for n in self._counts if n < sample.batch]:
                del self._counts[number]
        if counts is None:
            return
        passed, left = flows(self.layout, counts)
        self.runtime.finished(self, self._sample(sample, counts, passed, left))

    def looked_at(self, sample: Sample) -> None:
        """A batch has been running for long."""
        self.runtime.running(self, self._sample(sample, {}, {}, {}))

    def _sample(
        self, seen: Sample, counts: Mapping[str, int], passed: dict[str, int], left: dict[str, int]
    ) -> FlowSample:
        return FlowSample(
            query=self.name,
            batch=seen.batch,
            started=seen.started,
            at=seen.at,
            arrived={name: counts[name] for name in self.layout.sources if name in counts},
            passed=passed,
            left={name: left[name] for name in self.layout.boxes if name in left},
            gap=seen.gap,
            waited=seen.waited,
            interval=seen.interval,
            backlog=seen.backlog,
            share=seen.keep,
            share_next=seen.keep_next,
            dropping=seen.keep < 1.0,
            finished=seen.finished,
        )


class FusedQuery(NetworkQuery):
    """All stateless outputs of one part of a network, in one query: what they share runs once.

    The query itself only reads. Each batch is then built here: what several boxes read is kept for as long as
    the batch lasts, and every output is a plan of its own above that, with its own sink. Drops in force are
    written into the plans as arrays, which are data to the generated code: it is compiled once.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        number = next(_view_numbers)
        self._input = f"streamshed_{number}_in"
        self._views = {
            name: f"streamshed_{number}_{index}" for index, name in enumerate(self.layout.shared)
        }
        self._recent: dict[str, int] = {}
        self._readers: dict[str, PlanReader] = {}
        self._prepared = False

    def stream(self) -> DataFrame:
        """The rows of all sources in one stream."""
        parts = [self.sources[name] for name in self.layout.sources]
        if len(parts) == 1:
            return parts[0].where(arrived_mark(self.serial))
        names = list(self.layout.sources)
        tagged = [
            part.select(
                F.lit(index).alias("_source"),
                *[
                    (F.struct(*part.columns) if other == name else F.lit(None).cast(self.sources[other].schema))
                    .alias(f"_{at}")
                    for at, other in enumerate(names)
                ],
            )
            for index, (name, part) in enumerate(zip(names, parts, strict=True))
        ]
        union = tagged[0]
        for part in tagged[1:]:
            union = union.unionAll(part)
        return union.where(arrived_mark(self.serial))

    def start(self, checkpoint: str, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        writer = self.stream().writeStream.foreachBatch(self._batch).queryName(name)
        writer = writer.option("checkpointLocation", checkpoint)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def _batch(self, rows: DataFrame, number: int) -> None:
        session = rows.sparkSession
        if not self._prepared:
            # A session of the query's own: nothing of the user's changes. Adaptive planning is for shuffles.
            session.conf.set("spark.sql.adaptive.enabled", "false")
            self._prepared = True
        batch = self._execution.lastExecution()
        span = self.control.history.at(int(batch.offsetSeqMetadata().batchTimestampMs()))
        writer = self._writer(rows, span, number)
        stages: list[tuple[str, str, DataFrame]] = []
        kept: list[Any] = []
        try:
            for name in self.layout.shared:
                text = writer.wanted(name)
                made = session.sql(text)
                stages.append((name, text, made))
                kept.append(made.localCheckpoint(eager=False))
                kept[-1].createOrReplaceTempView(self._views[name])
                writer.views = {**writer.views, name: self._views[name]}
            stages += self._deliver(session, writer, number)
            counts = self._read(stages)
        finally:
            for one in kept:
                one._jdf.queryExecution().logical().rdd().unpersist(False)
        with self._lock:
            self._counts[number] = counts

    def _deliver(self, session: SparkSession, writer: Writer, number: int) -> list[tuple[str, str, DataFrame]]:
        """Every output to its sink, some at a time: one is planned while another runs."""

        def one(name: str) -> tuple[str, str, DataFrame]:
            text = writer.rows(name)
            made = session.sql(text)
            # A plan behind a barrier: whatever the sink does with its rows, they are counted in this one.
            rdd = made._jdf.queryExecution().toRdd()
            java = session._jsparkSession.internalCreateDataFrame(rdd, made._jdf.schema(), False)
            self.sinks[name](DataFrame(java, session), number)
            return name, text, made

        if len(self.layout.outputs) == 1:
            return [one(self.layout.outputs[0])]
        # The jobs of a batch belong to its query in whatever thread they start: stopping it stops them.
        task = inheritable_thread_target(session)(one)
        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="streamshed") as pool:
            running = [pool.submit(task, name) for name in self.layout.outputs]
            return [future.result() for future in running]

    def _writer(self, rows: DataFrame, span: PlanSpan, number: int) -> Writer:
        rows.createOrReplaceTempView(self._input)
        inputs = {name: self._input for name in self.layout.sources}
        if len(inputs) > 1:
            inputs = {
                name: f"(SELECT _{at}.* FROM {self._input} WHERE _source = {at})"
                for at, name in enumerate(self.layout.sources)
            }
        numbers: Numbers = span.numbers or (None,) * self.slots.size
        for on in self.layout.arcs:
            if self.slots.active(numbers, on):
                self._recent[on] = number

        def dropping(on: str) -> bool:
            # Plans that come and go are compiled anew: what was dropped lately stays, as a drop of nothing.
            return number - self._recent.get(on, -_REMEMBERED - 1) <= _REMEMBERED

        return Writer(
            self.layout, self.slots, self.marks, inputs, {}, dropping, _literals(self.slots, numbers), self.functions
        )

    def _read(self, stages: list[tuple[str, str, DataFrame]]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name, text, made in stages:
            wanted = {int(mark) for mark in _MARKS.findall(text)}
            if wanted:
                reader = self._readers.setdefault(name, PlanReader())
                found = reader.read_marks(made._jdf.queryExecution().executedPlan(), wanted)
                for mark, rows in found.items():
                    counts[self._named[mark]] = counts.get(self._named[mark], 0) + rows
        return counts


def _literals(slots: Slots, numbers: Numbers) -> Any:
    """Numbers of the control array as SQL that the optimizer does not fold into the generated code."""
    places: dict[int, tuple[int, str]] = {}
    for slot in slots.slots.values():
        span = range(slot.at, slot.at + slot.size)
        text = ", ".join("CAST(NULL AS DOUBLE)" if numbers[i] is None else f"{numbers[i]!r}D" for i in span)
        for i in span:
            places[i] = (i - slot.at, f"array({text})")

    def number(at: int) -> str:
        offset, array = places[at]
        return f"get({array}, {offset} + 0 * spark_partition_id())"

    return number
