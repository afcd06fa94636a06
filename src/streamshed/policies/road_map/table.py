"""The road map as a table: rows in which more and more is shed, and the cursor that moves over it."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from typing import overload as overloaded

import numpy as np
import numpy.typing as npt

from streamshed.network.catalog import Catalog
from streamshed.network.qos import LossGraph
from streamshed.network.value_flow.certainty import certainties
from streamshed.policies.contract import SLACK, Decision, Row, overload, with_rates
from streamshed.records import Drop

T = TypeVar("T")


@dataclass
class _Column(Generic[T]):
    """The values of one column of the table, stored only where they change."""

    initial: T
    rows: list[int] = field(default_factory=list)
    values: list[T] = field(default_factory=list)

    def __getitem__(self, row: int) -> T:
        found = bisect.bisect_right(self.rows, row)
        return self.values[found - 1] if found else self.initial

    def append(self, row: int, value: T) -> None:
        self.rows.append(row)
        self.values.append(value)

    @property
    def last(self) -> T:
        return self.values[-1] if self.values else self.initial


class RoadMap(Sequence[Row]):
    """The table. A row is put together when it is looked at."""

    def __init__(self, catalog: Catalog, graphs: Mapping[str, LossGraph]) -> None:
        self.graphs = graphs
        self._sources = {name: index for index, name in enumerate(catalog.rates)}
        self._drops: dict[str, _Column[Drop | None]] = {}
        self._delivery = {name: _Column(100.0) for name in graphs}
        self._utility: dict[str, _Column[float]] = {}
        self._savings = {name: _Column(0.0) for name in catalog.rates}
        self._changes: tuple[list[int], list[int], list[float]] = ([], [], [])  # row, source, gain in savings
        self._rates = catalog.rates
        self._pending: tuple[Mapping[str, Any], ...] | None = None
        self._length = 0
        self._totals: tuple[Mapping[str, float], npt.NDArray[np.float64]] = ({}, np.zeros(0))
        self._packed: tuple[Any, Any, Any] | None = None

    def append(
        self,
        drops: Mapping[str, Drop | None],
        delivery: Mapping[str, float],
        savings: Mapping[str, float],
        utility: Mapping[str, float] | None = None,
    ) -> None:
        """A row, as what changed: drops by place (None: there no longer), percentages, savings coefficients.

        utility: of the outputs, where it is not what their loss graphs make of the percentages

        Changes that save nothing wait for the next that do: each row sheds more than the one before.
        """
        utility = utility or {}
        if self._pending is not None:
            now = (drops, delivery, savings, utility)
            drops, delivery, savings, utility = (
                {**waiting, **new} for waiting, new in zip(self._pending, now, strict=True)
            )
        more = sum((now - self._savings[name].last) * self._rates[name] for name, now in savings.items())
        if more <= 0:
            self._pending = (drops, delivery, savings, utility)
            return
        self._pending = None
        row = self._length
        self._length += 1
        for at, change in drops.items():
            self._drops.setdefault(at, _Column[Drop | None](None)).append(row, change)
        for output, percent in delivery.items():
            self._delivery[output].append(row, percent)
        for output, worth in utility.items():
            self._utility.setdefault(output, _Column(1.0)).append(row, worth)
        rows, sources, gains = self._changes
        for source, coefficient in savings.items():
            column = self._savings[source]
            rows.append(row)
            sources.append(self._sources[source])
            gains.append(coefficient - column.last)
            column.append(row, coefficient)

    def __len__(self) -> int:
        return self._length

    @overloaded
    def __getitem__(self, row: int) -> Row: ...
    @overloaded
    def __getitem__(self, row: slice) -> Sequence[Row]: ...
    def __getitem__(self, row: int | slice) -> Row | Sequence[Row]:
        if isinstance(row, slice):
            return [self[index] for index in range(*row.indices(self._length))]
        if not -self._length <= row < self._length:
            raise IndexError(row)
        row %= self._length
        delivery = {name: column[row] for name, column in self._delivery.items()}
        return Row(
            savings={name: saved for name, column in self._savings.items() if (saved := column[row])},
            drops=tuple(found for at in sorted(self._drops) if (found := self._drops[at][row]) is not None),
            delivery=delivery,
            utility={
                name: self._utility[name][row] if name in self._utility else self.graphs[name](percent)
                for name, percent in delivery.items()
            },
        )

    def __iter__(self) -> Iterator[Row]:
        return (self[row] for row in range(self._length))

    def totals(self, rates: Mapping[str, float]) -> npt.NDArray[np.float64]:
        """The most that the rows up to each one save at these rates; kept for the same rates object."""
        if self._totals[0] is not rates or len(self._totals[1]) != self._length:
            rows, sources, gains = self._arrays()
            weights = gains * np.array([rates[name] for name in self._sources])[sources]
            gained = np.bincount(rows, weights, minlength=self._length)
            best: npt.NDArray[np.float64] = np.maximum.accumulate(np.cumsum(gained, dtype=np.float64))
            self._totals = (rates, best)
        return self._totals[1]

    def _arrays(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.float64]]:
        if self._packed is None or len(self._packed[0]) != len(self._changes[0]):
            rows, sources, gains = self._changes
            self._packed = (np.array(rows, np.intp), np.array(sources, np.intp), np.array(gains, np.float64))
        return self._packed

    def look_up(self, excess: float, rates: Mapping[str, float]) -> int:
        """The first row that saves at least this much; `len(self)` if none does."""
        return int(self.totals(rates).searchsorted(excess))


class TablePlanner:
    """Run-time use of a road map: a cursor that moves both ways as load comes and goes, by look-up."""

    def __init__(self, policy: str, catalog: Catalog, table: RoadMap) -> None:
        self.policy = policy
        self.catalog = catalog
        self.table = table
        self.cursor: int | None = None
        """The row in force; None when nothing is shed."""
        self._certainty = certainties(catalog)

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        catalog = with_rates(self.catalog, rates)
        excess = overload(catalog)
        remaining = 0.0
        if not excess or not len(self.table):
            self.cursor, remaining = None, excess
        else:
            row = self.table.look_up(excess - SLACK * catalog.limit, catalog.rates)
            if row == len(self.table):
                row -= 1
                remaining = excess - self.table[row].saved(catalog.rates)
            self.cursor = row
        return Decision(
            self.policy,
            catalog.load,
            catalog.limit,
            self.table,
            self.cursor,
            remaining,
            certainty=self._certainty,
        )
