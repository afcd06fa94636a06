"""One streaming query of a network: built, started, counted."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.errors import StreamshedError
from streamshed.network.graph import Map, Udf, Union, ends
from streamshed.network_controller import FlowSample
from streamshed.records import Sample
from streamshed.spark.control import Span
from streamshed.spark.counts import PlanReader, arrived_mark, marks_of, next_serial
from streamshed.spark.layout import QueryLayout
from streamshed.spark.load_aware_box import LoadAwareBox, Loss
from streamshed.spark.monitor import QueryWatch, SessionMonitor
from streamshed.spark.network_control import NetworkControl, PlanSpan
from streamshed.spark.sinks import Sink
from streamshed.spark.slots import Numbers, Slots, quoted
from streamshed.spark.sql import CONTROL, Marks, Parser, Writer, counted_nodes, raw_arc

log = logging.getLogger("streamshed")

_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling a query that is being stopped"
_view_numbers = itertools.count(1)
_MARKS = re.compile(r"spark_partition_id\(\) >= -(\d+)")
_FIRST_MARK = 1_000_000  # above the serial of every shed stream
_AT_A_TIME = 3
_SAMPLE = 2000  # rows
_SAMPLE_EVERY = 10.0  # seconds
_REMEMBERED = 50  # batches for which drops that are no longer in force stay in the plan
_REHEARSED = range(1, 4)  # batches of a query whose plans have the drops in them, though nothing is dropped
_CALM = 1.0  # and only if the one before took less than this share of what makes one worth a look


class Runtime(Protocol):
    """The network, as its queries see it."""

    def attached(self, query: NetworkQuery) -> None: ...
    def finished(self, query: NetworkQuery, sample: FlowSample) -> None: ...
    def running(self, query: NetworkQuery, sample: FlowSample) -> None: ...
    def ended(self, query: NetworkQuery) -> None: ...
    def sampled(self, source: str, values: Mapping[str, npt.NDArray[np.float64]]) -> None: ...
    def look_after(self) -> float: ...
    def fail_open(self, problem: BaseException) -> None: ...


def marks_for(layout: QueryLayout, slots: Slots) -> Marks:
    """A mark for each source, each box that changes the number of rows, and each arc with a drop.

    The same for every query, unlike the serials of shed streams: marks are literals in the generated code, and
    equal code is compiled only once, also when a network is run again.
    """
    arcs = [on for on in layout.arcs if on in slots.slots]
    raw = [raw_arc(name) for name in layout.sources if name in slots.raw]
    names = [*layout.sources, *raw, *counted_nodes(layout), *arcs]
    return Marks({name: marks_of(_FIRST_MARK + index)[1] for index, name in enumerate(names)})


def flows(
    layout: QueryLayout, counts: Mapping[str, int], lost: Mapping[str, Loss] | None = None
) -> tuple[dict[str, int], dict[str, int]]:
    """Rows that passed each arc, and that left each node, from the rows that were counted.

    What a load-aware box dropped did not pass the arc in front of it.
    """
    lost = lost or {}
    network = layout.network
    left: dict[str, int] = {name: counts.get(raw_arc(name), counts.get(name, 0)) for name in layout.sources}
    passed: dict[str, int] = {}
    for name in layout.boxes:
        box = network.nodes[name]
        for on in network.arcs_into(name):
            passed[on] = counts.get(on, left[ends(on)[0]])
        if name in lost:
            (on,) = network.arcs_into(name)
            passed[on] -= lost[name].shed
            left[name] = passed[on] - lost[name].failed
        elif isinstance(box, Map | Union | Udf):
            left[name] = sum(passed[on] for on in network.arcs_into(name))
        else:
            left[name] = counts.get(name, 0)
    for name in layout.outputs:
        (on,) = network.arcs_into(name)
        passed[on] = counts.get(on, left[ends(on)[0]])
    return passed, left


class BatchFailed(StreamshedError):
    """A batch of a network failed; what Spark said is in the message."""


class _Probe:
    """How the session's monitor sees a query of a network: one shed stream."""

    def __init__(self, query: NetworkQuery, serial: int) -> None:
        self.serial = serial
        self._query = query

    def attach(self, query: QueryWatch, position: int) -> None:
        self._query.attach(query)

    def detach(self, query: QueryWatch) -> None:
        for box in self._query.load_aware.values():
            box.shedder.detach(query)
        self._query.runtime.ended(self._query)

    def span_at(self, batch_time: int) -> Span:
        span = self._query.control.shown.at(batch_time)
        return Span(span.start, span.until, span.share, span.version)

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        self._query.finished(sample)

    def running(self, query: QueryWatch, sample: Sample) -> None:
        self._query.looked_at(sample)

    def look_after(self) -> float:
        return self._query.runtime.look_after()

    def fail_open(self, problem: BaseException) -> None:
        for box in self._query.load_aware.values():
            box.shedder.fail_open(problem)
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
        load_aware: Mapping[str, LoadAwareBox],
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
        self.load_aware = {name: load_aware[name] for name in layout.boxes if name in layout.load_aware}
        self.marks = marks_for(layout, slots)
        self.parsers = {
            source.name: Parser.of(source, sources[source.name].columns)
            for source in layout.network.sources
            if source.name in layout.sources and source.parse is not None
        }
        self.query: StreamingQuery | None = None
        self.serial = next_serial()
        self._counts: dict[int, dict[str, int]] = {}
        self._lost: dict[int, dict[str, Loss]] = {}
        self._watch: QueryWatch | None = None
        self._named = {mark: name for name, mark in self.marks.of.items()}
        self._execution: Any = None
        self._stopping = False
        self._lock = threading.Lock()
        SessionMonitor.of(spark).add(_Probe(self, self.serial))

    def start(self, checkpoint: str, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        raise NotImplementedError

    def stop(self) -> None:
        self._stopping = True
        if self.query is not None:
            self.query.stop()

    def _failure(self, error: Exception) -> BatchFailed:
        """An error of a batch as Spark can take it.

        Spark tells a query that was stopped from one that failed by a pattern in the text of the error. The
        pattern overflows its stack on long texts, and does not know of jobs that were cancelled.
        """
        text = str(error)
        if self._stopping or "InterruptedException" in text or "was stopped" in text:
            return BatchFailed(f"{_STOPPED}: java.lang.InterruptedException")
        return BatchFailed(text[:4000])

    def attach(self, watch: QueryWatch) -> None:
        self._execution = watch._execution
        self._watch = watch
        for position, box in enumerate(self.load_aware.values()):
            box.shedder.attach(watch, position)
        self.runtime.attached(self)

    def finished(self, sample: Sample) -> None:
        """A batch was reported."""
        with self._lock:
            counts = self._counts.pop(sample.batch, None)
            lost = self._lost.pop(sample.batch, {})
            for number in [n for n in self._counts if n < sample.batch]:
                del self._counts[number]
        if counts is None:
            return
        passed, left = flows(self.layout, counts, lost)
        if self._watch is not None:
            for name, box in self.load_aware.items():
                (on,) = self.layout.network.arcs_into(name)
                box.finished(self._watch, sample, passed[on] + lost[name].shed)
        flow = self._sample(sample, counts, passed, left)
        if any(each.shed for each in lost.values()):
            flow = replace(flow, dropping=True)
        self.runtime.finished(self, flow)

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
            next_started=seen.next_started,
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
        self._views = {name: f"streamshed_{number}_{index}" for index, name in enumerate(self.layout.shared)}
        self._begun: int | None = None
        self._dropped: int | None = None
        # A drop by value mostly takes one range: what lies below a cut.
        self._ranges = {on: min(1, slot.size - 1) for on, slot in self.slots.slots.items()}
        self._rehearses = False
        self._rehearsed: set[int] = set()
        self._took = 0.0
        self._readers: dict[str, PlanReader] = {}
        self._prepared = False
        self._sample_at = 0.0

    def stream(self) -> DataFrame:
        """The rows of all sources in one stream."""
        parts = [self.sources[name] for name in self.layout.sources]
        if len(parts) == 1:
            return parts[0].where(arrived_mark(self.serial))
        names = list(self.layout.sources)
        tagged = [
            part.where(self.marks.clause(name)).select(
                F.lit(index).alias("_source"),
                *[
                    (
                        F.struct(*part.columns) if other == name else F.lit(None).cast(self.sources[other].schema)
                    ).alias(f"_{at}")
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
        # What only drains what is there has no burst to be ready for.
        self._rehearses = not {"availableNow", "once"} & set(trigger)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def _batch(self, rows: DataFrame, number: int) -> None:
        try:
            self._process(rows, number)
        except Exception as error:
            raise self._failure(error) from None

    def _process(self, rows: DataFrame, number: int) -> None:
        begun = time.monotonic()
        session = rows.sparkSession
        if not self._prepared:
            # A session of the query's own: nothing of the user's changes. Adaptive planning is for shuffles.
            session.conf.set("spark.sql.adaptive.enabled", "false")
            self._prepared = True
        # Without the monitor (it warns then) there is no batch time, and all rows are kept.
        batch = None if self._execution is None else self._execution.lastExecution()
        span, batch_time = PlanSpan(0, 0, 0, 1.0, ()), 0
        if batch is not None:
            batch_time = int(batch.offsetSeqMetadata().batchTimestampMs())
            span = self.control.shown.at(batch_time)
        lost: dict[str, Loss] = {}
        stages: list[tuple[str, str, DataFrame]] = []
        kept: list[Any] = []
        several = len(self.layout.sources) > 1
        if several:
            # Each source is read by itself, but all of them are one stream here: keep it, to read it once.
            kept.append(rows.localCheckpoint(eager=True))
        writer = self._writer(kept[0] if several else rows, span, number)
        try:
            for name in self.layout.shared:
                if name in self.load_aware:
                    (on,) = self.layout.network.arcs_into(name)
                    text = writer.passing(on)
                    made = self.load_aware[name].rows(session, text, batch_time)
                else:
                    text = writer.wanted(name)
                    made = session.sql(text)
                stages.append((name, text, made))
                # At once: two readers that start on two executors would both compute it.
                kept.append(made.localCheckpoint(eager=True))
                kept[-1].createOrReplaceTempView(self._views[name])
                writer.views = {**writer.views, name: self._views[name]}
                if name in self.load_aware:
                    lost[name] = self.load_aware[name].lost(number)
            stages += self._deliver(session, writer, number)
            counts = self._read(stages)
            if several and batch is not None:
                counts |= self._count_sources(batch.executedPlan())
            if time.monotonic() >= self._sample_at:
                self._sample_at = time.monotonic() + _SAMPLE_EVERY
                self._sample_values(session, writer)
        finally:
            for one in kept:
                one._jdf.queryExecution().logical().rdd().unpersist(False)
        with self._lock:
            self._counts[number] = counts
            self._lost = {n: loss for n, loss in self._lost.items() if n > number - 10} | {number: lost}
        self._took = time.monotonic() - begun

    def _sample(self, seen: Sample, *flows: Any) -> FlowSample:
        return replace(super()._sample(seen, *flows), rehearsal=seen.batch in self._rehearsed)

    def _sample_values(self, session: SparkSession, writer: Writer) -> None:
        """Look at some rows as they came in: how are the values spread that drops go by?"""
        for name in self.layout.sources:
            arcs = self.layout.network.arcs_out_of(name)
            slots = [self.slots.slots[on] for on in arcs if on in self.slots.slots]
            fields = sorted({slot.field for slot in slots if slot.field is not None})
            if fields:
                columns = ", ".join(f"CAST({quoted(one)} AS DOUBLE) AS {quoted(one)}" for one in fields)
                writer.dropping, writer.counting = (lambda on: False), False
                rows = session.sql(f"SELECT {columns} FROM ({writer.computed(name)}) LIMIT {_SAMPLE}").collect()
                found = {
                    one: np.array([row[at] for row in rows if row[at] is not None], dtype=np.float64)
                    for at, one in enumerate(fields)
                }
                self.runtime.sampled(name, found)

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
        inputs = dict.fromkeys(self.layout.sources, self._input)
        if len(inputs) > 1:
            inputs = {
                name: f"(SELECT _{at}.* FROM {self._input} WHERE _source = {at})"
                for at, name in enumerate(self.layout.sources)
            }
        numbers: Numbers = span.numbers or (None,) * self.slots.size
        places = {*self.slots.slots, *map(raw_arc, self.slots.raw)}
        armed = self._armed(numbers, number)
        if number in self._rehearsed:
            numbers = self.slots.rehearsal()

        def dropping(on: str) -> bool:
            return armed and on in places

        number_at = literals(self.slots, numbers)
        return Writer(
            self.layout,
            self.slots,
            self.marks,
            inputs,
            {},
            dropping,
            number_at,
            self.functions,
            self.parsers,
            counting=len(inputs) == 1,
            ranges=self._ranges.__getitem__,
        )

    def _armed(self, numbers: Numbers, number: int) -> bool:
        """Whether the plans of a batch have the drops in them: all of them or none.

        New plans are new code, and code that has just been generated runs at a fraction of its speed; a burst
        is the worst time for that. So there are two kinds of plans only, and the one with drops is run a few
        times at a calm start, and kept for a while when nothing is dropped any more.
        """
        if self._begun is None:
            self._begun = number
        for on in self.layout.arcs:
            if self.slots.active(numbers, on):
                self._dropped = number
                self._ranges[on] = max(self._ranges[on], self.slots.ranges(numbers, on))
        if any(self.slots.active_raw(numbers, name) for name in self.layout.sources):
            self._dropped = number
        if self._dropped is not None and number - self._dropped <= _REMEMBERED:
            return True
        calm = self._took < _CALM * self.runtime.look_after()
        if self._rehearses and calm and number - self._begun in _REHEARSED:
            self._rehearsed.add(number)
        return number in self._rehearsed

    def _count_sources(self, plan: Any) -> dict[str, int]:
        """What each of several sources gave, counted in the plan that reads them."""
        wanted = {self.marks.of[name] for name in self.layout.sources}
        found = self._readers.setdefault("", PlanReader()).read_marks(plan, wanted)
        return {self._named[mark]: rows for mark, rows in found.items()}

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


class StatefulQuery(NetworkQuery):
    """One output below joins or windows. The drops are part of its plan, and read the control row there."""

    def stream(self) -> DataFrame:
        token = f"streamshed_{next(_view_numbers)}"
        slots = self.slots
        self.control.relation(self.spark).createOrReplaceTempView(f"{token}_control")
        inputs = {name: f"{token}_in{index}" for index, name in enumerate(self.layout.sources)}
        for name, view in inputs.items():
            self.sources[name].createOrReplaceTempView(view)
        raw = {raw_arc(name) for name in slots.raw}
        writer = Writer(
            self.layout,
            slots,
            self.marks,
            inputs,
            {},
            lambda on: on in slots.slots or on in raw,
            lambda at: f"get({CONTROL}, {at})",
            self.functions,
            self.parsers,
            carry=CONTROL,
            control=f"{token}_control",
        )
        network = self.layout.network
        for index, source in enumerate(one for one in network.sources if one.name in inputs):
            rows = self.spark.sql(writer.computed(source.name))
            if source.arrived is not None and source.watermark is not None:
                rows = rows.withWatermark(source.arrived, f"{source.watermark * 1e3:.0f} milliseconds")
            view = f"{token}_source{index}"
            rows.createOrReplaceTempView(view)
            writer.views = {**writer.views, source.name: view}
        text = writer.rows(self.layout.outputs[0])
        # Views would outlive the query in the user's session; the plan does not need them once it is analysed.
        made = self.spark.sql(text).where(arrived_mark(self.serial))
        for view in [f"{token}_control", *inputs.values(), *writer.views.values()]:
            self.spark.catalog.dropTempView(view)
        return made

    def start(self, checkpoint: str, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        (output,) = self.layout.outputs
        self._sink = self.sinks[output]
        self._reader = PlanReader()
        self._wanted = set(self.marks.of.values())
        node = self.layout.network.nodes[output]
        mode = str((getattr(node, "write", None) or {}).get("mode", "append"))
        writer = self.stream().writeStream.foreachBatch(self._batch).queryName(name).outputMode(mode)
        writer = writer.option("checkpointLocation", checkpoint)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def _batch(self, rows: DataFrame, number: int) -> None:
        try:
            self._sink(rows, number)
        except Exception as error:
            raise self._failure(error) from None
        found = self._reader.read_marks(self._execution.lastExecution().executedPlan(), self._wanted)
        with self._lock:
            self._counts[number] = {self._named[mark]: count for mark, count in found.items()}


def literals(slots: Slots, numbers: Numbers) -> Any:
    """Numbers of the control array as SQL that the optimizer does not fold into the generated code."""
    places: dict[int, tuple[int, str]] = {}
    for slot in slots.slots.values():
        span = range(slot.at, slot.at + slot.size)
        text = ", ".join("CAST(NULL AS DOUBLE)" if numbers[i] is None else f"{numbers[i]!r}D" for i in span)
        for i in span:
            places[i] = (i - slot.at, f"array({text})")
    for at in slots.raw.values():
        places[at] = (0, f"array({'CAST(NULL AS DOUBLE)' if numbers[at] is None else f'{numbers[at]!r}D'})")

    def number(at: int) -> str:
        offset, array = places[at]
        return f"get({array}, {offset} + 0 * spark_partition_id())"

    return number
