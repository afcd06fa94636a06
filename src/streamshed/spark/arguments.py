"""What a user gives to `shed` and its relatives, checked at the call: the problem, what was got, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, TimestampNTZType, TimestampType

from streamshed.errors import InvalidArgument
from streamshed.records import Mode


def check_stream(events: object, caller: str = "shed") -> None:
    if type(events).__module__.startswith("pyspark.sql.connect"):
        raise InvalidArgument(
            "Spark Connect is not supported: row counts come from the plans of a session in this process",
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
    try:
        if not isinstance(column, str):
            raise TypeError
        selected = events.select(column)
        if len(selected.columns) != 1:
            raise TypeError
    except (AnalysisException, TypeError):
        raise InvalidArgument(
            f"{what} names a column that the stream does not have",
            got=repr(column),
            hint=f"it has: {', '.join(events.columns)}",
        ) from None
    return F.col(column)


def check_arrival(events: DataFrame, arrived: str) -> None:
    column = check_column(events, arrived, "arrived")
    kind = events.select(column).schema[0].dataType
    if not isinstance(kind, (TimestampType, TimestampNTZType)):
        raise InvalidArgument(
            "the arrival column must be a timestamp",
            got=f"{arrived!r} is {kind.simpleString()}",
            hint=f"convert it before, for example with to_timestamp({arrived})",
        )


def check_keys(events: DataFrame, key: str | Sequence[str] | None) -> list[Column]:
    if key is None:
        hashable = [f.name for f in events.schema if "map<" not in f.dataType.simpleString()]
        return [F.col(f"`{column}`") for column in hashable]
    names = [key] if isinstance(key, str) else list(key)
    if not names:
        raise InvalidArgument(
            "key must name at least one column", got="an empty list", hint="leave key out instead"
        )
    return [check_column(events, column, "key") for column in names]


def check_protect(events: DataFrame, protect: str | Column | None) -> Column | None:
    if protect is None:
        return None
    try:
        condition = F.expr(protect) if isinstance(protect, str) else protect
        kind = events.select(condition).schema[0].dataType
    except (ParseException, AnalysisException) as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidArgument(
            f"protect is not a condition on this stream: {first}",
            got=repr(protect),
            hint=f"write SQL over its columns: {', '.join(events.columns)}",
        ) from None
    if not isinstance(kind, BooleanType):
        raise InvalidArgument(
            "protect must be true or false for a row",
            got=f"{protect!r}, which is {kind.simpleString()}",
            hint="write a condition such as \"priority = 'high'\"",
        )
    return condition


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
