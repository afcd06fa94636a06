"""Windows of rows on Spark, which has only windows of time: a state for each group, with the rows that wait.

Within a batch rows come in the order of their arrival column. A group's rows that do not fill a window wait in
Spark's state, with the query's checkpoint, and so survive a restart. The rows that enter and leave are Spark's;
only what happens inside a window is Python.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streamshed.network.expressions.expression import Call, Expression
from streamshed.network.graph import CountWindow, Network
from streamshed.spark.network.slots import quoted
from streamshed.spark.network.sql import SIC, STANDS_FOR, spark_type

_ALL = "_streamshed_all"
"""The group of a window without `by`."""
_STATE = "waiting BINARY"


@dataclass(frozen=True)
class _Window:
    """What Spark calls for each group with new rows."""

    rows: int
    by: tuple[str, ...]
    compute: tuple[tuple[str, Expression, str], ...]
    """Column, expression, type."""
    time: str
    columns: tuple[str, ...]
    weighing: bool = False

    def __call__(self, key: Any, batches: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        new = pd.concat(list(batches))[list(self.columns)].sort_values(self.time, kind="stable")
        waiting = pickle.loads(state.get[0]) if state.exists else None
        rows = new if waiting is None else pd.concat([waiting, new])
        full = len(rows) // self.rows
        state.update((pickle.dumps(rows.iloc[full * self.rows :]),))
        if full:
            yield pd.DataFrame([self._result(rows.iloc[n * self.rows : (n + 1) * self.rows]) for n in range(full)])

    def _result(self, rows: pd.DataFrame) -> dict[str, Any]:
        found: dict[str, Any] = {"window_start": rows[self.time].iloc[0], "window_end": rows[self.time].iloc[-1]}
        found |= {name: rows[name].iloc[0] for name in self.by}
        columns = {name: rows[name].to_numpy() for name in self.columns}
        for name, expression, kind in self.compute:
            assert isinstance(expression, Call)
            values = pd.Series(np.broadcast_to(expression.args[0].evaluate(columns), len(rows))).dropna()
            found[name] = _reduced(expression.name, values, kind)
        if self.weighing:
            found[SIC] = len(rows) / float(rows[STANDS_FOR].sum())
        return found


def _reduced(function: str, values: pd.Series, kind: str) -> Any:
    """As SQL has it: nulls are left out, and of nothing only a count is known."""
    if function == "count":
        return len(values)
    if function == "count_distinct":
        return int(values.nunique())
    if not len(values):
        return None
    found = getattr(values, {"avg": "mean"}.get(function, function))()
    return float(found) if kind == "DOUBLE" else found


def windows(network: Network, box: CountWindow, rows: DataFrame, *, weighing: bool = False) -> DataFrame:
    """The rows that leave a count window, from those that enter it; with their SIC if `weighing`."""
    time = str(network.times[box.inputs[0]])
    columns = tuple(column.name for column in network.schemas[box.inputs[0]])
    columns += (STANDS_FOR,) if weighing else ()
    types = {column.name: column for column in network.schemas[box.name]}
    window = _Window(
        box.rows,
        box.by,
        tuple((name, expression, types[name].type) for name, expression in box.compute.items()),
        time,
        columns,
        weighing,
    )
    ddl = ", ".join(f"{quoted(column.name)} {spark_type(column)}" for column in network.schemas[box.name])
    ddl += f", {SIC} DOUBLE" if weighing else ""
    kept = rows.select(*map(quoted, columns), F.lit(0).alias(_ALL))
    grouped = kept.groupBy(*([*map(quoted, box.by)] or [_ALL]))
    return grouped.applyInPandasWithState(window, ddl, _STATE, "append", GroupStateTimeout.NoTimeout)
