"""What the streaming queries of a network have in common: how they are watched, counted, and how they fail."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.errors import StreamshedError
from streamshed.network.graph import Map, Udf, Union, ends
from streamshed.quality.row_counts import RowCounts, by_source
from streamshed.records import Flows, Sample
from streamshed.spark.network.expiry_gates import NONE_EXPIRED, Expired, ExpiryGates
from streamshed.spark.network.load_aware_box import LoadAwareBox, Loss
from streamshed.spark.network.network_control import NetworkControl
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.sinks import Sink
from streamshed.spark.network.slots import Slots
from streamshed.spark.network.sql import Marks, Parser, counted_nodes, raw_arc
from streamshed.spark.network.time_gates import NOTHING_CUT, Cut, TimeGates
from streamshed.spark.orders.batch_clock import BatchClock, BatchLimits
from streamshed.spark.orders.history import Span
from streamshed.spark.watch.plan_counts import KEPT, marks_of, next_serial
from streamshed.spark.watch.query_watch import QueryWatch
from streamshed.spark.watch.session_monitor import SessionMonitor

log = logging.getLogger("streamshed")

_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling a query that is being stopped"
view_numbers = itertools.count(1)
"""Views of different queries have different names."""
_FIRST_MARK = 1_000_000  # above the serial of every shed stream
_REMEMBERED = 100  # batches whose counts wait for Spark's report, at most


class Runtime(Protocol):
    """The network, as its queries see it."""

    def attached(self, query: NetworkQuery) -> None: ...
    def finished(self, query: NetworkQuery, sample: Sample) -> None: ...
    def missed(self, query: NetworkQuery, batch: int) -> None: ...
    def running(self, query: NetworkQuery, sample: Sample) -> None: ...
    def ended(self, query: NetworkQuery) -> None: ...
    def sampled(self, source: str, values: Mapping[str, npt.NDArray[np.float64]]) -> None: ...
    def limits(self) -> tuple[BatchLimits, int]:
        """What the next batch may take, and how many rows apart its looks at the clock are."""

    def in_turn(self, outputs: Sequence[str]) -> Sequence[str]:
        """Outputs in the order in which a batch serves them: the last ones lose when its time is used up."""

    def work(self) -> Mapping[str, float]:
        """What the boxes below each arc have to do under the plan in force; empty if outputs go in turn."""

    def look_after(self) -> float: ...
    def renew(self, now: float) -> None: ...
    def fail_open(self, problem: BaseException) -> None: ...


def marks_for(layout: QueryLayout, slots: Slots) -> Marks:
    """A mark for each source, each box that changes the number of rows, and each arc with a drop.

    The same for every query, unlike the serials of shed streams: marks are literals in the generated code, and
    equal code is compiled only once, also when a network is run again.
    """
    arcs = [on for on in layout.arcs if on in slots.slots]
    raw = [raw_arc(name) for name in layout.sources if name in slots.raw]
    names = [*layout.sources, *raw, *counted_nodes(layout), *arcs]
    return Marks({name: marks_of(_FIRST_MARK + index)[KEPT] for index, name in enumerate(names)})


def flows(
    layout: QueryLayout,
    counts: Mapping[str, int],
    lost: Mapping[str, Loss] | None = None,
    cut: Cut = NOTHING_CUT,
    expired: Expired = NONE_EXPIRED,
) -> tuple[dict[str, int], dict[str, int]]:
    """Rows that passed each arc, and that left each node, from the rows that were counted.

    What a load-aware box dropped, or the clock cut, did not pass the arc in front of it.
    """
    lost = lost or {}
    network = layout.network
    left = {
        name: rows - expired.parsed.get(name, 0) for name, rows in parsed(layout, counts, cut, expired).items()
    }
    passed: dict[str, int] = {}

    def passing(on: str) -> int:
        return counts.get(on, left[ends(on)[0]] - cut.arcs.get(on, 0))

    for name in layout.boxes:
        box = network.nodes[name]
        for on in network.arcs_into(name):
            passed[on] = passing(on)
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
        passed[on] = passing(on)
    return passed, left


def parsed(layout: QueryLayout, counts: Mapping[str, int], cut: Cut, expired: Expired) -> dict[str, int]:
    """Rows of each source that were left when it came to the parse, if it has one."""
    found = {}
    for name in layout.sources:
        before = cut.raw.get(name, 0) + expired.raw.get(name, 0)
        found[name] = counts.get(raw_arc(name), counts.get(name, 0) - before)
    return found


def cut_by_arc(layout: QueryLayout, cut: Cut) -> dict[str, int]:
    """Rows that the clock took from each arc: what a source lost before its parse is lost to all of its arcs."""
    lost = {on: cut.raw.get(ends(on)[0], 0) + cut.arcs.get(on, 0) for on in layout.arcs}
    return {on: rows for on, rows in lost.items() if rows}


def expired_by_arc(layout: QueryLayout, expired: Expired) -> dict[str, int]:
    """Rows that were too old for each arc: a source's are lost to all of its arcs."""
    lost = {on: expired.of(ends(on)[0]) for on in layout.arcs}
    return {on: rows for on, rows in lost.items() if rows}


class BatchFailed(StreamshedError):
    """A batch of a network failed; what Spark said is in the message."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What was counted in one batch of a query."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """By source, box and arc; a source's are all that it gave."""
    lost: Mapping[str, Loss] = field(default_factory=dict)
    """By load-aware box."""
    cut: Cut = NOTHING_CUT
    expired: Expired = NONE_EXPIRED


class _Probe:
    """How the session's monitor sees a query of a network: one shed stream."""

    def __init__(self, query: NetworkQuery, serial: int) -> None:
        self.serial = serial
        self.handle = query.runtime
        self._query = query

    def attach(self, query: QueryWatch, position: int) -> None:
        self._query.attach(query)

    def detach(self, query: QueryWatch) -> None:
        for box in self._query.load_aware.values():
            box.shedder.detach(query)
        self._query.runtime.ended(self._query)

    def span_at(self, batch_time: int) -> Span:
        span = self._query.control.history.at(batch_time)
        return Span(span.start, span.until, span.share, span.version)

    def finished(self, query: QueryWatch, sample: Sample) -> None:
        self._query.finished(sample)

    def running(self, query: QueryWatch, sample: Sample) -> None:
        for box in self._query.load_aware.values():
            box.shedder.running(query, sample)
        self._query.looked_at(sample)

    def look_after(self) -> float:
        return self._query.runtime.look_after()

    def renew(self, now: float) -> None:
        for box in self._query.load_aware.values():
            box.shedder.renew(now)
        self._query.runtime.renew(now)

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
        clock: BatchClock,
    ) -> None:
        """`clock` is the network's, for queries that run in one plan."""
        self.spark = spark
        self.clock = clock
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
        self.gates = TimeGates(layout, self.clock, _FIRST_MARK + len(self.marks.of))
        self.parsers = {
            source.name: Parser.of(source, sources[source.name].columns)
            for source in layout.network.sources
            if source.name in layout.sources and source.parse is not None
        }
        self.expiry = ExpiryGates(layout, self.clock, self.gates.next_serial, self.parsers)
        self.query: StreamingQuery | None = None
        self.serial = next_serial()
        self._counts: dict[int, BatchCounts] = {}
        self._watch: QueryWatch | None = None
        self._named = {mark: name for name, mark in self.marks.of.items()}
        self._execution: Any = None
        self._stopping = False
        self._caller: threading.Thread | None = None
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        self._probe = _Probe(self, self.serial)
        self._monitor = SessionMonitor.of(spark)
        self._monitor.add(self._probe)

    def start(self, checkpoint: str, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        raise NotImplementedError

    def stop(self) -> None:
        self._stopping = True
        if self.query is not None:
            self.query.stop()

    @property
    def watched_here(self) -> bool:
        """Whether this thread is the one on which batches are reported."""
        return threading.current_thread() is self._monitor._thread

    def close(self) -> None:
        """Let go of everything that belongs to a query which has been stopped."""
        self._monitor.remove(self._probe)
        _hang_up(self._caller)
        self.query = self._execution = self._watch = None

    @contextlib.contextmanager
    def _ours(self, what: str, *, blinds: bool = False) -> Iterator[None]:
        """Around what is ours and not the user's: if it fails, the query goes on.

        It is told once a kind. Whatever `blinds` the controller also ends the drops that are in force: what
        nobody counts, nobody may drop.
        """
        try:
            yield
        except Exception as error:
            if self._stopping:
                return  # Spark interrupts what a query does when it is stopped
            kind = f"{what}: {type(error).__name__}"
            level = logging.DEBUG if kind in self._warned else logging.WARNING
            self._warned.add(kind)
            log.log(level, "query %s: %s; it goes on (%s)", self.name, what, _first_lines(error))
            if blinds:
                with contextlib.suppress(Exception):
                    self.runtime.fail_open(error)

    def _batch_time(self, number: int) -> int | None:
        """The time by which the batch that runs now chooses its plan; None without the monitor (it warns then)."""
        self._caller = threading.current_thread()
        if self._execution is None:
            return None
        execution = self._execution.lastExecution()
        # A short batch is over before the monitor looks again, and would go uncounted.
        self._monitor.enqueue("executed", "", execution)
        time = int(execution.offsetSeqMetadata().batchTimestampMs())
        self.control.begun(self.name, number, time)
        return time

    def _counted(self, number: int, counts: BatchCounts) -> None:
        """Keep what a batch counted until it is reported."""
        with self._lock:
            self._counts[number] = counts
            for old in sorted(self._counts)[:-_REMEMBERED]:
                del self._counts[old]

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
        with self._ours("which batch an earlier run left unfinished is not known"):
            left = _unfinished(watch)
            if left is None:
                self.control.finished(self.name, -1)
            else:
                self.control.begun(self.name, *left)
        for position, box in enumerate(self.load_aware.values()):
            box.shedder.attach(watch, position)
        self.runtime.attached(self)

    @property
    def lead(self) -> float:
        """Seconds from the start of the last batch until it was planned."""
        return 0.0 if self._watch is None else self._watch.lead

    @property
    def draining(self) -> bool:
        """Whether the query ends when it has read what was there."""
        return self._watch is not None and self._watch.draining

    def finished(self, sample: Sample) -> None:
        """A batch was reported."""
        with self._lock:
            counts = self._counts.pop(sample.batch, None)
            for number in [n for n in self._counts if n < sample.batch]:
                del self._counts[number]
        try:
            if counts is None:
                self.runtime.missed(self, sample.batch)
            else:
                self._tell(sample, counts)
        finally:
            # Until here its plan was asked for; from now on it never is.
            self.control.finished(self.name, sample.batch)

    def _tell(self, sample: Sample, counts: BatchCounts) -> None:
        lost, cut, expired = counts.lost, counts.cut, counts.expired
        passed, left = flows(self.layout, counts.rows, lost, cut, expired)
        if self._watch is not None:
            for name, box in self.load_aware.items():
                (on,) = self.layout.network.arcs_into(name)
                box.finished(self._watch, sample, passed[on] + lost[name].shed)
        thinned = sample.keep < 1.0 or any(each.shed for each in lost.values()) or bool(cut) or bool(expired)
        spared = {self.layout.network.arcs_into(name)[0]: each.would_shed for name, each in lost.items()}
        told = self._sample(sample, counts, passed, left, thinned=thinned, would_shed=spared)
        self.runtime.finished(self, told)

    def looked_at(self, sample: Sample) -> None:
        """A batch has been running for long; what its source gave it is all that is known of its rows."""
        told = replace(sample, query=self.name, rehearsal=self._is_rehearsal(sample.batch))
        self.runtime.running(self, told)

    def _sample(
        self,
        seen: Sample,
        counts: BatchCounts,
        passed: dict[str, int],
        left: dict[str, int],
        *,
        thinned: bool,
        would_shed: Mapping[str, int] | None = None,
    ) -> Sample:
        by_arc = cut_by_arc(self.layout, counts.cut)
        flows = Flows(
            arrived={name: counts.rows[name] for name in self.layout.sources if name in counts.rows},
            passed=passed,
            left={name: left[name] for name in self.layout.boxes if name in left},
            would_shed={on: rows for on, rows in (would_shed or {}).items() if rows},
            cut=by_arc,
            parsed={
                name: rows
                for name, rows in parsed(self.layout, counts.rows, counts.cut, counts.expired).items()
                if name in self.parsers and name in counts.rows
            },
            expired=expired_by_arc(self.layout, counts.expired),
            thinned=thinned,
        )
        arrived = sum(flows.arrived.values())
        lost = _in_source_rows(flows, by_arc) if by_arc else 0
        expired = counts.expired.total
        return replace(
            seen,
            query=self.name,
            arrived=arrived,
            kept=arrived - lost - expired,
            cut=lost,
            expired=expired,
            flows=flows,
            next_planned=seen.next_planned and self._has_its_budget(seen.batch + 1),
            rehearsal=self._is_rehearsal(seen.batch),
        )

    def _has_its_budget(self, number: int) -> bool:
        """Whether a batch that is planned was given its time budget: with its plan, if that is the only one."""
        return True

    def _is_rehearsal(self, number: int) -> bool:
        """Whether plans were run for the first time in this batch, to be ready."""
        return False


def _in_source_rows(flows: Flows, cut: Mapping[str, int]) -> int:
    """Rows that were cut on arcs, as rows of the sources."""
    arcs = {on: RowCounts(rows + cut.get(on, 0), cut.get(on, 0)) for on, rows in flows.passed.items()}
    return sum(rows.shed for rows in by_source(flows.arrived, arcs).values())


def _unfinished(watch: QueryWatch) -> tuple[int, int] | None:
    """The batch that an earlier run of a query planned and did not finish: its number and its time."""
    execution: Any = watch._execution
    planned, done = execution.offsetLog().getLatest(), execution.commitLog().getLatestBatchId()
    if planned.isEmpty():
        return None
    number, offsets = int(planned.get()._1()), planned.get()._2()
    if done.isDefined() and int(done.get()) >= number:
        return None
    try:
        metadata = offsets.metadataOpt()
    except Py4JError:
        metadata = offsets.metadata()  # its name before Spark 4.1
    return number, int(metadata.get().batchTimestampMs())


def _hang_up(caller: threading.Thread | None) -> None:
    """End the connection on which Spark called `foreachBatch`: py4j keeps it, and its thread, for ever."""
    connection = getattr(getattr(caller, "_target", None), "__self__", None)
    if isinstance(connection, ClientServerConnection):
        with contextlib.suppress(Exception):
            connection.socket.shutdown(socket.SHUT_RDWR)


def _first_lines(error: BaseException) -> str:
    """An error in short: Spark's have the whole stack of the JVM in them."""
    lines = str(error).strip().splitlines()[:2]
    return f"{type(error).__name__}: {' '.join(line.strip() for line in lines)}"
