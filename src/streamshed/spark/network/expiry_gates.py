"""Where rows leave a network's query that are too old for it: older than the bound when their batch began.

Each source has one such gate, in front of everything else where the arrival column is there before the parse and
nothing is protected that only the parsed row tells; behind the parse where not. A row without an arrival time
passes, and so does a protected one. The row's arrival is held against the batch's own time, so a batch that runs
again drops the same rows. A gate stands between two marks: what it took is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.network.graph import Network, Source
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.slots import quoted, sql
from streamshed.spark.network.sql import Parser
from streamshed.spark.orders.batch_clock import BatchClock
from streamshed.spark.watch.plan_counts import ARRIVED, TIMELY, mark, marks_of


@dataclass(frozen=True, slots=True)
class Expired:
    """Rows that were too old, by source."""

    raw: Mapping[str, int] = field(default_factory=dict)
    """In front of everything else."""
    parsed: Mapping[str, int] = field(default_factory=dict)
    """Behind the parse."""

    def of(self, source: str) -> int:
        return self.raw.get(source, 0) + self.parsed.get(source, 0)

    @property
    def total(self) -> int:
        return sum(self.raw.values()) + sum(self.parsed.values())

    def __bool__(self) -> bool:
        return self.total > 0


NONE_EXPIRED = Expired()


def tells_age(network: Network, source: Source) -> bool:
    """Whether the rows of a source say when they arrived."""
    return source.arrived is not None and network.column(source.name, source.arrived).type == "TIMESTAMP"


@dataclass(frozen=True)
class ExpiryGate:
    """The gate of one source."""

    clock: BatchClock
    serial: int
    arrived: str
    protect: str | None
    """SQL that is true for rows which pass at any age."""
    raw: bool
    """Whether it can stand in front of the parse."""

    @property
    def marks(self) -> set[int]:
        return {self.came, self.passed}

    @property
    def came(self) -> int:
        return marks_of(self.serial)[ARRIVED]

    @property
    def passed(self) -> int:
        return marks_of(self.serial)[TIMELY]

    @cached_property
    def _passes(self) -> Column:
        fresh = self.clock.is_fresh(F.col(quoted(self.arrived)))
        if self.protect is not None:
            fresh = fresh | F.coalesce(F.expr(self.protect), F.lit(False))
        return ~self.clock.expires | (fresh & mark(self.serial, TIMELY))

    @cached_property
    def _comes(self) -> Column:
        return ~self.clock.expires | mark(self.serial, ARRIVED)

    def before(self, rows: DataFrame) -> DataFrame:
        """Rows behind the gate, which is left out of the plan while no row can be too old."""
        return rows.where(self._comes).where(self._passes)


class ExpiryGates:
    """The gates of one query; sources whose rows do not say when they arrived have none."""

    def __init__(
        self, layout: QueryLayout, clock: BatchClock, first_serial: int, parsers: Mapping[str, Parser]
    ) -> None:
        """`first_serial`: their marks have numbers from there on."""
        self.clock = clock
        self.first_serial = first_serial
        self.at: dict[str, ExpiryGate] = {}
        for source in layout.network.sources:
            if source.name not in layout.sources or not tells_age(layout.network, source):
                continue
            arrived = str(source.arrived)
            protect = None if source.protect is None else sql(source.protect)
            parser = parsers.get(source.name)
            raw = parser is None or (arrived in parser.raw[1:] and protect is None)
            self.at[source.name] = ExpiryGate(clock, first_serial + len(self.at), arrived, protect, raw)

    @property
    def marks(self) -> set[int]:
        return set().union(*(gate.marks for gate in self.at.values()))

    def taken(self, counts: Mapping[str, Mapping[int, int]], *, all_behind: bool = False) -> Expired:
        """What was too old, from the rows by mark of each stage; `all_behind`: no gate stood before a parse."""
        raw: dict[str, int] = {}
        parsed: dict[str, int] = {}
        for by_mark in counts.values():
            for name, gate in self.at.items():
                if gate.came in by_mark:
                    lost = raw if gate.raw and not all_behind else parsed
                    rows = by_mark[gate.came] - by_mark.get(gate.passed, 0)
                    lost[name] = lost.get(name, 0) + rows
        return Expired(raw, parsed)
