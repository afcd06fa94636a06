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
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streamshed.spark.native import Native
from streamshed.spark.orders.planned_data import java

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


class PlanReader:
    """Reads the counts of batches off their executed plans, with one call into the JVM for each (`PlanRows.java`).

    A call costs up to a millisecond of a busy machine, and a plan has dozens of nodes; batches may be over sooner
    than all of them were asked. Nothing is remembered of a plan: the next one of a query may have another shape,
    since Spark leaves parts out of a batch that have no rows in it, and drops are in it only when needed.
    """

    def __init__(self, spark: SparkSession) -> None:
        native = Native(spark)
        self._rows = native.created(java(__package__, "PlanRows"), [_MARK.pattern])
        # A method of a class that every JVM has calls ours: py4j mixes up classes that are compiled at run time.
        self._caller = native.jvm.java.util.concurrent.atomic.AtomicReference()

    def read(
        self, plan: Any, serials: list[int], rows: int | None = None, *, without_marks: bool = False
    ) -> dict[int, Counts]:
        """Counts by drop. A drop that the optimizer removed had no rows to count.

        `rows`: what the sources gave by Spark's own report.
        `without_marks`: a plan may have no mark of what arrived at the one drop: `rows` did then.
        """
        found, leaves = self._found(plan)
        counted = any(marks_of(each)[ARRIVED] in found for each in serials)
        if without_marks and serials and leaves == 1 and not counted:
            arrived, *others = marks_of(serials[0])
            found[arrived] = max(rows or 0, *(found.get(mark, 0) for mark in others))
        return {serial: _counts(found, *marks_of(serial)) for serial in serials}

    def read_marks(self, plan: Any, wanted: set[int]) -> dict[int, int]:
        """Rows by mark; 0 for one that is not in the plan."""
        found, _ = self._found(plan)
        return {mark: found.get(mark, 0) for mark in wanted}

    def _found(self, plan: Any) -> tuple[dict[int, int], int]:
        """Rows by mark, of the marks that are in a plan, and how many leaves it has."""
        found: dict[int, int] = {}
        leaves = 0
        for word in str(self._caller.accumulateAndGet(plan, self._rows)).split():
            number, _, rows = word.partition("=")
            if rows:
                # A plan that reads the stream twice (a self-join) has the drop twice; count each reading.
                found[int(number)] = found.get(int(number), 0) + int(rows)
            else:
                leaves += 1
        return found, leaves


def _counts(found: dict[int, int], arrived: int, timely: int, chosen: int, kept: int) -> Counts:
    came = found.get(arrived, 0)
    fresh = found.get(timely, came)
    planned = found.get(chosen, fresh)
    passed = found.get(kept, planned)
    return Counts(came, passed, planned - passed, came - fresh)


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _mark_in(text: str) -> int:
    match = _MARK.search(text)
    return int(match[1]) if match else 0
