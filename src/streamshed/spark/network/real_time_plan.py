"""A network of stateless boxes as one real-time query: every row of a source goes all of its ways at once.

Real-time mode has no `foreachBatch` and unites no stream with itself, so a row that splits cannot become several
plans. It stays one row instead, with a column for each step of each of its ways:

    source ─► cursor (by its age) ─► for each arc: does it come, does it pass? ─► for each box: what it makes of it
           ─► count all arcs ─► one row for each output that was reached: topic, key, value

A box below a union is there once for each way on which rows come to it. What several ways share is computed
once. Which drops are in force is one number, the row's cursor: the numbers of each arc (`slots`) stand in
constant arrays, one entry for each row of the road map. How they are to be read is in `road_map_ladder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.network.expressions.expression import Expression, Field
from streamshed.network.graph import Box, Filter, Map, Network, Output, Source, Union, arc, inputs
from streamshed.spark.network.arc_counts import ArcCounts
from streamshed.spark.network.network_query import view_numbers
from streamshed.spark.network.slots import RANGES, WHOLE, Slot, Slots, quoted, row_hash, sql, text
from streamshed.spark.network.sql import FENCE, Parser, spark_type
from streamshed.spark.real_time.road_map_ladder import RoadMapLadder
from streamshed.spark.watch.plan_counts import ARRIVED, mark

HASH, _CURSOR = "_streamshed_hash", "_streamshed_cursor"
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


def steps_of(network: Network, source: Source) -> list[str]:
    """The arcs that rows of a source come along, once for each way; in the order of `SourcePlan`."""
    ways: dict[str, int] = {source.name: 1}
    found: list[str] = []
    heads: list[Box | Output] = [*network.order, *network.outputs]
    for head in heads:
        for tail in inputs(head):
            found += [arc(tail, head.name)] * ways.get(tail, 0)
            ways[head.name] = ways.get(head.name, 0) + ways.get(tail, 0)
    return found


class SourcePlan:
    """Builds the plan for the rows of one source, layer by layer."""

    def __init__(
        self,
        network: Network,
        source: Source,
        slots: Slots,
        ladder: RoadMapLadder,
        rows: DataFrame,
        cursor: Callable[[Column, Column], Column],
        serial: int,
    ) -> None:
        """`cursor` of a row, from when it arrived and its hash."""
        self._network = network
        self._slots = slots
        self._numbers = [slots.encode(()), *(slots.encode(row.drops) for row in ladder.rows)]
        self._count = 0
        self.steps: list[Step] = []
        marked = rows.where(mark(serial, ARRIVED))
        self.frame = marked if source.parse is None else _parsed(source, marked)
        names = [column.name for column in source.schema]
        self.frame = self.frame.selectExpr("*", f"{row_hash(source.name, names)} AS {HASH}")
        arrival = F.col(quoted(str(source.arrived)))
        self.frame = self.frame.select("*", cursor(arrival, F.col(HASH)).alias(_CURSOR))
        self._ways: dict[str, list[Way]] = {
            source.name: [Way("TRUE", "1D", {name: quoted(name) for name in names})]
        }
        for box in network.order:
            made = [self._through(box, way) for tail in box.inputs for way in self._along(tail, box.name)]
            if made:
                self._ways[box.name] = made

    def outputs(self, topics: Mapping[str, str], counts: ArcCounts) -> DataFrame:
        """Rows for Kafka: topic, key and value."""
        made = []
        for output in self._network.outputs:
            for way in self._along(output.input, output.name):
                row = _message(self._network, output, way, topics[output.name])
                made.append(f"IF({way.is_there}, {row}, NULL)")
        came, passed = (
            " + ".join(f"IF({getattr(step, which)}, {1 << bit}L, 0L)" for bit, step in enumerate(self.steps))
            for which in ("came", "passed")
        )
        # Spark would move the count below what it reads, and compute that twice.
        fenced = self.frame.selectExpr("*", FENCE)
        counted = fenced.where((F.col("_fence") >= 0) & counts.counted(F.expr(came), F.expr(passed)))
        return counted.selectExpr(f"inline(array({', '.join(made)}))").where("topic IS NOT NULL")

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
            slot = self._slots.slots.get(on)
            passed = way
            if slot is not None and self._drops(slot):
                keep = self._keep(slot, way.columns)
                share = self._layer(share=f"IF({_CURSOR} = 0, 1D, {way.share} * {keep})")["share"]
                is_there = f"{way.is_there} AND ({_CURSOR} = 0 OR {HASH} < {share} * {WHOLE:.0f}D)"
                passed = Way(self._layer(passes=is_there)["passes"], share, way.columns)
            self.steps.append(Step(on, way.is_there, passed.is_there))
            found.append(passed)
        return found

    def _through(self, box: Box, way: Way) -> Way:
        """What a box makes of the rows that enter it."""
        if isinstance(box, Filter):
            condition = f"COALESCE({way.is_there} AND {_renamed(box.where, way.columns)}, FALSE)"
            return replace(way, is_there=self._layer(left=condition)["left"])
        if isinstance(box, Map):
            types = {column.name: column for column in self._network.schemas[box.name]}
            values = {
                f"c{place}": f"CAST({_renamed(value, way.columns)} AS {spark_type(types[name])})"
                for place, (name, value) in enumerate(box.select.items())
            }
            made = self._layer(**{name: f"IF({way.is_there}, {value}, NULL)" for name, value in values.items()})
            return replace(way, columns=dict(zip(box.select, made.values(), strict=True)))
        assert isinstance(box, Union)
        names = [column.name for column in self._network.schemas[box.name]]
        return replace(way, columns=dict(zip(names, way.columns.values(), strict=True)))

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


def _message(network: Network, output: Output, way: Way, topic: str) -> str:
    """A row of an output as Kafka takes it: its own key and value, if that is text or bytes; else all as JSON."""
    types = {column.name: column.type for column in network.schemas[output.name]}
    key = "CAST(NULL AS BINARY)"
    if "key" in types:
        key = f"CAST(CAST({way.columns['key']} AS STRING) AS BINARY)"
        key = f"CAST({way.columns['key']} AS BINARY)" if types["key"] == "BINARY" else key
    if types.get("value") in ("STRING", "BINARY"):
        value = f"CAST({way.columns['value']} AS BINARY)"
    else:
        pairs = ", ".join(f"{text(name)}, {way.columns[name]}" for name in types)
        value = f"CAST(to_json(named_struct({pairs})) AS BINARY)"
    return f"named_struct('topic', {text(topic)}, 'key', {key}, 'value', {value})"


def all_outputs(parts: Sequence[DataFrame]) -> DataFrame:
    """The messages of all sources in one stream."""
    union = parts[0]
    for part in parts[1:]:
        union = union.unionAll(part)
    return union
