"""Stateless boxes in one real-time query: every row of a source goes all of its ways at once.

Real-time mode has no `foreachBatch` and unites no stream with itself, so a row that splits cannot become several
plans. It stays one row instead, with a column for each step of each of its ways:

    source ─► cursor (by its age) ─► for each arc: does it come, does it pass? ─► for each box: what it makes of it
           ─► count all arcs ─► one row for each output that was reached: topic, key, value

A box below a union is there once for each way on which rows come to it. What several ways share is computed
once. Which drops are in force is one number, the row's cursor: the numbers of each arc (`slots`) stand in
constant arrays, one entry for each row of the road map. How they are to be read is in `road_map_ladder`.

Rows end where they enter a window, and its results go all of their ways from there (`real_time_windows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.network.expressions.expression import Expression, Field
from streamshed.network.graph import Aggregate, Box, Filter, Map, Network, Output, Source, Union, arc, inputs
from streamshed.spark.network.arc_counts import ArcCounts
from streamshed.spark.network.network_query import view_numbers
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.slots import RANGES, WHOLE, Slot, Slots, quoted, row_hash, sql, text
from streamshed.spark.network.sql import FENCE, Parser, spark_type
from streamshed.spark.real_time.road_map_ladder import RoadMapLadder
from streamshed.spark.watch.plan_counts import ARRIVED, mark

HASH, _CURSOR, _THERE = "_streamshed_hash", "_streamshed_cursor", "_streamshed_there"
_NONE = "CAST(NULL AS DOUBLE)"


@dataclass(frozen=True, slots=True)
class Way:
    """Rows of a source that leave a node, as columns: whether there is one, its share, its fields."""

    is_there: str
    share: str
    columns: Mapping[str, str]
    """By the node's own name of each."""


@dataclass(frozen=True, slots=True)
class Step:
    """An arc on one way: what came to it and what passed, as columns."""

    arc: str
    came: str
    passed: str


def steps_of(layout: QueryLayout, start: str) -> list[str]:
    """The arcs of a query that rows of a source come along, or results of a window; once for each way.

    In the order of `RowPlan.steps`. Rows that enter a window end there.
    """
    ways: dict[str, int] = {start: 1}
    found: list[str] = []
    for head in layout.heads:
        for tail in inputs(head):
            found += [arc(tail, head.name)] * ways.get(tail, 0)
            if isinstance(head, Output) or not head.makes_rows:
                ways[head.name] = ways.get(head.name, 0) + ways.get(tail, 0)
    return found


class RowPlan:
    """Builds the plan for the rows that one node of a query gives, layer by layer, as far as the next window."""

    def __init__(self, layout: QueryLayout, start: str, frame: DataFrame) -> None:
        """`frame` has the columns of the node, and maybe others."""
        self._layout = layout
        self._network = layout.network
        self._count = 0
        self.frame = frame
        self.steps: list[Step] = []
        names = [column.name for column in self._network.schemas[start]]
        self._ways: dict[str, list[Way]] = {start: [Way("TRUE", "1D", {name: quoted(name) for name in names})]}
        self._into_window: list[Way] = []
        self._key = "CAST(NULL AS BINARY)"
        for box in self._network.order:
            if box.name in layout.nodes:
                self._add(box)

    def _add(self, box: Box) -> None:
        ways = [way for tail in box.inputs for way in self._along(tail, box.name)]
        if box.makes_rows:
            self._into_window += ways
        elif ways:
            self._ways[box.name] = [self._through(box, way) for way in ways]

    def outputs(self, topics: Mapping[str, str], counts: ArcCounts) -> DataFrame:
        """Rows for Kafka: topic, key and value."""
        made = []
        for name in self._layout.outputs:
            output = self._network.nodes[name]
            assert isinstance(output, Output)
            for way in self._along(output.input, name):
                row = _message(self._network, output, way, topics[name], self._key)
                made.append(f"IF({way.is_there}, {row}, NULL)")
        return self._counted(counts).selectExpr(f"inline(array({', '.join(made)}))").where("topic IS NOT NULL")

    def entering(self, window: Aggregate, counts: ArcCounts) -> DataFrame:
        """The rows that go into the window, with the columns of the node above it."""
        names = [column.name for column in self._network.schemas[window.inputs[0]]]
        counted = self._counted(counts)
        if len(self._into_window) == 1:
            # Columns that stay what they are keep the watermark that the user may have put on them.
            (way,) = self._into_window
            return counted.where(way.is_there).selectExpr(
                *(f"{way.columns[name]} AS {quoted(name)}" for name in names)
            )
        rows = []
        for way in self._into_window:
            pairs = ", ".join(f"{text(name)}, {way.columns[name]}" for name in names)
            rows.append(f"IF({way.is_there}, named_struct('{_THERE}', TRUE, {pairs}), NULL)")
        return counted.selectExpr(f"inline(array({', '.join(rows)}))").where(_THERE).drop(_THERE)

    def _counted(self, counts: ArcCounts) -> DataFrame:
        """The rows with all of their columns, which are counted on all arcs."""
        came, passed = (
            " + ".join(f"IF({getattr(step, which)}, {1 << bit}L, 0L)" for bit, step in enumerate(self.steps))
            for which in ("came", "passed")
        )
        # Spark would move the count below what it reads, and compute that twice.
        fenced = self.frame.selectExpr("*", FENCE)
        return fenced.where((F.col("_fence") >= 0) & counts.counted(F.expr(came), F.expr(passed)))

    def _layer(self, **columns: str) -> dict[str, str]:
        """Add columns; what they are called."""
        self._count += 1
        names = {what: f"_streamshed_{self._count}_{what}" for what in columns}
        self.frame = self.frame.selectExpr(
            "*", *(f"{value} AS {quoted(names[what])}" for what, value in columns.items())
        )
        return {what: quoted(name) for what, name in names.items()}

    def _along(self, tail: str, head: str) -> list[Way]:
        """The rows that pass an arc, way by way."""
        on = arc(tail, head)
        found = []
        for way in self._ways.get(tail, []):
            passed = self._past_drop(on, way)
            self.steps.append(Step(on, way.is_there, passed.is_there))
            found.append(passed)
        return found

    def _past_drop(self, on: str, way: Way) -> Way:
        """What the drop on an arc leaves; behind windows there is none."""
        return way

    def _through(self, box: Box, way: Way) -> Way:
        """What a box makes of the rows that enter it."""
        if isinstance(box, Filter):
            condition = f"COALESCE({way.is_there} AND {_renamed(box.where, way.columns)}, FALSE)"
            return replace(way, is_there=self._layer(left=condition)["left"])
        if isinstance(box, Map):
            types = {column.name: column for column in self._network.schemas[box.name]}
            above = {column.name: column.type for column in self._network.schemas[box.inputs[0]]}
            same, computed = {}, {}
            for place, (name, value) in enumerate(box.select.items()):
                if isinstance(value, Field) and above[value.name] == types[name].type:
                    same[name] = way.columns[value.name]
                else:
                    cast = f"CAST({_renamed(value, way.columns)} AS {spark_type(types[name])})"
                    computed[f"c{place}"] = f"IF({way.is_there}, {cast}, NULL)"
            made = iter((self._layer(**computed) if computed else {}).values())
            columns = {name: same[name] if name in same else next(made) for name in box.select}
            return replace(way, columns=columns)
        assert isinstance(box, Union)
        names = [column.name for column in self._network.schemas[box.name]]
        return replace(way, columns=dict(zip(names, way.columns.values(), strict=True)))


class SourcePlan(RowPlan):
    """The plan for the rows of a source, with the drops on their arcs."""

    def __init__(
        self,
        layout: QueryLayout,
        source: Source,
        slots: Slots,
        ladder: RoadMapLadder,
        rows: DataFrame,
        cursor: Callable[[Column, Column], Column],
        serial: int,
    ) -> None:
        """`cursor` of a row, from when it arrived and its hash."""
        self._slots = slots
        self._numbers = [slots.encode(()), *(slots.encode(row.drops) for row in ladder.rows)]
        marked = rows.where(mark(serial, ARRIVED))
        frame = marked if source.parse is None else _parsed(source, marked)
        names = [column.name for column in source.schema]
        frame = frame.selectExpr("*", f"{row_hash(source.name, names)} AS {HASH}")
        arrival = F.col(quoted(str(source.arrived)))
        super().__init__(layout, source.name, frame.select("*", cursor(arrival, F.col(HASH)).alias(_CURSOR)))

    def _past_drop(self, on: str, way: Way) -> Way:
        slot = self._slots.slots.get(on)
        if slot is None or not self._drops(slot):
            return way
        keep = self._keep(slot, way.columns)
        share = self._layer(share=f"IF({_CURSOR} = 0, 1D, {way.share} * {keep})")["share"]
        is_there = f"{way.is_there} AND ({_CURSOR} = 0 OR {HASH} < {share} * {WHOLE:.0f}D)"
        return Way(self._layer(passes=is_there)["passes"], share, way.columns)

    def _drops(self, slot: Slot) -> bool:
        """Whether any row of the road map drops there."""
        return any(numbers[slot.at] is not None for numbers in self._numbers)

    def _keep(self, slot: Slot, columns: Mapping[str, str]) -> str:
        """What the drop on an arc keeps of a row's like, between 0 and 1."""
        keep = self._at(slot.at + slot.outside, 1.0, WHOLE)
        ranges = 0
        if slot.field is not None:
            ranges = max(self._slots.ranges(numbers, slot.arc) for numbers in self._numbers)
            value = f"CAST({columns[slot.field]} AS DOUBLE)"
            spans = [(slot.at + 2 + 2 * k, slot.at + 3 + 2 * k) for k in range(min(ranges, RANGES))]
            if spans:
                within = " OR ".join(
                    f"({value} >= {self._at(low)} AND {value} < {self._at(high)})" for low, high in spans
                )
                keep = f"IF({within}, {self._at(slot.at, 1.0, WHOLE)}, {keep})"
        if slot.protect is not None:
            keep = f"IF({_renamed(slot.protect, columns)}, 1D, {keep})"
        return keep

    def _at(self, place: int, missing: float | None = None, over: float = 1.0) -> str:
        """The number at a place of the slots, for the row of the road map that is in force."""
        numbers = [row[place] for row in self._numbers]
        texts = [
            (_NONE if missing is None else f"{missing!r}D") if number is None else f"{number / over!r}D"
            for number in numbers
        ]
        return f"get(array({', '.join(texts)}), CAST({_CURSOR} AS INT))"


def _parsed(source: Source, rows: DataFrame) -> DataFrame:
    """The columns of a source from its raw rows."""
    parser = Parser.of(source, rows.columns)
    view = f"streamshed_{next(view_numbers)}_raw"
    rows.createOrReplaceTempView(view)
    try:
        inner = f"SELECT {parser.inner}, {FENCE} FROM {view}"
        return rows.sparkSession.sql(f"SELECT {parser.outer} FROM ({inner}) WHERE _fence >= 0")
    finally:
        # The plan does not need the view once it is analysed.
        rows.sparkSession.catalog.dropTempView(view)


def _renamed(expression: Expression, columns: Mapping[str, str]) -> str:
    """An expression of a node's columns as SQL of ours."""
    return sql(_rename(expression, columns))


def _rename(expression: Expression, columns: Mapping[str, str]) -> Expression:
    if isinstance(expression, Field):
        return Field(columns[expression.name].strip("`").replace("``", "`"))
    changes: dict[str, object] = {}
    for each in fields(expression):
        value = getattr(expression, each.name)
        if isinstance(value, Expression):
            changes[each.name] = _rename(value, columns)
        elif isinstance(value, tuple):
            changes[each.name] = tuple(_rename(item, columns) for item in value)
    return replace(expression, **changes) if changes else expression


def _message(network: Network, output: Output, way: Way, topic: str, key: str) -> str:
    """A row of an output as Kafka takes it: its own key and value, if that is text or bytes; else all as JSON.

    `key`: if it has none of its own.
    """
    types = {column.name: column.type for column in network.schemas[output.name]}
    if "key" in types:
        key = f"CAST(CAST({way.columns['key']} AS STRING) AS BINARY)"
        key = f"CAST({way.columns['key']} AS BINARY)" if types["key"] == "BINARY" else key
    if types.get("value") in ("STRING", "BINARY"):
        value = f"CAST({way.columns['value']} AS BINARY)"
    else:
        pairs = ", ".join(f"{text(name)}, {way.columns[name]}" for name in types)
        value = f"CAST(to_json(named_struct({pairs})) AS BINARY)"
    return f"named_struct('topic', {text(topic)}, 'key', {key}, 'value', {value})"


def united(parts: Sequence[DataFrame]) -> DataFrame:
    """The rows of all sources in one stream."""
    union = parts[0]
    for part in parts[1:]:
        union = union.unionAll(part)
    return union
