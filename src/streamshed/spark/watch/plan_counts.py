"""Exact row counts for free: the SQL metrics of a finished micro-batch's own physical plan.

Each drop stands between filters that are always true, recognisable by a number of their own. They depend on the
partition, which makes them non-deterministic for the optimizer: it moves nothing past them, so the rows that left
the first are what arrived and the rows that left the last are what was kept, and no later work is pulled in front
of the drop. In between, where rows may be dropped for several reasons, one tells what each of them left:

    arrived ─► timely (not too old) ─► chosen (by the plan) ─► kept (in time)

One that is not in the plan had nothing to take: what left it is what came to it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamshed.spark.native import Native

_BASE = 1_000_000_000
_MARK = re.compile(r"SPARK_PARTITION_ID\(\).* >= [^\d-]*-(1\d{9})", re.IGNORECASE)


_serials = itertools.count(1)


def next_serial() -> int:
    """A number for a drop that no other drop of this process has."""
    return next(_serials)


ARRIVED, TIMELY, CHOSEN, KEPT = range(4)
"""What a mark tells of."""


def marks_of(serial: int) -> tuple[int, ...]:
    """The numbers of a serial's marks."""
    return tuple(range(_BASE + 4 * serial, _BASE + 4 * serial + 4))


def mark(serial: int, tells: int, native: Native | None = None) -> Column:
    """Always true; its filter counts what is left at drop number `serial`.

    With `native` its number is an object and no part of the generated code: that is then the same for every shed
    stream of a job, and what the JVM has compiled for one is there for the next, after a restart too.
    """
    number = -marks_of(serial)[tells]
    if native is None:
        return F.spark_partition_id() >= F.lit(number)
    return F.spark_partition_id() >= native.invoke(native.literal(number, "java.lang.Integer"), "intValue", "int")


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
        if node.nodeName() == "Filter":
            number = _mark_in(node.condition().toString())
            if number:
                # From the top, the mark of what was kept comes first; what arrived is below the others.
                found[(number - _BASE) // 4] = node
        waiting += reversed(_each(node.children()))
    return found


# What may follow a drop without a filter of it, or of Spark's own making, getting to the source.
_FILTERS_NOTHING = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "EventTimeWatermark",
        "Project",
        "SubqueryAlias",
    }
)


def is_filtered_later(plan: Any) -> bool:
    """Whether a filter from behind the one drop of a logical plan may get to the source if nothing holds it up."""
    while plan.nodeName() in _FILTERS_NOTHING:
        plan = plan.children().apply(0)
    return not (plan.nodeName() == "Filter" and _mark_in(plan.condition().toString()))


_CONTROL_LEAVES = frozenset({"LocalRelation", "OneRowRelation"})


def sources_in(plan: Any) -> int:
    """How many times a logical plan reads something; the row that drops read their orders from is not counted."""
    return sum(leaf.nodeName() not in _CONTROL_LEAVES for leaf in _each(plan.collectLeaves()))


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows at a drop: arrived = expired + shed by plan + cut + kept."""

    arrived: int = 0
    kept: int = 0
    cut: int = 0
    """That came when their batch's time was used up."""
    expired: int = 0
    """That were too old when it began."""

    @property
    def lost(self) -> int:
        """Rows that no plan chose."""
        return self.cut + self.expired


Way: TypeAlias = "tuple[int | str, ...]"
"""From the top of a plan to one of its nodes: by Spark's own number of a node, or by the name of the method that
gives what is hidden behind one (adaptive plans)."""


class PlanReader:
    """Reads the counts of a query's batches off their executed plans, with few calls into the JVM.

    A call costs up to a millisecond of a busy machine, and a plan has dozens of nodes; but the plans of one query
    have the same shape in nearly every batch, so the ways to the marks are remembered once what arrived at every
    drop was found. That such a mark was missing is never remembered: Spark leaves parts out of a batch that have
    no rows in it.
    """

    def __init__(self) -> None:
        self._ways: dict[int, list[Way]] = {}
        self._source: tuple[Way, int, str] | None = None
        self._beside: dict[int, list[Way]] = {}

    def read(
        self, plan: Any, serials: list[int], rows: int | None = None, *, without_marks: bool = False
    ) -> dict[int, Counts]:
        """Counts by drop. A drop that the optimizer removed had no rows to count.

        `rows`: what the sources gave by Spark's own report, which what is read here must not contradict.
        `without_marks`: a plan may have no mark of what arrived at the one drop: `rows` did then.
        """
        wanted = {mark for serial in serials for mark in marks_of(serial)}
        if without_marks and serials:
            found = self._beside_the_source(plan, wanted)
            if found is not None:
                arrived = max(rows or 0, *found.values(), 0)
                return _by_serial({marks_of(serials[0])[ARRIVED]: arrived, **found}, serials)
        counts = _by_serial(self._read(plan, wanted), serials)
        if (rows and not any(each.arrived for each in counts.values())) or not all(
            map(_possible, counts.values())
        ):
            counts = _by_serial(self._search_all(plan, wanted), serials)
        return counts

    def _beside_the_source(self, plan: Any, wanted: set[int]) -> dict[int, int] | None:
        """Rows by mark in a plan that has none for what arrived; None if it has one, or several sources."""
        if self._is_only_source(plan):
            found = self._along(self._beside, plan)
            if found is not None:
                return found
        if self._along_known_ways(plan, wanted) is not None:
            return None
        return self._find_source(plan, wanted)

    def _is_only_source(self, plan: Any) -> bool:
        """Whether the plan ends in its source where one without that mark did: drops have more nodes."""
        if self._source is None:
            return False
        above, number, name = self._source
        top = _walk(plan, above)
        node = None if top is None else top.p(number)
        return node is not None and node.nodeName() == name and top.p(number + 1) is None

    def _find_source(self, plan: Any, wanted: set[int]) -> dict[int, int] | None:
        """Look for the source of a plan in which nothing counts what arrived, and for what else is counted."""
        leaves: list[tuple[Way, int, Any]] = []
        found: dict[int, int] = {}
        ways: dict[int, list[Way]] = {mark: [] for mark in wanted}
        _search(plan, (), ways, found, leaves)
        if any(tells(mark) == ARRIVED for mark in found) or len(leaves) != 1:
            return None
        above, number, leaf = leaves[0]
        self._source = (above, number, leaf.nodeName())
        self._beside = {mark: ways[mark] for mark in found}
        return found

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
        if all(ways[mark] for mark in wanted if mark - tells(mark) not in wanted - {mark}):
            self._ways = ways
        return found

    def _along_known_ways(self, plan: Any, wanted: set[int]) -> dict[int, int] | None:
        return self._along(self._ways, plan) if self._ways.keys() == wanted else None

    def _along(self, known: dict[int, list[Way]], plan: Any) -> dict[int, int] | None:
        """Rows by mark at the ends of these ways; None if something else is there."""
        found: dict[int, int] = {}
        try:
            for mark, ways in known.items():
                for way in ways:
                    node = _walk(plan, way)
                    if node is None or _mark_in(node.condition().toString()) != mark:
                        return None
                    found[mark] = found.get(mark, 0) + _rows(node)
        except Py4JError:
            return None  # another shape of plan: what is there is not a filter
        return found


def tells(mark: int) -> int:
    """What a mark tells of: ARRIVED to KEPT."""
    return (mark - _BASE) % 4


def _possible(counts: Counts) -> bool:
    return min(counts.kept, counts.cut, counts.expired) >= 0 and counts.arrived >= counts.kept + counts.lost


def _by_serial(found: dict[int, int], serials: list[int]) -> dict[int, Counts]:
    """Counts by drop. Where nothing can be dropped, there is no mark."""
    return {serial: _counts(found, *marks_of(serial)) for serial in serials}


def _counts(found: dict[int, int], arrived: int, timely: int, chosen: int, kept: int) -> Counts:
    came = found.get(arrived, 0)
    fresh = found.get(timely, came)
    planned = found.get(chosen, fresh)
    passed = found.get(kept, planned)
    return Counts(came, passed, planned - passed, came - fresh)


def _search(
    top: Any,
    way: Way,
    ways: dict[int, list[Way]],
    found: dict[int, int],
    leaves: list[tuple[Way, int, Any]] | None = None,
) -> None:
    """Put the ways to the marks into `ways`, their rows into `found`, and what has nothing below into `leaves`."""
    number = 0
    waiting = [top]
    while waiting:
        node = waiting.pop()
        name = node.nodeName()
        mark = _mark_in(node.condition().toString()) if name == "Filter" else 0
        if mark in ways:
            # A plan that reads the stream twice (a self-join) has the drop twice; count each reading.
            found[mark] = found.get(mark, 0) + _rows(node)
            ways[mark].append((*way, number))
        children = _each(node.children())
        if name == "AdaptiveSparkPlan" or name.endswith("QueryStage"):
            hidden = "executedPlan" if name == "AdaptiveSparkPlan" else "plan"
            _search(getattr(node, hidden)(), (*way, number, hidden), ways, found, leaves)
        elif leaves is not None and not children:
            leaves.append((way, number, node))
        number += 1 + sum(_size(each) for each in _each(node.innerChildren()))
        waiting += reversed(children)


def _size(plan: Any) -> int:
    """How many numbers Spark gives to the nodes of a plan inside a plan."""
    return 1 + sum(_size(each) for each in _each(plan.innerChildren()) + _each(plan.children()))


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _walk(node: Any, way: Way) -> Any:
    """The node at the end of a way; None if there is none."""
    for step in way:
        if node is not None:
            node = getattr(node, step)() if isinstance(step, str) else node.p(step)
    return node


def _mark_in(text: str) -> int:
    match = _MARK.search(text)
    return int(match[1]) if match else 0


def _rows(node: Any) -> int:
    return int(node.longMetric("numOutputRows").value())
