"""A network's nodes as SQL: what leaves each one, with drops on the arcs and marks to count by.

Text, because a batch's DataFrames are built anew in every batch of a fused query, and one `spark.sql` costs one
call into the JVM where the same from columns costs dozens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamshed.network.expressions.expression import Call, Expression, Field
from streamshed.network.graph import (
    Aggregate,
    Box,
    Column,
    CountWindow,
    Filter,
    Join,
    Map,
    Network,
    Output,
    Source,
    TopK,
    Udf,
    Union,
    arc,
    ends,
)
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.slots import RANGES, NumberAt, Slots, quoted, sql, text

SPARK_TYPES = {"LONG": "BIGINT", "SHORT": "SMALLINT", "BYTE": "TINYINT"}
CONTROL = "_streamshed_control"
KEY = "_streamshed_key"
STANDS_FOR = "_streamshed_stands_for"
"""For how many rows a row stands that passed drops."""
SIC = "_streamshed_sic"
"""What part of the rows went into a result of a window."""
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

    weighing: bool = False
    """Whether rows carry along for how many they stand, and results of windows their SIC."""

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
            if node.sic is not None:
                part = f"{SIC}" if self.weighing and self._windowed(node.input) else "1D"
                return f"SELECT {columns}, {part} AS {quoted(node.sic)} FROM ({rows})"
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
        if self.weighing:
            rows = f"SELECT *, 1D AS {STANDS_FOR} FROM ({rows})"
        if parser is None:
            return rows
        if self.dropping(raw_arc(name)):
            passes = self.slots.passes_raw(name, parser.raw, self.number)
            kept = self._kept(self.slots.stands_for_raw(name, self.number))
            rows = f"SELECT {kept} FROM ({rows}) WHERE {passes} AND {self.marks.clause(raw_arc(name))}"
        carried = "" if self.carry is None else f", {self.carry}"
        carried += f", {STANDS_FOR}" if self.weighing else ""
        inner = f"SELECT {parser.inner}{carried}, {FENCE} FROM ({rows})"
        return f"SELECT {parser.outer}{carried} FROM ({inner}) WHERE _fence >= 0"

    def wanted(self, name: str) -> str:
        """The rows that leave a node with several readers, without those that every one of them drops."""
        rows = self.rows(name)
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
        kept = "*" if self._windowed(tail) else self._kept(self.slots.stands_for(on, self.number))
        field_name = self.slots.slots[on].field
        if field_name is not None and self._is_computed(tail, field_name):
            fenced = f"SELECT *, {FENCE} FROM ({rows})"
            passes = f"_fence >= 0 AND {passes} AND {self.marks.clause(on)}"
            return f"SELECT * EXCEPT (_fence) FROM (SELECT {kept} FROM ({fenced}) WHERE {passes})"
        return f"SELECT {kept} FROM ({rows}) WHERE {passes} AND {self.marks.clause(on)}"

    def _kept(self, stands_for: str) -> str:
        """The columns of rows that passed a drop."""
        if not self.weighing:
            return "*"
        return f"* EXCEPT ({STANDS_FOR}), {STANDS_FOR} * {stands_for} AS {STANDS_FOR}"

    def _windowed(self, name: str) -> bool:
        """Whether rows that leave a node are results of windows."""
        node = self.network.nodes[name]
        if isinstance(node, Aggregate | CountWindow | TopK):
            return True
        return isinstance(node, Box) and any(map(self._windowed, node.inputs))

    def _is_computed(self, name: str, column: str) -> bool:
        """Whether a column of the rows that leave a node is computed on the way, and not just handed on."""
        node = self.network.nodes[name]
        if name in self.views or isinstance(node, Source) or (isinstance(node, Box) and node.makes_rows):
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
        return isinstance(node, Box) and (node.makes_rows or any(map(self._behind_state, node.inputs)))

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
            if self.weighing:
                columns.append(SIC if self._windowed(box.inputs[0]) else STANDS_FOR)
            return f"SELECT {', '.join(columns)} FROM ({inputs[0]})"
        if isinstance(box, Union):
            return " UNION ALL ".join(f"({rows})" for rows in inputs)
        if isinstance(box, Udf):
            call = f"{self.functions[box.name]}({', '.join(map(quoted, box.reads))})"
            return f"SELECT *, {call} AS {quoted(box.adds.name)} FROM ({inputs[0]})"
        if isinstance(box, Join):
            return self._counted(box, self._join(box, inputs))
        if isinstance(box, CountWindow):
            return self._counted(box, self._looks_like(box, inputs[0]))
        if isinstance(box, TopK):
            return self._counted(box, self._top_k(box, inputs[0]))
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
        if self.weighing:
            columns.append(f"l.{STANDS_FOR} * r.{STANDS_FOR} AS {STANDS_FOR}")
        on = " AND ".join([*pairs, near])
        return f"SELECT {', '.join(columns)} FROM ({inputs[0]}) l JOIN ({inputs[1]}) r ON {on}"

    def _aggregate(self, box: Aggregate, rows: str) -> str:
        window = self._window(box.inputs[0], box.window, box.slide)
        by = [quoted(name) for name in box.by]
        keys = ", ".join([window, *by])
        made = ", ".join([f"{window} AS w", *by, *self._computed(box), *self._went_in()])
        grouped = f"SELECT {made} FROM ({rows}) GROUP BY {keys}"
        columns = ["w.start AS window_start", "w.end AS window_end", *by, *map(quoted, box.compute)]
        columns += [SIC] if self.weighing else []
        return f"SELECT {', '.join(columns)} FROM ({grouped})"

    def _went_in(self) -> list[str]:
        """The part of its rows that went into a result: those there are, over those that they stand for."""
        return [f"count(1) / sum({STANDS_FOR}) AS {SIC}"] if self.weighing else []

    def _window(self, above: str, length: float, slide: float | None = None) -> str:
        step = "" if slide is None else f", '{slide * 1e6:.0f} microseconds'"
        return f"window({quoted(str(self.network.times[above]))}, '{length * 1e6:.0f} microseconds'{step})"

    def _computed(self, box: Aggregate | CountWindow) -> list[str]:
        types = {column.name: column for column in self.network.schemas[box.name]}
        return [
            f"CAST({_aggregated(expression)} AS {spark_type(types[name])}) AS {quoted(name)}"
            for name, expression in box.compute.items()
        ]

    def _looks_like(self, box: CountWindow, rows: str) -> str:
        """The columns that leave a count window, for Spark to look at: `count_window` makes the real rows."""
        time = quoted(str(self.network.times[box.inputs[0]]))
        by = [quoted(name) for name in box.by]
        columns = [f"min({time}) AS window_start", f"max({time}) AS window_end", *by, *self._computed(box)]
        groups = f" GROUP BY {', '.join(by)}" if by else ""
        return f"SELECT {', '.join(columns)} FROM ({rows}){groups}"

    def _top_k(self, box: TopK, rows: str) -> str:
        """The state has k rows of each window and group, and no more; equal values are told apart by a hash."""
        window = self._window(box.inputs[0], box.window)
        windowed = ("window_start", "window_end")
        above = [column.name for column in self.network.schemas[box.inputs[0]] if column.name not in windowed]
        row = f"named_struct({', '.join(f'{text(name)}, {quoted(name)}' for name in above)})"
        order = f"struct({quoted(box.field)}, xxhash64({', '.join(map(quoted, above))}))"
        keys = ", ".join([window, *map(quoted, box.by)])
        some = f"SELECT * FROM ({rows}) WHERE {quoted(box.field)} IS NOT NULL"
        made = ", ".join([f"{window} AS w", f"max_by({row}, {order}, {box.k}) AS best", *self._went_in()])
        grouped = f"SELECT {made} FROM ({some}) GROUP BY {keys}"
        part = f"{SIC}, " if self.weighing else ""
        columns = ", ".join(quoted(column.name) for column in self.network.schemas[box.name])
        opened = f"SELECT w.start AS window_start, w.end AS window_end, {part}inline(best) FROM ({grouped})"
        return f"SELECT {columns}{', ' + SIC if self.weighing else ''} FROM ({opened})"


def _aggregated(expression: Expression) -> str:
    """An aggregate as Spark takes it in a stream, where it knows no DISTINCT."""
    if isinstance(expression, Call) and expression.name == "count_distinct":
        return f"size(collect_set({sql(expression.args[0])}))"
    return sql(expression)


def counted_nodes(layout: QueryLayout) -> list[str]:
    """Boxes with a mark: those that yield another number of rows than enters them."""
    network = layout.network
    boxes = [network.nodes[name] for name in layout.boxes]
    return [box.name for box in boxes if isinstance(box, Filter) or (isinstance(box, Box) and box.makes_rows)]
