"""The query network: sources, boxes and outputs, and the arcs between them.

Everything here is frozen and does nothing when built; runtimes compile it. An arc is named `from->to`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from streamshed.errors import InvalidArgument
from streamshed.network.expression import AGGREGATES, Call, Expression, Inverse
from streamshed.network.qos import Histogram, QoS

DEFAULT_COST = 1e-6
"""Seconds a row, for a box whose cost is neither given nor measured yet."""

TYPES = (
    "BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING", "DATE", "TIMESTAMP", "BINARY",
)  # fmt: skip
_SYNONYMS = {
    "INTEGER": "INT", "BIGINT": "LONG", "SMALLINT": "SHORT", "TINYINT": "BYTE", "REAL": "FLOAT",
    "BOOL": "BOOLEAN",
}  # fmt: skip
_WHOLE = ("BYTE", "SHORT", "INT", "LONG")
_NUMERIC = (*_WHOLE, "FLOAT", "DOUBLE")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str

    @property
    def whole(self) -> bool:
        """Whether its values are integers."""
        return self.type in _WHOLE

    @property
    def numeric(self) -> bool:
        return self.type in _NUMERIC


Schema = tuple[Column, ...]


def schema_of(text: str) -> Schema:
    """Columns from DDL such as "soldier INT, bpm DOUBLE".

    >>> schema_of("soldier INT, at timestamp")
    (Column(name='soldier', type='INT'), Column(name='at', type='TIMESTAMP'))
    """
    columns: list[Column] = []
    for part in text.split(",") if isinstance(text, str) else [""]:
        words = part.split()
        type_ = _SYNONYMS.get(words[-1].upper(), words[-1].upper()) if len(words) == 2 else ""
        if type_ not in TYPES or not words[0].isidentifier():
            raise InvalidArgument(
                "not a column", got=repr(part.strip()), hint=f"a name and one of {', '.join(TYPES)}"
            )
        if any(column.name == words[0] for column in columns):
            raise InvalidArgument("two columns of one name", got=repr(words[0]))
        columns.append(Column(words[0], type_))
    return tuple(columns)


def ddl(schema: Schema) -> str:
    """The schema as DDL; `schema_of` reads it back."""
    return ", ".join(f"{column.name} {column.type}" for column in schema)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from."""

    name: str
    schema: Schema
    arrived: str | None = None
    """The column that holds the arrival time."""
    rate: float = 1.0
    """Rows per second, a first estimate."""
    read: Mapping[str, Any] | None = field(default=None, hash=False)
    """Spark source: format and options."""
    protect: Expression | None = None
    """Rows for which this is true are never dropped."""
    protected: float = 0.0
    """Share of the rows that are protected."""
    values: Mapping[str, Histogram] = field(default_factory=dict, hash=False)
    """How the values of a field are spread, where known."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A step of processing. A row from any input costs `cost` seconds and yields `selectivity` rows."""

    op: ClassVar[str] = "box"
    name: str
    inputs: tuple[str, ...]
    cost: float = DEFAULT_COST
    selectivity: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Filter(Box):
    op: ClassVar[str] = "filter"
    where: Expression


@dataclass(frozen=True, kw_only=True)
class Map(Box):
    """Computes each column of its output from the input's; columns not named are gone."""

    op: ClassVar[str] = "map"
    select: Mapping[str, Expression] = field(hash=False)
    inverse: Mapping[str, Inverse] = field(default_factory=dict, hash=False)
    """For output columns whose inverse cannot be derived: declared by the user."""


@dataclass(frozen=True, kw_only=True)
class Union(Box):
    """All rows of all inputs, which have equal columns."""

    op: ClassVar[str] = "union"


@dataclass(frozen=True, kw_only=True)
class Join(Box):
    """Pairs of rows equal in `on` that arrived at most `within` seconds apart."""

    op: ClassVar[str] = "join"
    on: tuple[str, ...]
    within: float


@dataclass(frozen=True, kw_only=True)
class Aggregate(Box):
    """One row for each window of event time and value of `by`: `compute` names its columns.

    Its columns are `window_start`, `window_end`, those of `by`, then those computed.
    """

    op: ClassVar[str] = "aggregate"
    window: float
    slide: float | None = None
    """Seconds between the starts of windows; None for tumbling ones."""
    by: tuple[str, ...] = ()
    compute: Mapping[str, Expression] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class Udf(Box):
    """A Python function of some columns, whose cost may depend on them; it adds one column."""

    op: ClassVar[str] = "udf"
    function: str
    """`package.module:name`."""
    reads: tuple[str, ...]
    adds: Column


BOXES: dict[str, type[Box]] = {box.op: box for box in (Filter, Map, Union, Join, Aggregate, Udf)}


@dataclass(frozen=True, kw_only=True)
class Output:
    name: str
    input: str
    qos: QoS = field(default_factory=QoS)
    write: Mapping[str, Any] | None = field(default=None, hash=False)
    """Spark sink: format and options."""


Node = Source | Box | Output


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a network: where, what, what was got, what is allowed."""

    path: str
    problem: str
    got: object = None
    allowed: str | None = None

    def __str__(self) -> str:
        got = "" if self.got is None else f"\n    got:     {self.got}"
        allowed = "" if self.allowed is None else f"\n    allowed: {self.allowed}"
        return f"{self.path}: {self.problem}{got}{allowed}"


class InvalidNetwork(InvalidArgument):
    """A network with problems; `problems` has all of them."""

    def __init__(self, problems: Iterable[Problem], where: str = "the network") -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"{where} has {count} problem{'s' if count > 1 else ''}:{lines}")


@dataclass(frozen=True)
class Network:
    """A directed acyclic graph of sources, boxes and outputs; checked when built."""

    name: str
    sources: tuple[Source, ...]
    boxes: tuple[Box, ...]
    outputs: tuple[Output, ...]
    capacity: float | None = None
    """Core-seconds per second; None: as many as the runtime has."""
    headroom: float = 0.9

    def __post_init__(self) -> None:
        problems = check(self)
        if problems:
            raise InvalidNetwork(problems, f"the network {self.name!r}")

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        everything: list[Node] = [*self.sources, *self.boxes, *self.outputs]
        return {node.name: node for node in everything}

    @cached_property
    def heads(self) -> tuple[Box | Output, ...]:
        """Everything that an arc enters: the boxes in order, then the outputs."""
        return (*self.order, *self.outputs)

    @cached_property
    def arcs(self) -> tuple[str, ...]:
        """Every arc, in topological order of the boxes and outputs they enter."""
        return tuple(arc(name, node.name) for node in self.heads for name in inputs(node))

    @cached_property
    def order(self) -> tuple[Box, ...]:
        """The boxes, each after all of its inputs."""
        return _topological(self.boxes)[0]

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The place of each box and output in `heads`."""
        return {node.name: index for index, node in enumerate(self.heads)}

    def above(self, name: str) -> tuple[tuple[Source, ...], tuple[Box, ...]]:
        """The sources and the boxes, in order, whose rows can reach a node."""
        seen: set[str] = set()
        stack = [name]
        while stack:
            for above in inputs(self.nodes[stack.pop()]):
                if above not in seen:
                    seen.add(above)
                    stack.append(above)
        nodes = [self.nodes[one] for one in seen]
        sources = sorted((node for node in nodes if isinstance(node, Source)), key=lambda node: node.name)
        boxes = [node for node in nodes if isinstance(node, Box)]
        return tuple(sources), tuple(sorted(boxes, key=lambda box: self.positions[box.name]))

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """For each node, the boxes and outputs that its rows go to."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for node in self.heads:
            for name in inputs(node):
                found[name].append(node.name)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def split_points(self) -> tuple[str, ...]:
        """Boxes whose output goes to several places."""
        return tuple(box.name for box in self.order if len(self.consumers[box.name]) > 1)

    @cached_property
    def schemas(self) -> Mapping[str, Schema]:
        """The columns that leave each node (of an output: that reach it)."""
        return _schemas(self.sources, self.order, self.outputs, [])

    @cached_property
    def times(self) -> Mapping[str, str | None]:
        """For each node, the column by which its rows are windowed: the arrival column of its sources."""
        found: dict[str, str | None] = {source.name: source.arrived for source in self.sources}
        for box in self.order:
            above = found[box.inputs[0]]
            names = {column.name for column in self.schemas[box.name]}
            found[box.name] = (
                "window_end" if isinstance(box, Aggregate) else above if above in names else None
            )
        for output in self.outputs:
            found[output.name] = found[output.input]
        return found

    def arcs_into(self, node: str) -> tuple[str, ...]:
        return self._arcs[0][node]

    def arcs_out_of(self, node: str) -> tuple[str, ...]:
        return self._arcs[1][node]

    @cached_property
    def _arcs(self) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
        into = {name: tuple(arc(above, name) for above in inputs(node)) for name, node in self.nodes.items()}
        out_of = {name: tuple(arc(name, below) for below in self.consumers[name]) for name in self.nodes}
        return into, out_of

    def column(self, node: str, name: str) -> Column:
        """A column of the rows that leave a node."""
        return next(column for column in self.schemas[node] if column.name == name)

    def draw(self, style: str = "text") -> str:
        """The network as text, or with `style="mermaid"` as a Mermaid flowchart."""
        from streamshed.network import draw

        return draw.mermaid(self) if style == "mermaid" else draw.text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.draw())}</pre>"


def arc(tail: str, head: str) -> str:
    """The name of an arc."""
    return f"{tail}->{head}"


def ends(name: str) -> tuple[str, str]:
    """The two nodes that an arc joins.

    >>> ends("vitals->alarm")
    ('vitals', 'alarm')
    """
    tail, _, head = name.partition("->")
    return tail, head


def inputs(node: Node) -> tuple[str, ...]:
    """The names of the nodes whose rows enter this one."""
    if isinstance(node, Box):
        return node.inputs
    return (node.input,) if isinstance(node, Output) else ()


# ── checks ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Draft:
    """A network that need not be right yet."""

    sources: tuple[Source, ...] = ()
    boxes: tuple[Box, ...] = ()
    outputs: tuple[Output, ...] = ()
    capacity: float | None = None
    headroom: float = 0.9
    broken: frozenset[str] = frozenset()
    """Nodes already known to be wrong: of what they would yield, nothing is said."""


def check(network: Network | Draft) -> list[Problem]:
    """Everything that is wrong with a network, each problem with its path in a spec."""
    broken = network.broken if isinstance(network, Draft) else frozenset()
    problems: list[Problem] = []
    groups = (("sources", network.sources), ("boxes", network.boxes), ("outputs", network.outputs))
    seen: dict[str, str] = {}
    for group, nodes in groups:
        if not nodes and group != "boxes":
            problems.append(Problem(group, f"a network needs at least one of its {group}"))
        for node in nodes:
            path = f"{group}.{node.name}"
            if node.name in seen:
                problems.append(
                    Problem(path, "the name is taken", f"also {seen[node.name]}", "one node a name")
                )
            seen.setdefault(node.name, path)
            if not node.name or "->" in node.name or node.name != node.name.strip():
                problems.append(
                    Problem(path, "not a usable name", repr(node.name), 'no "->", no outer spaces')
                )
    _check_numbers(network, problems)
    outputs = {output.name for output in network.outputs}
    usable = sorted(set(seen) - outputs)
    for group, consumers in (("boxes", network.boxes), ("outputs", network.outputs)):
        for node in consumers:
            names = inputs(node)
            for name in names:
                if name not in seen or name in outputs:
                    key = "input" if len(names) == 1 else "inputs"
                    problems.append(
                        Problem(
                            f"{group}.{node.name}.{key}",
                            "no such source or box",
                            repr(name),
                            ", ".join(usable),
                        )
                    )
            if isinstance(node, Box) and node.name not in broken:
                _check_arity(node, problems)
    if any("the name is taken" in problem.problem for problem in problems):
        return problems
    order, stuck = _topological(network.boxes)
    if stuck:
        cycle = _cycle({box.name: box for box in stuck})
        problems.append(
            Problem(f"boxes.{cycle[0]}", "the boxes form a cycle", " -> ".join(cycle), "no cycles")
        )
    known = _schemas(network.sources, order, network.outputs, problems, broken)
    for output in network.outputs:
        value = output.qos.value
        if value is not None and output.name in known:
            _check_numeric(
                f"outputs.{output.name}.qos.value.field", value.field, known[output.name], problems
            )
    return problems


def _check_numbers(network: Network | Draft, problems: list[Problem]) -> None:
    def need(path: str, value: float, low: float, high: float, allowed: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            problems.append(Problem(path, "out of bounds", repr(value), allowed))

    largest = 1e300
    for source in network.sources:
        need(f"sources.{source.name}.rate", source.rate, 0, largest, "rows per second, 0 or more")
        need(f"sources.{source.name}.protected", source.protected, 0, 1, "a share between 0 and 1")
    for box in network.boxes:
        need(f"boxes.{box.name}.cost", box.cost, 0, largest, "seconds per row, 0 or more")
        need(f"boxes.{box.name}.selectivity", box.selectivity, 0, largest, "rows out per row in, 0 or more")
    if network.capacity is not None:
        need("capacity", network.capacity, 1e-300, largest, "core-seconds per second, above 0")
    need("headroom", network.headroom, 1e-300, 1, "above 0, at most 1")


def _check_arity(box: Box, problems: list[Problem]) -> None:
    path = f"boxes.{box.name}"
    count = len(box.inputs)
    if isinstance(box, Union):
        if count < 2:
            problems.append(Problem(f"{path}.inputs", "a union has two inputs or more", count))
    elif isinstance(box, Join):
        if count != 2:
            problems.append(Problem(f"{path}.inputs", "a join has two inputs", count))
    elif count != 1:
        problems.append(Problem(f"{path}.input", f"a {box.op} has one input", count))
    if len(set(box.inputs)) < count:
        problems.append(
            Problem(f"{path}.inputs", "the same input twice", ", ".join(box.inputs), "put a map in between")
        )


def _topological(boxes: tuple[Box, ...]) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Boxes after their inputs, in the order given where there is a choice; and those in or below a cycle."""
    names = {box.name: box for box in boxes}
    waiting = {box.name: sum(name in names for name in set(box.inputs)) for box in boxes}
    below: dict[str, list[str]] = {name: [] for name in names}
    for box in boxes:
        for name in set(box.inputs):
            if name in names:
                below[name].append(box.name)
    ready = [box.name for box in boxes if waiting[box.name] == 0]
    done: list[Box] = []
    for name in ready:
        done.append(names[name])
        for after in below[name]:
            waiting[after] -= 1
            if waiting[after] == 0:
                ready.append(after)
    placed = set(ready)
    return tuple(done), tuple(box for box in boxes if box.name not in placed)


def _cycle(stuck: Mapping[str, Box]) -> list[str]:
    """A cycle among boxes each of which has an input among them."""
    name = next(iter(stuck))
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = next(above for above in stuck[name].inputs if above in stuck)
    cycle = path[path.index(name) :]
    return [cycle[0], *reversed(cycle)]


def _schemas(
    sources: tuple[Source, ...],
    order: tuple[Box, ...],
    outputs: tuple[Output, ...],
    problems: list[Problem],
    broken: frozenset[str] = frozenset(),
) -> dict[str, Schema]:
    """The columns that leave each node whose inputs are known; complaints go to `problems`."""
    known: dict[str, Schema] = {}
    for source in sources:
        if source.name in broken:
            continue
        known[source.name] = source.schema
        names = {column.name for column in source.schema}
        path = f"sources.{source.name}"
        if source.arrived is not None and source.arrived not in names:
            problems.append(
                Problem(f"{path}.arrived", "no such column", repr(source.arrived), ", ".join(sorted(names)))
            )
        if source.protect is not None:
            _check_fields(f"{path}.protect", source.protect, source.schema, problems)
        elif source.protected:
            problems.append(
                Problem(f"{path}.protected", "a share of what?", source.protected, "give `protect` too")
            )
        for name in source.values:
            _check_numeric(f"{path}.values.{name}", name, source.schema, problems)
    for box in order:
        if all(name in known for name in box.inputs) and box.inputs and box.name not in broken:
            made = _schema(box, [known[name] for name in box.inputs], problems)
            if made is not None:
                known[box.name] = made
    for output in outputs:
        if output.input in known:
            known[output.name] = known[output.input]
    return known


def _schema(box: Box, above: list[Schema], problems: list[Problem]) -> Schema | None:
    path = f"boxes.{box.name}"
    first = above[0]
    names = {column.name: column for column in first}
    if isinstance(box, Filter):
        _check_fields(f"{path}.where", box.where, first, problems)
        return first
    if isinstance(box, Map):
        for name, expression in box.select.items():
            _check_fields(f"{path}.select.{name}", expression, first, problems)
        for name, inverse in box.inverse.items():
            if name not in box.select:
                problems.append(
                    Problem(f"{path}.inverse.{name}", "no such column", repr(name), ", ".join(box.select))
                )
            _check_numeric(f"{path}.inverse.{name}.field", inverse.field, first, problems)
        return tuple(Column(name, _type(expression, names)) for name, expression in box.select.items())
    if isinstance(box, Union):
        for name, other in zip(box.inputs[1:], above[1:], strict=False):
            if other != first:
                problems.append(
                    Problem(f"{path}.inputs", f"{name!r} has other columns than {box.inputs[0]!r}",
                            f"{ddl(other)}; {ddl(first)}", "equal columns; a map can make them so")
                )  # fmt: skip
        return first
    if isinstance(box, Join):
        if len(above) != 2:
            return None
        for name in box.on:
            for side, schema in zip(box.inputs, above, strict=True):
                if name not in {column.name for column in schema}:
                    problems.append(
                        Problem(f"{path}.on", f"no column {name!r} in {side!r}", repr(name), ddl(schema))
                    )
        second = tuple(column for column in above[1] if column.name not in box.on)
        for column in second:
            if column.name in names:
                problems.append(
                    Problem(f"{path}.inputs", "both sides have this column", repr(column.name),
                            "equal names only in `on`; rename with a map")
                )  # fmt: skip
        return first + second
    if isinstance(box, Aggregate):
        return _aggregate_schema(box, first, problems)
    if isinstance(box, Udf):
        for name in box.reads:
            if name not in names:
                problems.append(Problem(f"{path}.reads", "no such column", repr(name), ", ".join(names)))
        if box.adds.name in names:
            problems.append(Problem(f"{path}.adds", "the column is there already", repr(box.adds.name)))
        return (*first, box.adds)
    return None


def _aggregate_schema(box: Aggregate, above: Schema, problems: list[Problem]) -> Schema:
    path = f"boxes.{box.name}"
    names = {column.name: column for column in above}
    columns = [Column("window_start", "TIMESTAMP"), Column("window_end", "TIMESTAMP")]
    for name in box.by:
        if name not in names:
            problems.append(Problem(f"{path}.by", "no such column", repr(name), ", ".join(names)))
        else:
            columns.append(names[name])
    for name, expression in box.compute.items():
        if not isinstance(expression, Call) or expression.name not in AGGREGATES:
            problems.append(
                Problem(f"{path}.compute.{name}", "not an aggregate", repr(str(expression)),
                        ", ".join(f"{function}(…)" for function in AGGREGATES))
            )  # fmt: skip
            continue
        for inner in expression.args:
            _check_fields(f"{path}.compute.{name}", inner, above, problems)
        columns.append(Column(name, _type(expression, names)))
    return tuple(columns)


def _check_fields(path: str, expression: Expression, schema: Schema, problems: list[Problem]) -> None:
    known = [column.name for column in schema]
    for name in sorted(expression.fields() - set(known)):
        problems.append(Problem(path, f"unknown field {name!r}", repr(str(expression)), ", ".join(known)))
    if _aggregates(expression):
        problems.append(
            Problem(path, "an aggregate outside an aggregate box", repr(str(expression)), "plain expressions")
        )


def _aggregates(expression: Expression) -> bool:
    if isinstance(expression, Call) and expression.name in AGGREGATES:
        return True
    return any(_aggregates(child) for child in expression.children())


def _check_numeric(path: str, name: str, schema: Schema, problems: list[Problem]) -> None:
    numeric = [column.name for column in schema if column.numeric]
    if name not in numeric:
        problems.append(
            Problem(path, "not a numeric column", repr(name), ", ".join(numeric) or "none has numbers")
        )


def _type(expression: Expression, names: Mapping[str, Column]) -> str:
    """The type of an expression's values."""
    from streamshed.network import expression as e

    if isinstance(expression, e.Field):
        return names[expression.name].type if expression.name in names else "DOUBLE"
    if isinstance(expression, e.Literal):
        return {bool: "BOOLEAN", str: "STRING"}.get(type(expression.value), "DOUBLE")
    if isinstance(expression, e.Binary) and expression.op not in ("+", "-", "*", "/", "%"):
        return "BOOLEAN"
    if isinstance(expression, e.Unary):
        return "BOOLEAN" if expression.op == "NOT" else _type(expression.operand, names)
    if isinstance(expression, Call):
        if expression.name == "count":
            return "LONG"
        if expression.name in ("min", "max", "abs"):
            return _type(expression.args[0], names)
    return "DOUBLE"
