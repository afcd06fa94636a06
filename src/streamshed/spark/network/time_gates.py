"""Where the rows of a network's query meet the clock of their batch.

Rows go through a gate where a query reads them: each source before its rows are parsed, or behind the parse if
some of them are protected, which only the parsed row tells; and what is kept for several readers, for each of
them. All gates of a query have the same deadline. A gate stands between two marks: what it cut is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import Column

from streamshed.network.graph import Source, ends
from streamshed.policies.contract import protection
from streamshed.spark.network.counted_gate import CountedGate
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.slots import sql
from streamshed.spark.orders.batch_clock import BatchClock
from streamshed.spark.watch.plan_counts import KEPT


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows that came too late."""

    raw: Mapping[str, int] = field(default_factory=dict)
    """Of each source, in front of its parse."""
    arcs: Mapping[str, int] = field(default_factory=dict)
    """On each arc, behind it."""

    def __bool__(self) -> bool:
        return any(self.raw.values()) or any(self.arcs.values())


NOTHING_CUT = Cut()


@dataclass(frozen=True)
class TimeGate(CountedGate):
    """The gate at one place."""

    tells: ClassVar[int] = KEPT

    @property
    def asks(self) -> Column:
        return self.clock.limited

    def lets_pass(self) -> Column:
        return self.clock.in_time()


class TimeGates:
    """The gates of one query."""

    def __init__(self, layout: QueryLayout, clock: BatchClock, first_serial: int) -> None:
        """`first_serial`: their marks have numbers from there on."""
        self.layout = layout
        self.clock = clock
        self.first_serial = first_serial
        told = {ends(on)[0]: condition for on, condition in protection(layout.network).items()}
        places = [name for name in dict.fromkeys((*layout.sources, *layout.shared)) if name in told]
        self.at: Mapping[str, TimeGate] = {
            name: TimeGate(clock, first_serial + index, None if condition is None else sql(condition))
            for index, (name, condition) in enumerate((name, told[name]) for name in places)
        }
        """By source, and by node with several readers. Where protected rows cannot be told, there is none."""
        self.at_input: Mapping[str, TimeGate] = {
            name: TimeGate(clock, first_serial + len(places) + index, None)
            for index, name in enumerate(layout.sources)
            if name in self.at and self.at[name].protect is None
        }
        """By source, in front of its parse."""
        self.next_serial = first_serial + len(self.at) + len(self.at_input)

    def cut(self, counts: Mapping[str, Mapping[int, int]]) -> Cut:
        """What was cut, from the rows by mark of each stage."""
        raw: dict[str, int] = {}
        arcs: dict[str, int] = {}
        for stage, by_mark in counts.items():
            for place, rows in _lost(self.at_input, by_mark).items():
                raw[place] = raw.get(place, 0) + rows
            for place, rows in _lost(self.at, by_mark).items():
                for on, share in split(rows, self.arcs(place, stage)).items():
                    arcs[on] = arcs.get(on, 0) + share
        return Cut(raw, arcs)

    def arcs(self, place: str, stage: str) -> list[str]:
        """The arcs out of a place that the rows of a stage come along."""
        return [on for on in self.arcs_above(stage) if ends(on)[0] == place]

    def arcs_above(self, stage: str) -> Iterable[str]:
        """The arcs whose rows are worked on for a stage, and for no other."""
        network = self.layout.network
        for on in network.arcs_into(stage):
            yield on
            tail = ends(on)[0]
            if tail not in self.layout.shared and not isinstance(network.nodes[tail], Source):
                yield from self.arcs_above(tail)


def _lost(gates: Mapping[str, TimeGate], counts: Mapping[int, int]) -> dict[str, int]:
    return {
        name: counts.get(gate.came, 0) - counts.get(gate.passed, 0)
        for name, gate in gates.items()
        if gate.came in counts
    }


def split(rows: int, arcs: list[str]) -> dict[str, int]:
    """Rows that were cut together, by arc; several readers in one plan share them evenly.

    >>> split(5, ["s->a", "s->b"])
    {'s->a': 3, 's->b': 2}
    """
    return {on: (rows + len(arcs) - 1 - index) // len(arcs) for index, on in enumerate(arcs)}
