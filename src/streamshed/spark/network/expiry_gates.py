"""Where rows leave a network's query that are too old for it: older than the bound when their batch began.

Each source has one such gate, in front of everything else where the arrival column is there before the parse and
nothing is protected that only the parsed row tells; behind the parse where not. A row without an arrival time
passes, and so does a protected one. The row's arrival is held against the batch's own time, so a batch that runs
again drops the same rows. A gate stands between two marks: what it took is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamshed.network.graph import Network, Source
from streamshed.spark.network.counted_gate import CountedGate
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.slots import quoted, sql
from streamshed.spark.network.sql import Parser
from streamshed.spark.orders.batch_clock import BatchClock
from streamshed.spark.watch.plan_counts import TIMELY


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
class ExpiryGate(CountedGate):
    """The gate of one source."""

    tells: ClassVar[int] = TIMELY
    arrived: str
    """The column that says when a row arrived."""
    raw: bool
    """Whether it can stand in front of the parse."""

    @property
    def asks(self) -> Column:
        return self.clock.expires

    def lets_pass(self) -> Column:
        return self.clock.is_fresh(F.col(quoted(self.arrived)))


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
            self.at[source.name] = ExpiryGate(clock, first_serial + len(self.at), protect, arrived, raw)

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
