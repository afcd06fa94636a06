"""One streaming query for one output below joins or windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.network.graph import CountWindow, arc
from streamshed.spark.network.count_window import windows
from streamshed.spark.network.network_query import BatchCounts, NetworkQuery, view_numbers
from streamshed.spark.network.sql import CONTROL, Writer, raw_arc
from streamshed.spark.watch.plan_counts import ARRIVED, PlanReader, mark


class StatefulQuery(NetworkQuery):
    """One output below joins or windows. The drops are part of its plan, and read the control row there."""

    def stream(self) -> DataFrame:
        token = f"streamshed_{next(view_numbers)}"
        views: list[str] = []

        def view(rows: DataFrame, name: str) -> str:
            views.append(f"{token}_{name}")
            rows.createOrReplaceTempView(views[-1])
            return views[-1]

        try:
            return self._made(view)
        finally:
            # Views would outlive the query in the user's session; the plan does not need them once it is analysed.
            for name in views:
                self.spark.catalog.dropTempView(name)

    def _made(self, view: Callable[[DataFrame, str], str]) -> DataFrame:
        slots = self.slots
        control = view(self.control.relation(self.spark), "control")
        at_input, expiry = self.gates.at_input, self.expiry.at
        inputs = {}
        for index, (name, rows) in enumerate(self.sources.items()):
            if name in expiry and expiry[name].raw:
                rows = expiry[name].before(rows)
            if name in at_input:
                rows = at_input[name].before(rows)
            inputs[name] = view(rows, f"in{index}")
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
            control=control,
            weighing=any(
                output.sic is not None
                for output in self.layout.network.outputs
                if output.name in self.layout.outputs
            ),
        )
        network = self.layout.network
        for index, source in enumerate(one for one in network.sources if one.name in inputs):
            rows = self.spark.sql(writer.computed(source.name))
            if source.name in expiry and not expiry[source.name].raw:
                rows = expiry[source.name].before(rows)
            if source.name in self.gates.at and source.name not in at_input:
                rows = self.gates.at[source.name].before(rows)
            if source.arrived is not None and source.watermark is not None:
                rows = rows.withWatermark(source.arrived, f"{source.watermark * 1e3:.0f} milliseconds")
            writer.views = {**writer.views, source.name: view(rows, f"source{index}")}
        for index, box in enumerate(network.nodes[name] for name in self.layout.boxes):
            if isinstance(box, CountWindow):
                entering = self.spark.sql(writer.passing(arc(box.inputs[0], box.name)))
                made = windows(network, box, entering, weighing=writer.weighing).where(self.marks.clause(box.name))
                writer.views = {**writer.views, box.name: view(made, f"windows{index}")}
        return self.spark.sql(writer.rows(self.layout.outputs[0])).where(mark(self.serial, ARRIVED))

    def start(self, checkpoint: str, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        (output,) = self.layout.outputs
        self._sink = self.sinks[output]
        self._reader = PlanReader(self.spark)
        gates = [*self.gates.at_input.values(), *self.gates.at.values()]
        self._wanted = set(self.marks.of.values()).union(*(gate.marks for gate in gates))
        node = self.layout.network.nodes[output]
        mode = str((getattr(node, "write", None) or {}).get("mode", "append"))
        writer = self.stream().writeStream.foreachBatch(self._batch).queryName(name).outputMode(mode)
        writer = writer.option("checkpointLocation", checkpoint)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def _batch(self, rows: DataFrame, number: int) -> None:
        with self._ours("the time of a batch could not be read"):
            self._batch_time(number)
        try:
            self._sink(rows, number)
        except Exception as error:
            raise self._failure(error) from None
        with self._ours("the rows of a batch could not be counted", blinds=True):
            # Marks that are never in the plan would be searched for in every batch.
            wanted = self._wanted | self.expiry.marks if self.clock.has_expired else self._wanted
            found = self._reader.read_marks(self._execution.lastExecution().executedPlan(), wanted)
            counts = {self._named[mark]: count for mark, count in found.items() if mark in self._named}
            by_stage = {self.layout.outputs[0]: found}
            cut, expired = self.gates.cut(by_stage), self.expiry.taken(by_stage)
            for lost in (cut.raw, expired.raw):
                for name, count in lost.items():
                    counts[name] += count  # its mark is behind these gates
            self._counted(number, BatchCounts(counts, {}, cut, expired))
