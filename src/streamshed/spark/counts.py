"""Exact row counts for free: the SQL metrics of a finished micro-batch's own physical plan.

Each drop stands between two filters that are always true, recognisable by a number of their own.
They depend on the partition, which makes them non-deterministic for the optimizer: it moves nothing
past them, so the rows that left the first are what arrived and the rows that left the second are what
was kept, and no later work is pulled in front of the drop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

_BASE = 1_000_000_000
_MARK = re.compile(r"SPARK_PARTITION_ID\(\) >= -(1\d{9})", re.IGNORECASE)


def arrived_mark(serial: int) -> Column:
    """Always true; its filter counts what reached drop number `serial`."""
    return F.spark_partition_id() >= F.lit(-(_BASE + 2 * serial))


def kept_mark(serial: int) -> Column:
    """Always true; its filter counts what passed drop number `serial`."""
    return F.spark_partition_id() >= F.lit(-(_BASE + 2 * serial + 1))


def serials_in(plan: str) -> list[int]:
    """Numbers of the drops in a printed plan, in the order of the plan."""
    numbers = [(int(mark) - _BASE) // 2 for mark in _MARK.findall(plan)]
    return list(dict.fromkeys(numbers))


@dataclass(frozen=True, slots=True)
class Counts:
    arrived: int = 0
    kept: int = 0


class PlanReader:
    """Reads the counts of a query's batches; remembers where in the plan it found the marks.

    A call into the JVM costs some 50 µs and a plan has dozens of nodes, but the plans of one query
    have the same shape in nearly every batch.
    """

    def __init__(self) -> None:
        self._paths: dict[int, tuple[int, ...]] = {}

    def read(self, plan: Any, serials: list[int]) -> dict[int, Counts]:
        """Counts by drop. A drop that the optimizer removed had no rows to count."""
        wanted = {_BASE + 2 * serial + side for serial in serials for side in (0, 1)}
        found = self._along_known_paths(plan, wanted)
        if len(found) < len(wanted):
            self._paths.clear()
            found = {}
            self._search(plan, (), wanted, found)
        return {s: Counts(found.get(_BASE + 2 * s, 0), found.get(_BASE + 2 * s + 1, 0)) for s in serials}

    def _along_known_paths(self, plan: Any, wanted: set[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for mark, path in self._paths.items():
            node = plan
            for step in path:
                children = _children(node)
                if step >= len(children):
                    return {}
                node = children[step]
            if _mark_of(node) != mark or mark not in wanted:
                return {}
            found[mark] = _rows(node)
        return found

    def _search(self, node: Any, path: tuple[int, ...], wanted: set[int], found: dict[int, int]) -> None:
        mark = _mark_of(node)
        if mark in wanted:
            # A plan that reads the stream twice (a self-join) has the drop twice; count each reading.
            found[mark] = found.get(mark, 0) + _rows(node)
            self._paths[mark] = path
        for index, child in enumerate(_children(node)):
            self._search(child, (*path, index), wanted, found)


def _children(node: Any) -> list[Any]:
    name = node.nodeName()
    if name == "AdaptiveSparkPlan":
        return [node.executedPlan()]
    if name.endswith("QueryStage"):
        return [node.plan()]
    children = node.children()
    return [children.apply(i) for i in range(children.size())]


def _mark_of(node: Any) -> int | None:
    if node.nodeName() != "Filter":
        return None
    match = _MARK.search(node.condition().toString())
    return int(match[1]) if match else None


def _rows(node: Any) -> int:
    metric = node.metrics().get("numOutputRows")
    return int(metric.get().value()) if metric.isDefined() else 0
