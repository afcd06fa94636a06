"""The nodes of a query network: sources, boxes and outputs, with their columns.

Everything here is frozen and does nothing when built. An arc is named `from->to`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from streamshed.errors import InvalidArgument
from streamshed.network.expressions.analysis import Inverse
from streamshed.network.expressions.expression import Expression
from streamshed.network.qos import Histogram, QoS
from streamshed.records import LAS_DELTA, LAS_EPSILON, LAS_TOLERANCE, LAS_WINDOW

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
    key: tuple[str, ...] = ()
    """Columns of a key, all rows of which are dropped or none: so joins lose the share and not its square."""
    values: Mapping[str, Histogram] = field(default_factory=dict, hash=False)
    """How the values of a field are spread, where known."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A step of processing. A row from any input costs `cost` seconds and yields `selectivity` rows."""

    op: ClassVar[str] = "box"
    makes_rows: ClassVar[bool] = False
    """Whether it makes new rows of those it remembers, and so cannot hand on a row as it came."""
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
    makes_rows: ClassVar[bool] = True
    on: tuple[str, ...]
    within: float


@dataclass(frozen=True, kw_only=True)
class Aggregate(Box):
    """One row for each window of event time and value of `by`: `compute` names its columns.

    Its columns are `window_start`, `window_end`, those of `by`, then those computed.
    """

    op: ClassVar[str] = "aggregate"
    makes_rows: ClassVar[bool] = True
    window: float
    slide: float | None = None
    """Seconds between the starts of windows; None for tumbling ones."""
    by: tuple[str, ...] = ()
    compute: Mapping[str, Expression] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class CountWindow(Box):
    """One row for every `rows` rows of a value of `by`, in the order in which they come.

    Its columns are those of an aggregate; `window_start` and `window_end` are the times of the first and the last
    row. Rows of a window that is not full are kept until it is.
    """

    op: ClassVar[str] = "count_window"
    makes_rows: ClassVar[bool] = True
    rows: int
    by: tuple[str, ...] = ()
    compute: Mapping[str, Expression] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class TopK(Box):
    """The `k` rows with the largest `field` of each window of event time and value of `by`.

    Its columns are `window_start`, `window_end`, then the others of its input.
    """

    op: ClassVar[str] = "top_k"
    makes_rows: ClassVar[bool] = True
    k: int
    field: str
    window: float
    by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LoadAware:
    """How a udf box sheds by itself, by what its rows cost (LAS)."""

    latency: str
    """Target for the queuing latency, such as "avg 2 seconds over 1000 rows"."""
    key: tuple[str, ...]
    """Columns on which a row's cost depends."""
    on_error: str = "fail"
    """What to do with a row on which the function raises: fail, or skip and count it. Only on Spark."""
    window: int = LAS_WINDOW
    """N: so many rows are looked at before costs are found stable."""
    tolerance: float = LAS_TOLERANCE
    """μ: the change of the cells' means below which they are."""
    epsilon: float = LAS_EPSILON
    """ε: the sketches have ⌈e/ε⌉ columns, and estimates count 1 + ε times."""
    delta: float = LAS_DELTA
    """δ: the sketches have ⌈log₂ 1/δ⌉ rows."""
    floor: float = 0.0
    """Share of the rows that is let in whatever the target says."""


@dataclass(frozen=True, kw_only=True)
class Udf(Box):
    """A Python function of some columns, whose cost may depend on them; it adds one column."""

    op: ClassVar[str] = "udf"
    function: str
    """`package.module:name`."""
    reads: tuple[str, ...]
    adds: Column
    load_aware: LoadAware | None = None


WINDOWS = (Aggregate, CountWindow, TopK)
"""Boxes whose results are as many whatever went into them."""

BOXES: dict[str, type[Box]] = {
    box.op: box for box in (Filter, Map, Union, Join, Aggregate, CountWindow, TopK, Udf)
}


@dataclass(frozen=True, kw_only=True)
class Output:
    name: str
    input: str
    qos: QoS = field(default_factory=QoS)
    write: Mapping[str, Any] | None = field(default=None, hash=False)
    """Spark sink: format and options."""
    weight: float = 1.0
    """How much it counts to `fair`: one of weight 2 keeps twice the share of its information."""
    minimum_sic: float = 0.0
    """Share of its information that `fair` gives it before others get more."""
    sic: str | None = None
    """On Spark, a column to add to its rows: the share of what should have gone into each that did."""


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
        return visible(f"{self.path}: {self.problem}{got}{allowed}")


def visible(text: str) -> str:
    """Text in which what a terminal would obey is shown, not sent.

    >>> print(visible("a" + chr(27) + "[31mred"))
    a\\x1b[31mred
    """
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )


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
