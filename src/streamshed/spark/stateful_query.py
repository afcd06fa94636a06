"""One streaming query for one output below joins or windows."""

from __future__ import annotations

from collections.abc import Mapping
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
