"""Exact row counts for free: the SQL metrics of a finished micro-batch's own physical plan.

Each drop stands between two filters that are always true, recognisable by a number of their own.
They depend on the partition, which makes them non-deterministic for the optimizer: it moves nothing
past them, so the rows that left the first are what arrived and the rows that left the second are what
was kept, and no later work is pulled in front of the drop.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.sql import Column
from pyspark.sql import functions as F

_BASE = 1_000_000_000
_MARK = re.compile(r"SPARK_PARTITION_ID\(\).* >= -(1\d{9})", re.IGNORECASE)


_serials = itertools.count(1)


def next_serial() -> int:
    """A number for a drop that no other drop of this process has."""
    return next(_serials)


def marks_of(serial: int) -> tuple[int, int]:
    """The numbers of a serial's two marks: arrived and kept."""
    return _BASE + 2 * serial, _BASE + 2 * serial + 1


def arrived_mark(serial: int, zero: Column | None = None) -> Column:
    """Always true; its filter counts what reached drop number `serial`. `zero` is asked for along with it."""
    partition = F.spark_partition_id() if zero is None else F.spark_partition_id() + zero
    return partition >= F.lit(-(_BASE + 2 * serial))


def kept_mark(serial: int) -> Column:
    """Always true; its filter counts what passed drop number `serial`."""
    return F.spark_partition_id() >= F.lit(-(_BASE + 2 * serial + 1))


def serials_in(plan: Any) -> list[int]:
    """Numbers of the drops in a logical plan, in the order of the plan.

    Node by node: a plan that is printed whole may be cut (`spark.sql.maxPlanStringLength`).
    """
    return list(drops_in(plan))


def drops_in(plan: Any) -> dict[int, Any]:
    """The drops in a logical plan, each with the part of the plan below it."""
    found: dict[int, Any] = {}
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        children = node.children()
        if node.nodeName() == "Filter":
            mark = _mark_in(node.condition().toString())
            if mark:
                # From the top, the mark of what was kept comes first; what arrived is below the other.
                found[(mark - _BASE) // 2] = node
        waiting += [children.apply(i) for i in reversed(range(children.size()))]
    return found


@dataclass(frozen=True, slots=True)
class Counts:
    arrived: int = 0
    kept: int = 0


Step: TypeAlias = "int | str"
"""A child by its number, or by the name of the method that gives it (adaptive plans)."""
Way: TypeAlias = "tuple[Step, ...]"
"""From the top of a plan to one of its nodes."""


class PlanReader:
    """Reads the counts of a query's batches off their executed plans, with few calls into the JVM.

    A call costs up to a millisecond of a busy machine, and a plan has dozens of nodes; but the plans of one query
    have the same shape in nearly every batch, so the ways to the marks are remembered once what arrived at every
    drop was found. That such a mark was missing is never remembered: Spark leaves parts out of a batch that have
    no rows in it.
    """

    def __init__(self) -> None:
        self._ways: dict[int, list[Way]] = {}

    def read(self, plan: Any, serials: list[int], rows: int | None = None) -> dict[int, Counts]:
        """Counts by drop. A drop that the optimizer removed had no rows to count.

        `rows`: what the sources gave by Spark's own report, which what is read here must not contradict.
        """
        wanted = {_BASE + 2 * serial + side for serial in serials for side in (0, 1)}
        counts = _by_serial(self._read(plan, wanted), serials)
        arrived = sum(each.arrived for each in counts.values())
        if (rows and not arrived) or any(each.kept > each.arrived for each in counts.values()):
            counts = _by_serial(self._search_all(plan, wanted), serials)
        return counts

    def read_marks(self, plan: Any, wanted: set[int]) -> dict[int, int]:
        """Rows by mark; 0 for one that is not in the plan."""
        return dict.fromkeys(wanted, 0) | self._read(plan, wanted)

    def _read(self, plan: Any, wanted: set[int]) -> dict[int, int]:
        """Rows by mark, of the marks that are in the plan."""
        found = self._along_known_ways(plan, wanted)
        return self._search_all(plan, wanted) if found is None else found

    def _search_all(self, plan: Any, wanted: set[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        ways: dict[int, list[Way]] = {mark: [] for mark in wanted}
        _search(plan, (), ways, found)
        if all(ways[mark] for mark in wanted if not _tells_kept(mark) or mark - 1 not in wanted):
            self._ways = ways
        return found

    def _along_known_ways(self, plan: Any, wanted: set[int]) -> dict[int, int] | None:
        if self._ways.keys() != wanted:
            return None
        nodes: dict[Way, Any] = {(): plan}
        found: dict[int, int] = {}
        try:
            for mark, ways in self._ways.items():
                for way in ways:
                    node = _walk(nodes, way)
                    if _mark_in(node.condition().toString()) != mark:
                        return None
                    found[mark] = found.get(mark, 0) + _rows(node)
        except Py4JError:
            return None  # another shape of plan: no such child, or not a filter
        return found


def _tells_kept(mark: int) -> bool:
    return bool(mark % 2)


def _by_serial(found: dict[int, int], serials: list[int]) -> dict[int, Counts]:
    """Counts by drop. While nothing is shed, what was kept has no mark of its own."""
    marks = {serial: marks_of(serial) for serial in serials}
    return {
        serial: Counts(found.get(arrived, 0), found.get(kept, found.get(arrived, 0)))
        for serial, (arrived, kept) in marks.items()
    }


def _search(node: Any, way: Way, ways: dict[int, list[Way]], found: dict[int, int]) -> None:
    name = node.nodeName()
    mark = _mark_in(node.condition().toString()) if name == "Filter" else 0
    if mark in ways:
        # A plan that reads the stream twice (a self-join) has the drop twice; count each reading.
        found[mark] = found.get(mark, 0) + _rows(node)
        ways[mark].append(way)
    steps: list[Step] = ["executedPlan"] if name == "AdaptiveSparkPlan" else []
    if name.endswith("QueryStage"):
        steps = ["plan"]
    for step in steps or range(node.children().size()):
        _search(_step(node, step), (*way, step), ways, found)


def _walk(nodes: dict[Way, Any], way: Way) -> Any:
    """The node at the end of a way, by the longest part of it that was walked before."""
    if way not in nodes:
        nodes[way] = _step(_walk(nodes, way[:-1]), way[-1])
    return nodes[way]


def _step(node: Any, step: Step) -> Any:
    return getattr(node, step)() if isinstance(step, str) else node.children().apply(step)


def _mark_in(text: str) -> int:
    match = _MARK.search(text)
    return int(match[1]) if match else 0


def _rows(node: Any) -> int:
    return int(node.longMetric("numOutputRows").value())
