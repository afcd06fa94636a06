"""What tells one row of a stream from another, read from as few columns as possible.

A drop at random must take the same rows when a batch runs again, so it goes by a hash of something that stays with
the row. A hash of all columns always does, but it has all of them read: from a columnar file of a hundred columns
that is ten times the work of a job that needs one. Where the source itself numbers its rows, that number is
enough.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.spark.columns import hashable, quoted

# What may stand between the source and the drop: one row in, at most the same row out.
_ROW_BY_ROW = frozenset({"Project", "Filter", "SubqueryAlias", "EventTimeWatermark", "View"})
_KAFKA = {"topic": "string", "partition": "int", "offset": "bigint"}
_FILE = "_metadata"  # Spark's hidden column of file sources; only Parquet numbers its rows there
_PLACE_IN_FILE = frozenset({"file_name", "row_index"})


def row_place(events: DataFrame) -> list[Column]:
    """A row's place in its source, where that costs no reading: in a Parquet file, or in Kafka's log."""
    plan: Any = events._jdf.queryExecution().analyzed()
    source = _only_source(plan)
    if source is None:
        return []
    types = {field.name: field.dataType.simpleString() for field in events.schema}
    if "kafka" in source.toString().lower() and _KAFKA.items() <= types.items():
        return [F.col(name) for name in _KAFKA]
    hidden = plan.metadataOutput()
    for column in (hidden.apply(i) for i in range(hidden.size())):
        if column.name() == _FILE and set(column.dataType().fieldNames()) >= _PLACE_IN_FILE:
            return [F.col(f"{_FILE}.{name}") for name in sorted(_PLACE_IN_FILE)]
    return []


def counted_at_source(events: DataFrame) -> bool:
    """Whether Spark's count of the source tells how many rows come here: each row of it does, and no other."""
    plan: Any = events._jdf.queryExecution().analyzed()
    return _only_source(plan, _ROW_BY_ROW - {"Filter"}) is not None


def in_file(place: list[Column]) -> bool:
    """Whether a row's place is in the hidden column of files (`unasked_place`)."""
    return _FILE in str(place)


def all_columns(events: DataFrame) -> list[Column]:
    """Every column that Spark can hash."""
    names = [field.name for field in events.schema if hashable(field.dataType.simpleString())]
    return [F.col(quoted(name)) for name in names]


def _only_source(plan: Any, between: frozenset[str] = _ROW_BY_ROW) -> Any:
    """The one source below a plan, if nothing else than these is between them."""
    while plan.children().size() == 1 and plan.nodeName() in between:
        plan = plan.children().apply(0)
    return plan if plan.children().size() == 0 else None
