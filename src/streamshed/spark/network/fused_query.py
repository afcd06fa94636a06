"""One streaming query for all stateless outputs of a part of a network."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.spark.network.expiry_gates import ExpiryGate, ExpiryGates
from streamshed.spark.network.load_aware_box import Loss
from streamshed.spark.network.network_control import PlanSpan
from streamshed.spark.network.network_query import BatchCounts, NetworkQuery, view_numbers
from streamshed.spark.network.output_turns import OutputTurns
from streamshed.spark.network.slots import Numbers, Slots, quoted
from streamshed.spark.network.sql import Writer, raw_arc
from streamshed.spark.network.time_gates import TimeGate, TimeGates
from streamshed.spark.orders.batch_clock import BatchClock
from streamshed.spark.watch.plan_counts import ARRIVED, PlanReader, mark

_MARKS = re.compile(r"spark_partition_id\(\) >= -(\d+)")
_AT_A_TIME = 3
_FOREVER = 1e11  # seconds since the epoch: the deadline is of one batch, and needs no other end
_SAMPLE = 2000  # rows
_SAMPLE_EVERY = 10.0  # seconds
_REMEMBERED = 50  # batches for which drops that are no longer in force stay in the plan
_REHEARSED = range(1, 4)  # batches of a query whose plans have the drops in them, though nothing is dropped
_CALM = 1.0  # and only if the one before took less than this share of what makes one worth a look

_Stage: TypeAlias = "tuple[str, str, DataFrame]"
"""A node, the SQL of its rows, and these."""


class FusedQuery(NetworkQuery):
    """All stateless outputs of one part of a network, in one query: what they share runs once.

    The query itself only reads. Each batch is then built here: what several boxes read is kept for as long as
    the batch lasts, and every output is a plan of its own above that, with its own sink. Drops in force are
    written into the plans as arrays, which are data to the generated code: it is compiled once.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        number = next(view_numbers)
        # One deadline for all plans of a batch, which are made one after the other.
        clock = BatchClock(self.spark, absolute=True)
        self.gates = TimeGates(self.layout, clock, self.gates.first_serial)
        self.expiry = ExpiryGates(self.layout, clock, self.expiry.first_serial, self.parsers)
        self._input = f"streamshed_{number}_in"
        self._parsed = {name: f"streamshed_{number}_p{index}" for index, name in enumerate(self.layout.sources)}
        self._hidden: dict[str, set[int]] = {}
        self._views = {name: f"streamshed_{number}_{index}" for index, name in enumerate(self.layout.shared)}
        self._begun: int | None = None
        self._dropped: int | None = None
        # A drop by value mostly takes one range: what lies below a cut.
        self._ranges = {on: min(1, slot.size - 1) for on, slot in self.slots.slots.items()}
        self._rehearses = False
        self._rehearsed: set[int] = set()
        self._limited = -1
        self._stride = 1
        self._was_cut = False
        self._planning = threading.Lock()
        self._took = 0.0
        self._reader = PlanReader(self.spark)
        self._session: SparkSession | None = None
        self._sample_at = 0.0

    def stream(self) -> DataFrame:
        """The rows of all sources in one stream."""
        parts = [self.sources[name] for name in self.layout.sources]
        if len(parts) == 1:
            return parts[0].where(mark(self.serial, ARRIVED))
        names = list(self.layout.sources)
        tagged = [
            part.where(self.marks.clause(name)).select(
                F.lit(index).alias("_source"),
                *[
                    (
                        F.struct(*map(quoted, part.columns))
                        if other == name
                        else F.lit(None).cast(self.sources[other].schema)
                    ).alias(f"_{at}")
                    for at, other in enumerate(names)
                ],
            )
            for index, (name, part) in enumerate(zip(names, parts, strict=True))
        ]
        union = tagged[0]
        for part in tagged[1:]:
            union = union.unionAll(part)
        return union.where(mark(self.serial, ARRIVED))

    def start(self, checkpoint: str, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        writer = self.stream().writeStream.foreachBatch(self._batch).queryName(name)
        writer = writer.option("checkpointLocation", checkpoint)
        # What only drains what is there has no burst to be ready for.
        self._rehearses = not {"availableNow", "once"} & set(trigger)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception):
                for view in (self._input, *self._parsed.values(), *self._views.values()):
                    self._session.catalog.dropTempView(view)
        self._session = None
        super().close()

    def _batch(self, rows: DataFrame, number: int) -> None:
        try:
            self._process(rows, number)
        except Exception as error:
            raise self._failure(error) from None

    def _process(self, rows: DataFrame, number: int) -> None:
        begun = time.monotonic()
        session = rows.sparkSession
        if self._session is None:
            with self._ours("adaptive planning could not be turned off"):
                # A session of the query's own: nothing of the user's changes. Adaptive planning is for shuffles.
                session.conf.set("spark.sql.adaptive.enabled", "false")
            self._session = session
        batch_time: int | None = None
        span = PlanSpan(0, 0, 0, 1.0, ())
        with self._ours("the plan of a batch could not be looked up, and all of its rows are kept"):
            batch_time = self._batch_time(number)
            span = span if batch_time is None else self.control.history.at(batch_time)
        self._limit(batch_time, number)
        lost: dict[str, Loss] = {}
        stages: list[_Stage] = []
        kept: list[DataFrame] = []
        try:
            if self._several:
                # Each source is read by itself, but all of them are one stream here: keep it, to read it once.
                kept.append(rows.localCheckpoint(eager=True))
            writer = self._writer(kept[0] if self._several else rows, span, number)
            for name in self.layout.shared:
                if name in self.load_aware:
                    (on,) = self.layout.network.arcs_into(name)
                    text = writer.passing(on)
                    deadline = self.gates.clock.limits.budget
                    made = self.load_aware[name].rows(session, text, batch_time or 0, deadline)
                else:
                    text = writer.wanted(name)
                    made = session.sql(text)
                stages.append((name, text, made))
                # At once: two readers that start on two executors would both compute it.
                kept.append(made.localCheckpoint(eager=True))
                self._show(self._time_gate(name, self.gates.at), kept[-1], self._views[name])
                writer.views = {**writer.views, name: self._views[name]}
                if name in self.load_aware:
                    with self._ours("what a load-aware box dropped could not be read", blinds=True):
                        lost[name] = self.load_aware[name].lost(number)
            stages += self._deliver(session, writer, number)
            with self._ours("the rows of a batch could not be counted", blinds=True):
                counts = self._count(stages, lost)
                self._was_cut = bool(counts.cut)
                if batch_time is not None and lost.keys() == self.load_aware.keys():
                    self._counted(number, counts)
            if time.monotonic() >= self._sample_at:
                self._sample_at = time.monotonic() + _SAMPLE_EVERY
                with self._ours("the values of a batch could not be sampled"):
                    self._sample_values(session, writer)
        finally:
            for each in kept:
                with self._ours("rows that were kept for a batch could not be let go"):
                    each._jdf.queryExecution().logical().rdd().unpersist(False)
        self._took = time.monotonic() - begun

    def _limit(self, batch_time: int | None, number: int) -> None:
        """Set the deadline of the batch that begins, and how old its rows may be; no row is, if nobody knows."""
        self._hidden = {}
        self._limited = number
        with self._ours("the time budget of a batch could not be set"):
            limits, stride = self.runtime.limits()
            if limits.budget is not None:
                limits = replace(limits, budget=time.time() + limits.budget)
            if limits.expiry is not None:
                oldest = None if batch_time is None else batch_time / 1000.0 - limits.expiry
                limits = replace(limits, expiry=oldest)
            self._stride = stride
            self.gates.clock.set(limits, _FOREVER, stride)

    def _show(self, gates: Sequence[ExpiryGate | TimeGate], rows: DataFrame, view: str, text: str = "") -> None:
        """Have rows read under a name, behind these gates; `text` is their SQL."""
        hidden = self._marks_in(text)
        for gate in gates:
            rows = gate.before(rows)
            hidden |= gate.marks
        if hidden:
            self._hidden[view] = hidden
        rows.createOrReplaceTempView(view)

    def _time_gate(self, name: str, gates: Mapping[str, TimeGate]) -> list[TimeGate]:
        """The gate at a place, if there is one and this batch has a deadline."""
        return [gates[name]] if name in gates and self.gates.clock.limits.budget is not None else []

    def _expiry_gate(self, name: str, *, raw: bool) -> list[ExpiryGate]:
        """The gate for what is too old of a source, if this is its place and rows of this batch can be."""
        gate = self.expiry.at.get(name)
        if gate is None or self.expiry.clock.limits.expiry is None:
            return []
        return [gate] if (gate.raw and not self._several) == raw else []

    @property
    def _several(self) -> bool:
        return len(self.layout.sources) > 1

    def _has_its_budget(self, number: int) -> bool:
        return self._limited >= number

    def _is_rehearsal(self, number: int) -> bool:
        return number in self._rehearsed

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

    def _deliver(self, session: SparkSession, writer: Writer, number: int) -> list[_Stage]:
        """Every output to its sink, some at a time: one is planned while another runs."""

        turns: OutputTurns | None = None

        def one(name: str) -> _Stage:
            # A deadline is what the clock says when a plan is made.
            with self._planning if turns is not None else contextlib.nullcontext():
                if turns is not None:
                    self._deadline(turns.until(name))
                text = writer.rows(name)
                made = session.sql(text)
                # A plan behind a barrier: whatever the sink does with its rows, they are counted in this one.
                rdd = made._jdf.queryExecution().toRdd()
            java = session._jsparkSession.internalCreateDataFrame(rdd, made._jdf.schema(), False)
            self.sinks[name](DataFrame(java, session), number)
            return name, text, made

        if len(self.layout.outputs) == 1:
            return [one(self.layout.outputs[0])]
        turns = self._turns()
        # The jobs of a batch belong to its query in whatever thread they start: stopping it stops them.
        task = inheritable_thread_target(session)(one)
        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="streamshed") as pool:
            running = [pool.submit(task, name) for name in self.runtime.in_turn(self.layout.outputs)]
            return [future.result() for future in running]

    def _turns(self) -> OutputTurns | None:
        """How outputs share the time of this batch, if the one before had too little of it."""
        end = self.gates.clock.limits.budget
        if end is None or not self._was_cut:
            return None
        with self._ours("the time of a batch could not be shared out"):
            work = self.runtime.work()
            if work:
                parts = {name: sum(work[on] for on in self.gates.arcs_above(name)) for name in self.layout.outputs}
                return OutputTurns(parts, time.time(), end)
        return None

    def _deadline(self, moment: float) -> None:
        """Set the deadline of the plans that are made from now on."""
        clock = self.gates.clock
        clock.set(replace(clock.limits, budget=moment), _FOREVER, self._stride)

    def _writer(self, rows: DataFrame, span: PlanSpan, number: int) -> Writer:
        names = self.layout.sources
        at_input: list[ExpiryGate | TimeGate] = []
        if not self._several:
            at_input += self._expiry_gate(names[0], raw=True)
            at_input += self._time_gate(names[0], self.gates.at_input)
        self._show(at_input, rows, self._input)
        inputs = dict.fromkeys(names, self._input)
        if len(inputs) > 1:
            inputs = {
                name: f"(SELECT _{at}.* FROM {self._input} WHERE _source = {at})" for at, name in enumerate(names)
            }
        numbers: Numbers = span.numbers or (None,) * self.slots.size
        places = {*self.slots.slots, *map(raw_arc, self.slots.raw)}
        armed = self._armed(numbers, number)
        if number in self._rehearsed:
            numbers = self.slots.rehearsal()

        def dropping(on: str) -> bool:
            return armed and on in places

        number_at = literals(self.slots, numbers)
        writer = Writer(
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
        self._gate_parsed(writer, rows.sparkSession)
        return writer

    def _gate_parsed(self, writer: Writer, session: SparkSession) -> None:
        """Put the gates of sources behind their parse where they cannot be in front of it."""
        for name in self.layout.sources:
            gates: list[ExpiryGate | TimeGate] = [*self._expiry_gate(name, raw=False)]
            behind = self._several or name not in self.gates.at_input
            if behind and name not in self.layout.shared:
                gates += self._time_gate(name, self.gates.at)
            if gates:
                text = writer.computed(name)
                self._show(gates, session.sql(text), self._parsed[name], text)
                writer.views = {**writer.views, name: self._parsed[name]}

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

    def _count(self, stages: list[_Stage], lost: dict[str, Loss]) -> BatchCounts:
        """Rows by source, box and arc, from the plans that a batch ran, and what gates took of them."""
        by_stage = self._read(stages)
        counts: dict[str, int] = {}
        for found in by_stage.values():
            for number, rows in found.items():
                if number in self._named:
                    counts[self._named[number]] = counts.get(self._named[number], 0) + rows
        cut, expired = self.gates.cut(by_stage), self.expiry.taken(by_stage, all_behind=self._several)
        if self._several:
            # Each of several sources is counted in the plan that reads them.
            wanted = {self.marks.of[name] for name in self.layout.sources}
            plan = self._execution.lastExecution().executedPlan()
            read = self._reader.read_marks(plan, wanted)
            counts |= {self._named[number]: rows for number, rows in read.items()}
        else:
            for before in (cut.raw, expired.raw):
                for name, rows in before.items():
                    counts[name] = counts.get(name, 0) + rows  # its mark is behind these gates
        return BatchCounts(counts, lost, cut, expired)

    def _read(self, stages: list[_Stage]) -> dict[str, dict[int, int]]:
        """Rows by stage and mark."""
        found: dict[str, dict[int, int]] = {}
        for name, text, made in stages:
            wanted = self._marks_in(text)
            if wanted:
                found[name] = self._reader.read_marks(made._jdf.queryExecution().executedPlan(), wanted)
        return found

    def _marks_in(self, text: str) -> set[int]:
        """Marks in SQL, and in the views that it reads."""
        marks = {int(mark) for mark in _MARKS.findall(text)}
        return marks.union(*(hidden for view, hidden in self._hidden.items() if re.search(rf"\b{view}\b", text)))


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
