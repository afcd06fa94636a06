"""What a user gives to `shed` and its relatives, checked at the call: the problem, what was got, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NumericType, StructType, TimestampNTZType, TimestampType

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.records import Mode
from streamshed.spark.columns import hashable, quoted


def check_stream(events: object, caller: str = "shed") -> None:
    if type(events).__module__.startswith("pyspark.sql.connect"):
        raise InvalidArgument(
            f"{caller}() needs a session in this process; over Spark Connect there is shed(), with a time budget",
            got=type(events).__module__,
            hint="use a classic session (without .remote(…))",
        )
    if not isinstance(events, DataFrame):
        raise InvalidArgument(
            f"{caller}() takes a streaming DataFrame",
            got=type(events).__name__,
            hint="give it spark.readStream…load()",
        )
    if not events.isStreaming:
        raise InvalidArgument(
            f"{caller}() takes a streaming DataFrame, and this one is a batch",
            got=f"a batch DataFrame with columns {', '.join(events.columns)}",
            hint="read it with spark.readStream instead of spark.read",
        )


def check_column(events: DataFrame, column: object, what: str) -> Column:
    """A column of the stream, or a field inside one; never one of Spark's functions of that name."""
    path = _path_to(events.schema, column) if isinstance(column, str) else None
    if path is None:
        raise InvalidArgument(
            f"{what} names a column that the stream does not have",
            got=repr(column),
            hint=f"it has: {', '.join(events.columns)}",
        )
    return F.col(".".join(map(quoted, path)))


def _path_to(schema: StructType, name: str) -> list[str] | None:
    """The names that lead to a column: one, or several for a field of a struct. A whole name goes first."""
    names = {field.name: field for field in schema}
    # As Spark does by default, take case for a matter of taste unless two names differ by it only.
    folded = [each for each in names if each.lower() == name.strip("`").lower()]
    if name.strip("`") in names:
        return [name.strip("`")]
    if len(folded) == 1:
        return folded
    head, dot, rest = name.partition(".")
    while dot:
        inner = names[head].dataType if head in names else None
        below = _path_to(inner, rest) if isinstance(inner, StructType) else None
        if below is not None:
            return [head, *below]
        part, dot, rest = rest.partition(".")
        head = f"{head}.{part}"
    return None


def check_arrival(events: DataFrame, arrived: str) -> Column:
    column = check_column(events, arrived, "arrived")
    kind = events.select(column).schema[0].dataType
    if not isinstance(kind, (TimestampType, TimestampNTZType)):
        raise InvalidArgument(
            "the arrival column must be a timestamp",
            got=f"{arrived!r} is {kind.simpleString()}",
            hint=f"convert it before, for example with to_timestamp({arrived})",
        )
    return column


def check_keys(events: DataFrame, key: str | Sequence[str], what: str = "key") -> list[Column]:
    if not isinstance(key, (str, Sequence)):
        raise InvalidArgument(f"{what} must name a column, or several", got=repr(key), hint=f'{what}="user_id"')
    names = [key] if isinstance(key, str) else list(key)
    if not names:
        raise InvalidArgument(
            f"{what} must name at least one column", got="an empty list", hint=f"leave {what} out instead"
        )
    return [check_column(events, column, what) for column in names]


def check_hashable(events: DataFrame, key: str | Sequence[str], what: str = "key") -> list[Column]:
    """Keys that Spark SQL can hash."""
    keys = check_keys(events, key, what)
    for field in events.select(*keys).schema:
        kind = field.dataType.simpleString()
        if not hashable(kind):
            raise InvalidArgument(
                "a key must be of a type that Spark can hash",
                got=f"{field.name} is {kind}",
                hint="use a field of it, or several columns",
            )
    return keys


def check_protect(events: DataFrame, protect: str | Column | None, what: str = "protect") -> Column | None:
    if protect is None:
        return None
    condition, kind = check_expression(events, protect, what, "a condition")
    if not isinstance(kind, BooleanType):
        raise InvalidArgument(
            f"{what} must be true or false for a row",
            got=f"{protect!r}, which is {kind.simpleString()}",
            hint="write a condition such as \"priority = 'high'\"",
        )
    return condition


def check_cost(events: DataFrame, cost: str | Column | None) -> Column | None:
    if cost is None:
        return None
    expression, kind = check_expression(events, cost, "cost", "an expression")
    if not isinstance(kind, NumericType):
        raise InvalidArgument(
            "cost must be a number of seconds", got=f"{cost!r}, which is {kind.simpleString()}", hint='"0.002 * n"'
        )
    return expression


def check_expression(events: DataFrame, given: str | Column, what: str, kind: str) -> tuple[Column, DataType]:
    """An expression on a stream, with its type."""
    try:
        expression = F.expr(given) if isinstance(given, str) else given
        return expression, events.select(expression).schema[0].dataType
    except (ParseException, AnalysisException) as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidArgument(
            f"{what} is not {kind} on this stream: {first}",
            got=repr(given),
            hint=f"write SQL over its columns: {', '.join(events.columns)}",
        ) from None


def check_mode(mode: str | Mode) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        raise InvalidArgument(
            "there is no such mode", got=repr(mode), hint='choose "enforce", "dry-run" or "off"'
        ) from None


def check_floor(share: float, what: str = "floor") -> float:
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0.0 <= share <= 1.0:
        raise InvalidArgument(
            f"{what} must be a share between 0 and 1", got=repr(share), hint="0.05 is 5 % of the rows"
        )
    return float(share)


def check_rotate(rotate: str | float | timedelta | None) -> float | None:
    if rotate is None:
        return None
    period = seconds(rotate, "rotate")
    if period < 0.001:
        raise InvalidArgument(
            "rotate is shorter than the clock can tell",
            got=repr(rotate),
            hint='give at least "1 ms"',
        )
    return period


def check_schema(schema: str | StructType) -> StructType:
    if isinstance(schema, StructType) and len(schema):
        return schema
    try:
        parsed = StructType.fromDDL(schema) if isinstance(schema, str) else None
    except (ParseException, AnalysisException):
        parsed = None
    if not isinstance(parsed, StructType) or len(parsed) == 0:
        raise InvalidArgument(
            "schema must name the columns that the function returns, with their types",
            got=repr(schema),
            hint='write it like "mention STRING, score DOUBLE"',
        )
    return parsed


def check_choice(what: str, got: str, choices: tuple[str, ...]) -> None:
    if got not in choices:
        raise InvalidArgument(f"there is no such {what}", got=repr(got), hint=f"choose from: {', '.join(choices)}")


def check_max_shed(share: float | None) -> float:
    return 1.0 if share is None else check_floor(share, "max_shed")


def check_budget(budget: bool | str | float | timedelta, bound: float) -> float | None:
    """Seconds that a batch may have at most: 0 for no budget at all, None for what the controller finds right."""
    if isinstance(budget, bool):
        return None if budget else 0.0
    allowed = seconds(budget, "budget")
    if allowed > bound:
        raise InvalidArgument(
            "the budget of a batch is longer than the bound that it is there for",
            got=f"budget {allowed:g} s, latency {bound:g} s",
            hint="a row waits for one batch and then for its own: about half of the bound; or leave budget out",
        )
    return allowed


def check_expired(expired: str, has_arrival: bool) -> None:
    check_choice("way with rows that are too late already (expired)", expired, ("keep", "drop"))
    if expired == "drop" and not has_arrival:
        raise InvalidArgument(
            "how old rows are is told by their arrival column, and none is named",
            got='expired="drop" without arrived',
            hint='give arrived="…" as well',
        )
