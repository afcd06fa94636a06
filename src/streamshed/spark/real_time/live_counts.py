"""Row counts of a batch that is still running, from what its tasks tell with their heartbeats.

Spark adds up the metrics of running tasks for its user interface, every `spark.executor.heartbeatInterval` (10 s
unless set). The filters that mark what arrived and what was kept (`plan_counts`) are among them.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

from streamshed.spark.watch.plan_counts import ARRIVED, KEPT, Counts, marks_of

_MARK = re.compile(r"SPARK_PARTITION_ID\(\).* >= -(1\d{9})", re.IGNORECASE)


def live_counts(spark: SparkSession, plan: Any, serial: int) -> Counts | None:
    """What arrived at a drop and what passed it so far, in the running batch with this physical plan."""
    marks = marks_of(serial)
    arrived, kept = marks[ARRIVED], marks[KEPT]
    metrics = _metrics(plan, {arrived, kept})
    if arrived not in metrics:
        return None
    store: Any = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for number in range(executions.size() - 1, max(-1, executions.size() - 10), -1):
        values = store.executionMetrics(executions.apply(number).executionId())
        told = values.get(metrics[arrived])
        if told.isDefined():
            passed = values.get(metrics[kept]) if kept in metrics else told
            return Counts(_number(told.get()), _number(passed.get()) if passed.isDefined() else 0)
    return None


def _number(text: str) -> int:
    return int(re.sub(r"\D", "", str(text).splitlines()[0]) or 0)


def _metrics(plan: Any, marks: set[int]) -> dict[int, int]:
    """Ids of the counters behind some marks."""
    found: dict[int, int] = {}
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "Filter":
            match = _MARK.search(node.condition().toString())
            if match is not None and int(match[1]) in marks:
                found[int(match[1])] = int(node.metrics().apply("numOutputRows").id())
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return found
