"""One streaming query for one output below joins or windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.spark.counts import PlanReader, arrived_mark
from streamshed.spark.network_query import NetworkQuery, view_numbers
from streamshed.spark.sql import CONTROL, Writer, raw_arc


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
        inputs = {name: view(self.sources[name], f"in{index}") for index, name in enumerate(self.layout.sources)}
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
        )
        network = self.layout.network
        for index, source in enumerate(one for one in network.sources if one.name in inputs):
            rows = self.spark.sql(writer.computed(source.name))
            if source.arrived is not None and source.watermark is not None:
                rows = rows.withWatermark(source.arrived, f"{source.watermark * 1e3:.0f} milliseconds")
            writer.views = {**writer.views, source.name: view(rows, f"source{index}")}
        return self.spark.sql(writer.rows(self.layout.outputs[0])).where(arrived_mark(self.serial))

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
        with self._ours("the time of a batch could not be read"):
            self._batch_time(number)
        try:
            self._sink(rows, number)
        except Exception as error:
            raise self._failure(error) from None
        with self._ours("the rows of a batch could not be counted", blinds=True):
            found = self._reader.read_marks(self._execution.lastExecution().executedPlan(), self._wanted)
            self._counted(number, {self._named[mark]: count for mark, count in found.items()}, {})
