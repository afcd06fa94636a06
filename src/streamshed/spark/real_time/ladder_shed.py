"""`shed(…, trigger="real-time")`: the drop for long-running tasks, by the age of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from streamshed.errors import InvalidArgument
from streamshed.records import Mode
from streamshed.spark.arguments import (
    check_arrival,
    check_expression,
    check_floor,
    check_hashable,
    check_protect,
)
from streamshed.spark.native import Native
from streamshed.spark.real_time.age_ladder import OTHERS, AgeLadder
from streamshed.spark.real_time.executor_control import ExecutorControl
from streamshed.spark.real_time.ladder_books import LadderBooks
from streamshed.spark.real_time.ladder_rule import FALLS, MOST_CLASSES, VERDICT, judged, rule_of, table_of
from streamshed.spark.real_time.ladder_shedder import LadderShedder
from streamshed.spark.real_time.learned_costs import cost_digest
from streamshed.spark.real_time.refusals import check_operators, check_real_time
from streamshed.spark.watch.plan_counts import ARRIVED, KEPT, mark, next_serial
from streamshed.spark.watch.session_monitor import SessionMonitor

Classes = Mapping[str, "str | tuple[str, float]"]
"""Conditions by class, from the best to the least; with a share, so much of the class passes at any age."""
_KAFKA_TIME = "timestamp"
_VALUE_HINT = '"amount / 1000" puts rows of a small amount on low rungs'
_COST_HINT = '"length(text) / 500" has long texts go first'


def ladder_shed(
    events: DataFrame,
    bound: float,
    row_hash: Column,
    *,
    arrived: str | None,
    protect: str | Column | None,
    floor: float,
    mode: Mode,
    classes: Classes | None,
    value: str | Column | None,
    cost: str | Column | None,
    cost_key: str | Sequence[str] | None,
    name: str | None,
) -> DataFrame:
    """Drop rows by their age; see `shed`."""
    spark = events.sparkSession
    check_real_time(spark.version)
    check_operators(events)
    arrival = check_arrival(events, _arrival_name(events, arrived))
    protected = check_protect(events, protect)
    conditions, shares = _classes(events, classes)
    worth = _number(events, value, "value", "a number between 0 and 1", _VALUE_HINT)
    dear = _number(
        events, cost, "cost", "a number: 1 for a usual row, 2 for one that is twice as dear", _COST_HINT
    )
    digest = _digest(events, cost, cost_key)
    ladder = AgeLadder(bound, (*conditions, OTHERS), shares, floor)
    control = ExecutorControl(spark, table_of(ladder, Mode.OFF))
    serial = next_serial()
    label = name or f"shed-{serial}"
    books = LadderBooks(spark, len(ladder.classes))
    shedder = LadderShedder(serial, label, name is not None, control, books, spark, ladder, mode)
    number = F.lit(len(conditions))
    for place, condition in reversed(list(enumerate(conditions.values()))):
        number = F.when(condition, F.lit(place)).otherwise(number)
    rule = rule_of(spark, control, books, learns=digest is not None)
    counts = partial(mark, serial, native=Native(spark))
    incoming = events.where(counts(ARRIVED))
    verdicts = judged(incoming, rule, arrival, row_hash, number, worth, protected, dear, digest)
    kept = verdicts.where(F.col(VERDICT) != F.lit(FALLS)).where(counts(KEPT)).drop(VERDICT)
    SessionMonitor.of(spark).add(shedder)
    return kept


def _arrival_name(events: DataFrame, arrived: str | None) -> str:
    if arrived is not None:
        return arrived
    if dict(events.dtypes).get(_KAFKA_TIME) == "timestamp":
        return _KAFKA_TIME
    raise InvalidArgument(
        "real-time mode sheds by the age of rows, and needs to know when each arrived",
        got="no arrived=, and no column timestamp as Kafka has it",
        hint='give arrived="…", the name of a timestamp column',
    )


def _classes(events: DataFrame, classes: Classes | None) -> tuple[dict[str, Column], dict[str, float]]:
    """The condition of each class, and what is guaranteed to it."""
    conditions: dict[str, Column] = {}
    shares: dict[str, float] = {}
    if classes is not None and not 0 < len(classes) < MOST_CLASSES:
        raise InvalidArgument(
            f"classes must be between one and {MOST_CLASSES - 1}",
            got=f"{len(classes)}",
            hint="leave classes out, or use value for fine differences",
        )
    for label, text in (classes or {}).items():
        if label == OTHERS:
            raise InvalidArgument(
                f"the class {OTHERS!r} is there already: rows of no other class",
                got=f"classes={{{label!r}: …}}",
                hint="choose another name",
            )
        condition, share = text if isinstance(text, tuple) else (text, 0.0)
        checked = check_protect(events, condition, f"class {label!r}")
        assert checked is not None
        conditions[label] = checked
        shares[label] = check_floor(share, f"the share of class {label!r}")
    return conditions, shares


def _digest(events: DataFrame, cost: str | Column | None, cost_key: str | Sequence[str] | None) -> Column | None:
    """Of the cost key, if costs are to be learned."""
    if cost_key is None:
        return None
    if cost is not None:
        raise InvalidArgument(
            "what rows cost is either given or learned",
            got=f"cost={cost!r} and cost_key={cost_key!r}",
            hint="leave out cost to have it learned, or cost_key if you know it",
        )
    return cost_digest(check_hashable(events, cost_key, "cost_key"))


def _number(events: DataFrame, given: object, what: str, must_be: str, hint: str) -> Column | None:
    if given is None:
        return None
    if not isinstance(given, str | Column):
        python = "; real-time mode calls no Python functions, and ss.load_aware in micro-batches does"
        raise InvalidArgument(
            f"{what} must be an expression{python if callable(given) else ''}", got=repr(given), hint=hint
        )
    expression, kind = check_expression(events, given, what, "an expression")
    if not isinstance(kind, NumericType):
        raise InvalidArgument(
            f"{what} must be {must_be}", got=f"{given!r}, which is {kind.simpleString()}", hint=hint
        )
    check_operators(events.select(expression))
    return expression
