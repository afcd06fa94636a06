"""An output below a window as a real-time query: rows go into the window, and its results on to the output.

    sources, as in `real_time_plan` ─► rows that pass the arc into the window ─► watermark ─► union of the sources
           ─► window and groups (a shuffle) ─► results, counted on their arcs ─► topic, key, value

Spark gives a result anew whenever a row changes it. So each comes with a key that says whose it is, its window and
group: Kafka keeps those of one key in order, and the last one counts.

Drops are in front of the window. Behind it a row has no age, and all of them pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from streamshed.network.graph import Aggregate, InvalidNetwork, Problem, Source
from streamshed.spark.network.network_query import view_numbers
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.real_time_plan import RowPlan, united
from streamshed.spark.network.slots import Slots, quoted, text
from streamshed.spark.network.sql import Marks, Writer

_KEY = "_streamshed_key"
_WATERMARK = "spark.watermarkDelayMs"


def window_of(layout: QueryLayout) -> Aggregate | None:
    """The window of a query; None if it has none."""
    boxes = (layout.network.nodes[name] for name in layout.boxes)
    return next((box for box in boxes if isinstance(box, Aggregate)), None)


def watermarked(source: Source, window: Aggregate, time: str, rows: DataFrame) -> DataFrame:
    """The rows of a source that enter a window, with the source's watermark, or that of the user's own stream."""
    if _WATERMARK in (rows.schema[time].metadata or {}):
        return rows
    if source.watermark is None:
        # A column that is computed, or comes by several ways, is a new one.
        raise InvalidNetwork(
            [
                Problem(
                    f"boxes.{window.name}",
                    f"in real-time mode the watermark of {source.name!r}'s stream does not come as far as here",
                    f"no watermark on {time!r}",
                    f'sources.{source.name}.watermark: "10 seconds", and none on its DataFrame',
                )
            ]
        )
    return rows.withWatermark(time, f"{source.watermark * 1e3:.0f} milliseconds")


def results(layout: QueryLayout, window: Aggregate, slots: Slots, parts: Sequence[DataFrame]) -> DataFrame:
    """What a window makes of the rows of all sources that enter it."""
    view = f"streamshed_{next(view_numbers)}_entering"
    rows = united(parts)
    rows.createOrReplaceTempView(view)
    try:
        marks = Marks({window.name: 1})
        above = {window.inputs[0]: view}
        writer = Writer(layout, slots, marks, {}, above, lambda on: False, lambda at: "NULL")
        return rows.sparkSession.sql(writer.computed(window.name))
    finally:
        # The plan does not need the view once it is analysed.
        rows.sparkSession.catalog.dropTempView(view)


class ResultPlan(RowPlan):
    """The plan for the results of a window."""

    def __init__(self, layout: QueryLayout, window: Aggregate, rows: DataFrame) -> None:
        pairs = ", ".join(f"{text(name)}, {quoted(name)}" for name in ("window_start", "window_end", *window.by))
        key = f"CAST(to_json(named_struct({pairs})) AS BINARY)"
        super().__init__(layout, window.name, rows.selectExpr("*", f"{key} AS {_KEY}"))
        self._key = _KEY
