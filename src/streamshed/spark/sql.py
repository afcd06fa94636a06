"""A network's nodes as SQL: what leaves each one, with drops on the arcs and marks to count by.

Text, because a batch's DataFrames are built anew in every batch of a fused query, and one `spark.sql` costs one
call into the JVM where the same from columns costs dozens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamshed.network.expression import Field
from streamshed.network.graph import (
    Aggregate,
    Box,
    Column,
    Filter,
    Join,
    Map,
    Network,
    Output,
    Source,
    Udf,
    Union,
    arc,
    ends,
)
from streamshed.spark.layout import QueryLayout
from streamshed.spark.slots import RANGES, NumberAt, Slots, quoted, sql, text

SPARK_TYPES = {"LONG": "BIGINT", "SHORT": "SMALLINT", "BYTE": "TINYINT"}
CONTROL = "_streamshed_control"
KEY = "_streamshed_key"
FENCE = "spark_partition_id() AS _fence"
"""Spark moves filters below the columns they read, and computes those again wherever a filter mentions them: JSON
was parsed nine times for one drop by value. It moves nothing below a column that is not deterministic."""


def spark_type(column: Column) -> str:
    return SPARK_TYPES.get(column.type, column.type)


@dataclass(frozen=True)
class Marks:
    """Numbers of the always-true filters that count: see `counts`. Which node or arc has which."""

    of: Mapping[str, int]

    def clause(self, name: str) -> str:
        """True for every row; to be put in a WHERE."""
        return f"spark_partition_id() >= -{self.of[name]}"


@dataclass(frozen=True, slots=True)
class Parser:
    """How the raw rows of a source become its columns."""

    raw: tuple[str, ...]
    """The columns before."""
    inner: str
    """What is computed from them, and what of them is kept."""
    outer: str
    """The columns after."""

    @staticmethod
    def of(source: Source, given: Sequence[str]) -> Parser:
        """For a source whose stream has the raw column and maybe some of the schema's already."""
        assert source.parse is not None
        raw = source.parse["column"]
        ready = [column for column in source.schema if column.name in given and column.name != raw]
        fields = [column for column in source.schema if column not in ready]
        ddl = ", ".join(f"{quoted(column.name)} {spark_type(column)}" for column in fields)
        pairs = ", ".join(f"{text(str(k))}, {text(str(value))}" for k, value in source.parse["options"].items())
        options = f", map({pairs})" if pairs else ""
        call = f"from_{source.parse['format']}(CAST({quoted(raw)} AS STRING), {text(ddl)}{options})"
        inner = ", ".join([f"{call} AS _parsed", *(quoted(column.name) for column in ready)])
        outer = ", ".join(
            quoted(column.name) if column in ready else f"_parsed.{quoted(column.name)} AS {quoted(column.name)}"
            for column in source.schema
        )
        return Parser((raw, *(column.name for column in ready)), inner, outer)


def raw_arc(source: str) -> str:
    """The name of the place in front of a source's parse."""
    return f"{source} raw"


@dataclass
class Writer:
    """Writes the SQL of one query's nodes.

    inputs: for each source, the relation that its rows are read from
    views: nodes whose rows are there already, under the name of a view
    dropping: whether an arc's drop is to be written
    number: how a number of the control array is read
    carry: a column to be carried along to the drops: the control array
    control: the relation that it comes from
    """

    layout: QueryLayout
    slots: Slots
    marks: Marks
    inputs: Mapping[str, str]
    views: Mapping[str, str]
    dropping: Callable[[str], bool]
    number: NumberAt
    functions: Mapping[str, str] = field(default_factory=dict)
    """For each udf box, the name its function is registered under."""
    parsers: Mapping[str, Parser] = field(default_factory=dict)
    """For each source that is parsed late, how."""
    carry: str | None = None
    control: str | None = None
    counting: bool = True
    """Whether the rows of sources are counted here, or were counted before."""
    ranges: Callable[[str], int] = lambda on: RANGES
    """How many ranges the drop on an arc is written with. Five drops of four ranges are more code than Java
    compiles in one method; it is then interpreted, and a dropped row costs as much as a kept one."""

    @property
    def network(self) -> Network:
        return self.layout.network

    def rows(self, name: str) -> str:
        """The rows that leave a node."""
        if name in self.views:
            return f"SELECT * FROM {self.views[name]}"
        return self.computed(name)

    def computed(self, name: str) -> str:
        """The rows that leave a node, from those that enter it."""
        node = self.network.nodes[name]
        if isinstance(node, Output):
            columns = ", ".join(quoted(column.name) for column in self.network.schemas[name])
            rows = self.passing(arc(node.input, name))
            return rows if self.carry is None else f"SELECT {columns} FROM ({rows})"
        if isinstance(node, Source):
            return self._source(name)
        return self._box(node)

    def _source(self, name: str) -> str:
        rows = f"SELECT * FROM {self.inputs[name]}"
        if self.counting:
            rows += f" WHERE {self.marks.clause(name)}"
        if self.control is not None:
            rows = self._attached(rows)
        parser = self.parsers.get(name)
        if parser is None:
            return rows
        if self.dropping(raw_arc(name)):
            passes = self.slots.passes_raw(name, parser.raw, self.number)
            rows = f"SELECT * FROM ({rows}) WHERE {passes} AND {self.marks.clause(raw_arc(name))}"
        carried = "" if self.carry is None else f", {self.carry}"
        inner = f"SELECT {parser.inner}{carried}, {FENCE} FROM ({rows})"
        return f"SELECT {parser.outer}{carried} FROM ({inner}) WHERE _fence >= 0"

    def wanted(self, name: str) -> str:
        """The rows that leave a node with several readers, without those that every one of them drops."""
        rows = self.computed(name)
        arcs = [on for on in self.layout.arcs if ends(on)[0] == name]
        if not all(self.dropping(on) for on in arcs):
            return rows
        columns = self.network.schemas[name]
        passes = " OR ".join(
            dict.fromkeys(self.slots.passes(on, columns, self.number, self.ranges(on)) for on in arcs)
        )
        return f"SELECT * FROM ({rows}) WHERE {passes}"

    def passing(self, on: str) -> str:
        """The rows that pass an arc."""
        tail = ends(on)[0]
        rows = self.rows(tail)
        if not self.dropping(on):
            return rows
        passes = self.slots.passes(on, self.network.schemas[tail], self.number, self.ranges(on))
        if self._behind_state(tail):
            # State has shuffled the rows; the numbers did not come along.
            rows = self._attached(rows)
        field_name = self.slots.slots[on].field
        if field_name is not None and self._is_computed(tail, field_name):
            fenced = f"SELECT *, {FENCE} FROM ({rows})"
            passes = f"_fence >= 0 AND {passes} AND {self.marks.clause(on)}"
            return f"SELECT * EXCEPT (_fence) FROM ({fenced}) WHERE {passes}"
        return f"SELECT * FROM ({rows}) WHERE {passes} AND {self.marks.clause(on)}"

    def _is_computed(self, name: str, column: str) -> bool:
        """Whether a column of the rows that leave a node is computed on the way, and not just handed on."""
        node = self.network.nodes[name]
        if name in self.views or isinstance(node, Source | Join | Aggregate):
            return False
        if isinstance(node, Map):
            expression = node.select[column]
            return not isinstance(expression, Field) or self._is_computed(node.inputs[0], expression.name)
        if isinstance(node, Udf) and node.adds.name == column:
            return True
        return isinstance(node, Box) and any(self._is_computed(above, column) for above in node.inputs)

    def _behind_state(self, name: str) -> bool:
        """Whether rows come out of a join or a window at a node, or above it."""
        if self.carry is None:
            return False
        node = self.network.nodes[name]
        return isinstance(node, Join | Aggregate) or (
            isinstance(node, Box) and any(self._behind_state(above) for above in node.inputs)
        )

    def _attached(self, rows: str) -> str:
        """Rows with the control array: by a hash join on a key that is always equal, which the optimizer cannot
        know, since a nested loop costs several times as much; an outer one, so that no array means no drop."""
        keyed = f"SELECT *, CAST(spark_partition_id() < 0 AS BIGINT) AS {KEY} FROM ({rows})"
        return (
            f"SELECT /*+ BROADCAST(c) */ t.* EXCEPT ({KEY}), c.{self.carry} FROM ({keyed}) t"
            f" LEFT JOIN {self.control} c ON t.{KEY} = c.{KEY}"
        )

    def _box(self, box: Box) -> str:
        inputs = [self.passing(arc(name, box.name)) for name in box.inputs]
        if isinstance(box, Filter):
            return f"SELECT * FROM ({inputs[0]}) WHERE {sql(box.where)} AND {self.marks.clause(box.name)}"
        if isinstance(box, Map):
            columns = self._select(box)
            if self.carry is not None and not self._behind_state(box.name):
                columns.append(self.carry)
            return f"SELECT {', '.join(columns)} FROM ({inputs[0]})"
        if isinstance(box, Union):
            return " UNION ALL ".join(f"({rows})" for rows in inputs)
        if isinstance(box, Udf):
            call = f"{self.functions[box.name]}({', '.join(map(quoted, box.reads))})"
            return f"SELECT *, {call} AS {quoted(box.adds.name)} FROM ({inputs[0]})"
        if isinstance(box, Join):
            return self._counted(box, self._join(box, inputs))
        assert isinstance(box, Aggregate)
        return self._counted(box, self._aggregate(box, inputs[0]))

    def _select(self, box: Map) -> list[str]:
        types = {column.name: column for column in self.network.schemas[box.name]}
        above = {column.name: column for column in self.network.schemas[box.inputs[0]]}
        made = []
        for name, expression in box.select.items():
            value = sql(expression)
            before = above.get(str(expression))
            if before is None or before.type != types[name].type:
                value = f"CAST({value} AS {spark_type(types[name])})"
            made.append(f"{value} AS {quoted(name)}")
        return made

    def _counted(self, box: Box, rows: str) -> str:
        return f"SELECT * FROM ({rows}) WHERE {self.marks.clause(box.name)}"

    def _join(self, box: Join, inputs: Sequence[str]) -> str:
        left, right = box.inputs
        times = [self.network.times[left], self.network.times[right]]
        seconds = f"INTERVAL '{box.within:.6f}' SECOND"
        pairs = [f"l.{quoted(name)} = r.{quoted(name)}" for name in box.on]
        near = (
            f"l.{quoted(str(times[0]))} >= r.{quoted(str(times[1]))} - {seconds}"
            f" AND l.{quoted(str(times[0]))} <= r.{quoted(str(times[1]))} + {seconds}"
        )
        columns = [f"l.{quoted(column.name)}" for column in self.network.schemas[left]]
        columns += [
            f"r.{quoted(column.name)}" for column in self.network.schemas[right] if column.name not in box.on
        ]
        on = " AND ".join([*pairs, near])
        return f"SELECT {', '.join(columns)} FROM ({inputs[0]}) l JOIN ({inputs[1]}) r ON {on}"

    def _aggregate(self, box: Aggregate, rows: str) -> str:
        time = quoted(str(self.network.times[box.inputs[0]]))
        slide = "" if box.slide is None else f", '{box.slide * 1e6:.0f} microseconds'"
        window = f"window({time}, '{box.window * 1e6:.0f} microseconds'{slide})"
        by = [quoted(name) for name in box.by]
        types = {column.name: column for column in self.network.schemas[box.name]}
        computed = [
            f"CAST({sql(expression)} AS {spark_type(types[name])}) AS {quoted(name)}"
            for name, expression in box.compute.items()
        ]
        keys = ", ".join([window, *by])
        grouped = f"SELECT {', '.join([f'{window} AS w', *by, *computed])} FROM ({rows}) GROUP BY {keys}"
        columns = ["w.start AS window_start", "w.end AS window_end", *by, *map(quoted, box.compute)]
        return f"SELECT {', '.join(columns)} FROM ({grouped})"


def counted_nodes(layout: QueryLayout) -> list[str]:
    """Boxes with a mark: those that yield another number of rows than enters them."""
    network = layout.network
    return [name for name in layout.boxes if isinstance(network.nodes[name], Filter | Join | Aggregate)]
