"""One run of a streaming query: the reports of its batches meet their row counts here, and become samples."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
from typing import Any, Protocol

from py4j.protocol import Py4JError

from streamshed.records import Sample
from streamshed.spark.orders.history import Span
from streamshed.spark.watch.plan_counts import Counts, PlanReader, drops_in, is_filtered_later, sources_in
from streamshed.spark.watch.progress import Progress, SampleBuilder
from streamshed.spark.watch.source_rows import SourceRows
from streamshed.spark.watch.stage_times import StageBooks, StageTimes

log = logging.getLogger("streamshed")

REPORT_DELAY = 5.0
"""Seconds after which a report without its counts is given up."""
_EXECUTION_DELAY = 1.0  # the same, if a newer batch runs: its execution can only come by the listener then
_DRAINING = ("AvailableNowTrigger", "OneTimeTrigger")  # triggers of queries that end by themselves
_REAL_TIME = "RealTimeTrigger"
_LONG = 1.0  # seconds: a batch that took longer is worth a question to Spark's books of its stages, …
_MANY = 2.0  # … and so is one with so many times the rows of the last one that was, and one that was cut; …
_STAGES_EVERY = 2.0  # … else one in so many seconds, or in as many as a batch may run
_LEISURE = 0.25  # seconds after a batch from which on a query that waits for data has none, …
_FIRST_ONES = 5  # … which is told behind so many batches; from then on one tells of the other
_TICK = 0.1  # seconds until it is asked again what a query does that was asking its sources
_RAREST_LOOK = 2.0  # seconds between two looks at a batch that runs for very long


class Watched(Protocol):
    """A shed stream, as the monitor sees it."""

    serial: int

    def attach(self, query: QueryWatch, position: int) -> None: ...
    def detach(self, query: QueryWatch) -> None: ...
    def span_at(self, batch_time: int) -> Span: ...
    def finished(self, query: QueryWatch, sample: Sample) -> None: ...
    def running(self, query: QueryWatch, sample: Sample) -> None: ...
    def look_after(self) -> float: ...
    def renew(self, now: float) -> None: ...
    def fail_open(self, problem: BaseException) -> None: ...


class QueryWatch:
    """One run of one streaming query that has shed streams in its plan."""

    def __init__(
        self,
        execution: Any,
        query_id: str,
        run_id: str,
        name: str | None,
        streams: list[Watched],
        spark: Any,
    ) -> None:
        self.id = query_id
        self.run_id = run_id
        self.name = name or query_id[:8]
        self.streams = streams
        self._spark = spark
        self._execution = execution
        self.checkpoint: str = execution.resolvedCheckpointRoot()
        self.committed = _last_committed(execution)
        """The last batch that an earlier run committed; −1 if there was none."""
        self.counts: dict[int, Counts] = {}
        """Of the batch that is being told of, the rows by drop."""
        self.reads_one_source = len(streams) == 1 and sources_in(execution.analyzedPlan()) == 1
        self.filtered_later = not self.reads_one_source or is_filtered_later(execution.analyzedPlan())
        """Whether a source may leave rows out for a filter further down: Spark does not count those."""
        self.counted_by_spark = False
        """Whether what the source gave is what arrived: then a plan without marks can be counted too."""
        self.lead = 0.0
        """Seconds from the start of the last batch until it was planned."""
        self._reader = PlanReader(spark)
        self._source_rows = SourceRows()
        self._books: StageBooks | None = None
        self._given: tuple[int, int] = (-1, 0)
        self._cores = int(spark.sparkContext.defaultParallelism)
        self._next_stages, self._asked_rows = 0.0, 0
        trigger: str = execution.trigger().toString()
        self.trigger = trigger
        """As Spark writes it."""
        self.real_time = trigger.startswith(_REAL_TIME)
        """Whether rows flow through tasks that run for minutes, which Spark calls a batch all the same."""
        self.draining = trigger.startswith(_DRAINING)
        """Whether the query ends when it has read what was there at its start."""
        self._samples = {
            stream.serial: SampleBuilder(query_id, _interval_of(trigger), draining=self.draining)
            for stream in streams
        }
        self._batches: dict[int, tuple[Any, int]] = {}
        self._waiting: dict[int, tuple[Progress, float]] = {}
        self._reported = -1
        self._next_look = 0.0
        self._idle_from = math.inf
        self._finished = 0
        self._next_capture = 0.0
        self._sources: dict[int, set[str]] | None = None

    @property
    def active(self) -> bool:
        """Whether the query still runs; its last report may be under way when it does not."""
        return bool(self._execution.isActive())

    def capture(self, batch: Any = None) -> None:
        """Hold on to the newest batch's execution: Spark forgets it when it plans the next."""
        batch = batch if batch is not None else self._execution.lastExecution()
        if batch is not None:
            number = int(batch.currentBatchId())
            if number > self._reported and number not in self._batches:
                self._batches[number] = (batch, int(batch.offsetSeqMetadata().batchTimestampMs()))

    def capture_for_look(self, now: float) -> None:
        """Capture, if it may be time to look at a running batch of which nothing is known yet."""
        # An object asked of the JVM costs both processes time that the job may need; so not on every tick.
        if self.streams and now >= self._next_capture:
            self._next_capture = now + min(1.0, *(0.25 * stream.look_after() for stream in self.streams))
            self.capture_if_none()

    def capture_if_none(self) -> None:
        """Capture, unless a batch is held already whose report has not come: no other is over before that."""
        if not self._batches:
            self.capture()

    def report(self, progress: Progress, now: float) -> None:
        """Take a progress report; `settle` makes samples of it."""
        if not progress.ran:
            return
        if progress.batch not in self._batches:
            self.capture()
        self._waiting[progress.batch] = (progress, now)

    def settle(self, now: float) -> None:
        """Make samples of the batches whose report and counts are both here."""
        for number in sorted(self._waiting):
            progress, since = self._waiting[number]
            batch = self._batches.get(number)
            replaced = number < max(self._batches, default=-1)
            if batch is None and now - since < (_EXECUTION_DELAY if replaced else REPORT_DELAY):
                return
            del self._waiting[number]
            self._reported = max(self._reported, number)
            self._finish(progress, *(batch or (None, 0)))
            self._batches = {n: b for n, b in self._batches.items() if n > number}

    def _finish(self, progress: Progress, batch: Any, batch_time: int) -> None:
        if batch is None:
            log.warning("query %s: the counts of batch %d were not seen", self.name, progress.batch)
            for stream in self.streams:
                self._samples[stream.serial].skip(progress)
            return
        serials = [stream.serial for stream in self.streams]
        self.counts = self._reader.read(
            batch.executedPlan(), serials, progress.rows, without_marks=self.counted_by_spark
        )
        self.lead = progress.lead
        self._idle_from = time.time() + _LEISURE if self._finished < _FIRST_ONES else math.inf
        self._finished += 1
        stages: StageTimes | None = None
        if self._tells_something_new(progress):
            stages = self._stages(progress)
            if self.reads_one_source:
                self._source_rows.learn(batch.executedPlan(), progress.rows)
        ended = progress.started + progress.duration
        following = self._batches.get(progress.batch + 1)
        next_time = int(time.time() * 1000) if following is None else following[1]
        next_started = following is not None or self._has_its_time(progress.batch, batch_time)
        next_planned = following is not None or (next_started and self._is_planned(progress.batch + 1))
        for stream in self.streams:
            span, after = stream.span_at(batch_time), stream.span_at(next_time)
            sample = self._samples[stream.serial].finished(
                progress,
                self.counts.get(stream.serial, Counts()),
                span,
                after.keep,
                progress.oldest.get(stream.serial),
                backlog=self._backlog(stream, progress),
                next_started=next_started,
                next_planned=next_planned,
                tail=0.0 if stages is None else max(0.001, ended - stages.ended),
                tasks=0 if stages is None else stages.tasks,
                cores=self._cores,
            )
            stream.finished(self, sample)

    def _tells_something_new(self, progress: Progress) -> bool:
        """Whether a batch is worth questions to Spark that cost time; one now and then is."""
        now = time.monotonic()
        telling = progress.duration >= _LONG or progress.rows > _MANY * self._asked_rows
        telling = telling or any(each.cut for each in self.counts.values())
        if not progress.rows or (now < self._next_stages and not telling):
            return False
        pause = max((stream.look_after() for stream in self.streams), default=_STAGES_EVERY)
        self._next_stages, self._asked_rows = now + max(_STAGES_EVERY, pause), progress.rows
        return True

    def _stages(self, progress: Progress) -> StageTimes | None:
        """When the rows of a batch had passed the drop; None if Spark's books do not tell."""
        try:
            if self._books is None:
                self._books = StageBooks(self._spark)
            return self._books.times(self.run_id, progress.started, progress.started + progress.duration)
        except (Py4JError, KeyError, TypeError, ValueError) as error:
            log.debug("query %s: how long its stages took is not known (%s)", self.name, error)
            return None

    def _backlog(self, stream: Watched, progress: Progress) -> float:
        """Rows that the sources of a stream hold back; those of others are not its business."""
        held = progress.backlog
        if len(held) < 2 or not any(held.values()):
            return sum(held.values())
        if self._sources is None:
            self._sources = _sources_by_drop(self._execution.logicalPlan())
        mine = self._sources.get(stream.serial, set())
        return sum(rows for source, rows in held.items() if source in mine)

    def _has_its_time(self, number: int, batch_time: int) -> bool:
        """Whether the batch after this one was given its timestamp, by which it chooses its plan.

        Spark does so after it has asked the sources what there is. With many files to list, the report of a
        batch comes first: what is planned then is for the very next batch, and not for the one behind it.
        """
        try:
            context = self._execution.getLatestExecutionContext()
        except Py4JError:
            return True  # a Spark that has no such thing
        return bool(
            int(context.batchId()) > number and int(context.offsetSeqMetadata().batchTimestampMs()) != batch_time
        )

    def _is_planned(self, number: int) -> bool:
        """Whether a batch has its plan, and in it its time budget: Spark first writes down what is in it."""
        execution = self._execution.lastExecution()
        return execution is not None and int(execution.currentBatchId()) >= number

    def look(self, now: float) -> None:
        """If a batch has been running for long, tell; the longer it runs, the rarer."""
        if not self._batches and now >= self._idle_from:
            self._look_at_nothing(now)
        if now < self._next_look or not self._batches or not self.streams:
            return
        number = max(self._batches)
        batch, batch_time = self._batches[number]
        started = batch_time / 1000.0
        elapsed = now - started
        first = min(stream.look_after() for stream in self.streams)
        if elapsed < first:
            self._next_look = started + first
            return
        if self._execution.status().message() != "Processing new data":
            return
        given = self._given_to(number, batch)
        for stream in self.streams:
            builder = self._samples[stream.serial]
            stream.running(self, builder.running(now, started, number, stream.span_at(batch_time), given))
        self._next_look = now + min(0.08 * elapsed, 0.5 * first, _RAREST_LOOK)

    def _look_at_nothing(self, now: float) -> None:
        """Tell, once, if no batch follows one of the first: whether rows wait behind it was not known before."""
        doing = self._execution.status().message()
        # A query that waits asks its sources every now and then, and says so.
        self._idle_from = now + _TICK if doing.startswith("Getting offsets") else math.inf
        if doing == "Waiting for data to arrive":
            for stream in self.streams:
                stream.running(self, self._samples[stream.serial].idle(now))

    def _given_to(self, number: int, batch: Any) -> int:
        """Rows that the source gave to a running batch; 0: not known."""
        if not self.reads_one_source:
            return 0
        if self._given[0] != number or self._given[1] == 0:
            self._given = (number, self._source_rows.given(batch.executedPlan()))
        return self._given[1]


def _last_committed(execution: Any) -> int:
    latest = execution.commitLog().getLatestBatchId()
    return int(latest.get()) if latest.isDefined() else -1


def _sources_by_drop(plan: Any) -> dict[int, set[str]]:
    """For each drop in a running query's plan, what its sources call themselves in the progress reports."""
    found: dict[int, set[str]] = {}
    for serial, below in drops_in(plan).items():
        leaves = below.collectLeaves()
        for leaf in (leaves.apply(i) for i in range(leaves.size())):
            for name in ("source", "stream"):  # of the two versions of Spark's source API
                with contextlib.suppress(Py4JError):
                    found.setdefault(serial, set()).add(str(getattr(leaf, name)().toString()))
    return found


def _interval_of(trigger: str) -> float:
    match = re.match(r"ProcessingTimeTrigger\((\d+)\)", trigger)
    return int(match[1]) / 1000.0 if match else 0.0
