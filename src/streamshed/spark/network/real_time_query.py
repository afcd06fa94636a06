"""One real-time query of a network: all outputs without windows, or one output below a window."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.network.graph import Source, arc
from streamshed.records import Flows
from streamshed.spark.network.arc_counts import ArcCounts
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.real_time_plan import SourcePlan, steps_of, united
from streamshed.spark.network.real_time_windows import ResultPlan, results, watermarked, window_of
from streamshed.spark.network.slots import Slots
from streamshed.spark.real_time.ladder_books import LadderBooks, LadderCounts
from streamshed.spark.real_time.refusals import check_operators
from streamshed.spark.real_time.road_map_ladder import RoadMapLadder
from streamshed.spark.real_time.task_slots import SlotsWanted, shuffle_partitions

CursorOf = Callable[[LadderBooks], Callable[[Column, Column], Column]]
"""For the books of a source, what makes the cursor of its rows, from when one arrived and its hash."""


class QueryBooks:
    """Counts the rows of a query's sources by the row of the road map that they met, and of all of its arcs."""

    def __init__(self, spark: SparkSession, layout: QueryLayout, rungs: int) -> None:
        self.rungs = rungs
        self.by_source = {name: LadderBooks(spark, 1, rungs) for name in layout.sources}
        window = window_of(layout)
        starts = layout.sources if window is None else (*layout.sources, window.name)
        self.arcs = {start: ArcCounts(spark, steps_of(layout, start)) for start in starts}
        """By the source, or the window, that the rows come from."""
        self._layout = layout
        self.flows = Flows()
        """Of what was taken last."""

    def take(self) -> LadderCounts:
        """What was counted by the tasks that have ended since this was asked last."""
        counts = {name: books.take() for name, books in self.by_source.items()}
        came: dict[str, int] = dict.fromkeys(self._layout.arcs, 0)
        passed: dict[str, int] = dict.fromkeys(self._layout.arcs, 0)
        for books in self.arcs.values():
            for total, part in zip((came, passed), books.take(), strict=True):
                for on, rows in part.items():
                    total[on] += rows
        self.flows = Flows(
            arrived={name: each.arrived for name, each in counts.items()},
            passed=passed,
            left={name: came[self._arc_out_of(name)] for name in self._layout.boxes},
            thinned=came != passed,
        )
        return reduce(LadderCounts.plus, counts.values())

    def _arc_out_of(self, box: str) -> str:
        below = self._layout.network.consumers[box]
        return arc(box, next(name for name in below if name in self._layout.nodes))

    def running(self) -> LadderCounts:
        """What the tasks that run have counted so far, if they are listened to."""
        return reduce(LadderCounts.plus, (books.running() for books in self.by_source.values()))

    def listen(self) -> None:
        for books in self.by_source.values():
            books.listen()

    def cease(self) -> None:
        for books in self.by_source.values():
            books.cease()


class RealTimeQuery:
    """A query of a network: its plan, its books, and the query itself once it runs."""

    def __init__(self, spark: SparkSession, layout: QueryLayout, rungs: int, checkpoint: str) -> None:
        self.layout = layout
        self.books = QueryBooks(spark, layout, rungs)
        self.checkpoint = checkpoint
        self.query: StreamingQuery | None = None
        self._spark = spark
        self._window = window_of(layout)

    def stream(
        self,
        rows: Mapping[str, DataFrame],
        topics: Mapping[str, str],
        slots: Slots,
        ladder: RoadMapLadder,
        cursor_of: CursorOf,
        serial: int,
    ) -> DataFrame:
        """The messages of its outputs; an operator that real-time mode refuses is named."""
        window = self._window
        parts = []
        for name in self.layout.sources:
            source = self.layout.network.nodes[name]
            assert isinstance(source, Source)
            cursor = cursor_of(self.books.by_source[name])
            plan = SourcePlan(self.layout, source, slots, ladder, rows[name], cursor, serial)
            if window is None:
                parts.append(plan.outputs(topics, self.books.arcs[name]))
                continue
            entering = plan.entering(window, self.books.arcs[name])
            time = str(self.layout.network.times[window.inputs[0]])
            parts.append(watermarked(source, window, time, entering))
        if window is None:
            made = united(parts)
        else:
            found = ResultPlan(self.layout, window, results(self.layout, window, slots, parts))
            made = found.outputs(topics, self.books.arcs[window.name])
        check_operators(made)
        return made

    def slots_wanted(self, partitions: Mapping[str, int]) -> SlotsWanted:
        """For its tasks, all of which run at once; `partitions` by source."""
        reading = sum(partitions[name] for name in self.layout.sources)
        shuffled = 0 if self._window is None else shuffle_partitions(self._spark, self.checkpoint)
        return SlotsWanted(reading, shuffled)

    def start(self, messages: DataFrame, options: Mapping[str, str], trigger: Mapping[str, Any]) -> None:
        writer = messages.writeStream.format("kafka").options(**options).outputMode("update")
        writer = writer.option("checkpointLocation", self.checkpoint).queryName(self.layout.name)
        self.query = writer.trigger(**trigger).start()

    def stop(self) -> None:
        if self.query is not None:
            with contextlib.suppress(Exception):
                self.query.stop()
