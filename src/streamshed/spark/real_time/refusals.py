"""What real-time mode refuses, told before a query starts, in words.

Spark has a list of operators and sinks that it allows in this mode, and says so when the first batch is planned.
"""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from streamshed.errors import EnvironmentProblem, InvalidArgument

OLDEST_SPARK = (4, 1)
"""The first with a real-time trigger in Python."""
OLDEST_WITH_WINDOWS = (4, 3)
"""The first that aggregates in this mode."""
# Nodes of a logical plan that end in an operator which is not on Spark's list, and what they do.
_REFUSED = {
    "DeduplicateWithinWatermark": "drops duplicates within a watermark",
    "ArrowEvalPython": "calls a Python function",
    "BatchEvalPython": "calls a Python function",
    "MapInArrow": "calls a Python function",
    "MapInPandas": "calls a Python function",
    "PythonMapInArrow": "calls a Python function",
    "FlatMapGroupsInPandas": "calls a Python function",
    "FlatMapGroupsInPandasWithState": "calls a Python function",
    "TransformWithStateInPySpark": "calls a Python function",
    "GlobalLimit": "limits the rows",
    "Sort": "sorts",
}


def check_real_time(version: str, *, windows: bool = False) -> None:
    """Refuse a Spark that has no real-time mode, or none with windows."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    oldest = OLDEST_WITH_WINDOWS if windows else OLDEST_SPARK
    if numbers is None or (int(numbers[1]), int(numbers[2])) < oldest:
        raise EnvironmentProblem(
            "this Spark has no windows in real-time mode" if windows else "this Spark has no real-time mode",
            got=f"Spark {version}",
            hint=f'use Spark {oldest[0]}.{oldest[1]} or newer, or leave trigger="real-time" out and shed by '
            "micro-batches",
        )


def check_operators(frame: DataFrame) -> None:
    """Refuse a stream with an operator in it that real-time mode does not run; it is named."""
    jvm: Any = frame.sparkSession._jvm
    what = refused_in(jvm, frame._jdf.queryExecution().analyzed())
    if what is not None:
        raise InvalidArgument(
            f"real-time mode does not run this stream: a step of it {what[1]}",
            got=f"{what[0]} in the plan",
            hint='leave that step out, or use micro-batches (without trigger="real-time"), which run everything',
        )


def refused_in(jvm: Any, plan: Any) -> tuple[str, str] | None:
    """The first node of a logical plan that real-time mode refuses, and what it does."""
    python = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    waiting: list[Any] = [plan]
    while waiting:
        node = waiting.pop()
        name = str(node.nodeName())
        if name in _REFUSED:
            return name, _REFUSED[name]
        children = node.children()
        below = [children.apply(i) for i in range(children.size())]
        if name == "Join" and all(child.isStreaming() for child in below):
            return name, "joins two streams"
        if name == "Union" and _same_source(below):
            return name, "unites a stream with itself"
        expressions = node.expressions()
        if any(expressions.apply(i).containsPattern(python) for i in range(expressions.size())):
            return name, "calls a Python function"
        waiting += below
    return None


def _same_source(plans: list[Any]) -> bool:
    """Whether two of these plans read the same stream."""
    seen: list[str] = []
    for plan in plans:
        leaves = plan.collectLeaves()
        seen += {_read_by(leaves.apply(i)) for i in range(leaves.size())}
    return len(seen) > len(set(seen))


def _read_by(leaf: Any) -> str:
    """What a plan reads, in words that two readings of the same stream have in common."""
    # Columns are numbered anew where a stream is read twice.
    text = re.sub(r"#\d+", "", str(leaf.toString()))
    try:
        # Newer sources call themselves "kafka" and no more.
        return f"{text} {leaf.table().hashCode()}"
    except Py4JError:
        return text
