"""The road map on the age ladder: LSRM's cursor as a function of a row's own age.

    row i of the road map saves the share sᵢ of the load            s₁ < s₂ < … < s_N ≤ 1
    it is in force from the age        aᵢ = low + (high − low)·sᵢ²     low = B/4, high = 0.95·B (`age_ladder`)
    cursor of a row of age a           the largest i with aᵢ ≤ a; 0, and no drop, below a₁

At an age, the drops on all arcs are those of one row of the road map. More is shed of older rows, as much more
as on a ladder of random rungs: at the age where that drops the share s of the rows, this drops what saves the
share s of the work, at the least loss of utility (LSRM 4.3).

A row of a source has one hash for all arcs. Its *share* is 1 at the source, and is multiplied on every arc by
what the drop there keeps of its like; it passes while its hash is below its share. The shares are those of
independent drops. But since the flow along an arc only falls from one row of the road map to the next, a row
that is dropped at one age is dropped at all higher ones: drops further down that are reduced when one above them
begins (LSRM 4.3.3) do not let rows come back. Below a union that holds for the flow and not for each row: when
more is dropped of one stream above it, a drop below it is reduced for all.

[1] N. Tatbul et al.: Load Shedding in a Data Stream Manager. VLDB 2003, 4.3.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamshed.network.catalog import Catalog
from streamshed.policies.contract import Row
from streamshed.records import Drop
from streamshed.spark.real_time.age_ladder import HIGHEST, LOWEST, Ladder

MOST_RUNGS = 256
"""Of longer road maps, so many rows are taken, as even as can be in what they save."""


@dataclass(frozen=True)
class RoadMapLadder(Ladder):
    """The rungs that a road map makes.

    >>> rows = [Row({"s": 0.5}, (Drop("s->f", 0.5),), {}, {}), Row({"s": 1.0}, (Drop("s->f", 0.0),), {}, {})]
    >>> ladder = RoadMapLadder(bound=0.2, rows=tuple(rows), saved=(0.5, 1.0))
    >>> [round(limit, 3) for limit in ladder.limits()]
    [0.085, 0.19]
    >>> [ladder.cursor(age) for age in (0.05, 0.1, 0.2)], ladder.drops(0.1)[0].keep
    ([0, 1, 2], 0.5)
    """

    bound: float
    """Seconds."""
    rows: tuple[Row, ...] = field(repr=False)
    saved: tuple[float, ...] = field(repr=False)
    """Share of the load that each row saves."""
    floor: float = 0.0
    """Share of the rows that passes at any age."""
    classes: tuple[str, ...] = ("rows",)

    @staticmethod
    def of(table: Sequence[Row], catalog: Catalog, bound: float, floor: float = 0.0) -> RoadMapLadder:
        """The rungs of a road map, at the proportions of the catalog's rates."""
        load = catalog.load
        saved = [row.saved(catalog.rates) / load if load > 0 else 0.0 for row in table]
        chosen: list[int] = []
        step = (saved[-1] if saved else 0.0) / MOST_RUNGS
        for number, share in enumerate(saved):
            is_last = number == len(saved) - 1
            if is_last or len(table) <= MOST_RUNGS or share >= (len(chosen) + 1) * step:
                chosen.append(number)
        return RoadMapLadder(
            bound,
            tuple(table[number] for number in chosen),
            tuple(min(1.0, max(saved[: number + 1])) for number in chosen),
            floor,
        )

    def limits(self) -> list[float]:
        """Seconds from which on each row of the map is in force."""
        return [self.bound * (LOWEST + (HIGHEST - LOWEST) * share**2) for share in self.saved]

    def share(self, number: int) -> float:
        """What passes at any age."""
        return self.floor

    def cursor(self, age: float) -> int:
        """The number of the row of the map that is in force for rows of an age, from 1; 0: none."""
        return bisect.bisect_right(self.limits(), age)

    def drops(self, age: float) -> tuple[Drop, ...]:
        """What is dropped of rows of an age."""
        cursor = self.cursor(age)
        return self.rows[cursor - 1].drops if cursor else ()

    def by_arc(self, cursor: int) -> Mapping[str, tuple[Drop, ...]]:
        """The drops of one row of the map, by arc."""
        found: dict[str, tuple[Drop, ...]] = {}
        for drop in self.rows[cursor - 1].drops if cursor else ():
            found[drop.at] = (*found.get(drop.at, ()), drop)
        return found

    def changed(self, bound: float, floor: float) -> RoadMapLadder:
        """The same for another bound."""
        return replace(self, bound=bound, floor=floor)
