"""The nodes of a query network: sources, boxes and outputs, with their columns.

Everything here is frozen and does nothing when built. An arc is named `from->to`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from streamshed.errors import InvalidArgument
from streamshed.network.analysis import Inverse
from streamshed.network.expression import Expression
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
    parse: Mapping[str, Any] | None = field(default=None, hash=False)
    """How raw rows become the columns of the schema: `format`, `column`, `options`, `cost` (seconds per row)."""
    watermark: float | None = None
    """Seconds by which rows may come late to joins and windows."""
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
class LoadAware:
    """How a udf box sheds by itself, by what its rows cost (LAS): only on Spark."""

    latency: str
    """Target for the queuing latency, such as "avg 2 seconds over 1000 rows"."""
    key: tuple[str, ...]
    """Columns on which a row's cost depends."""
    on_error: str = "fail"
    """What to do with a row on which the function raises: fail, or skip and count it."""


@dataclass(frozen=True, kw_only=True)
class Udf(Box):
    """A Python function of some columns, whose cost may depend on them; it adds one column."""

    op: ClassVar[str] = "udf"
    function: str
    """`package.module:name`."""
    reads: tuple[str, ...]
    adds: Column
    load_aware: LoadAware | None = None


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
