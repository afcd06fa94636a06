"""Policies for networks whose rows are parsed late: what is dropped before the parse, and what behind it.

A policy plans for the network in which the parse is a box (`network.parse_step`): there the arc in front of it is
one more place for drops at random, and its work is work like any other. Its answer is said in the network's own
arcs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TypeVar, overload

from streamshed.network.catalog import Catalog
from streamshed.network.parse_step import lowered, with_parse_boxes
from streamshed.policies.contract import Decision, Planner, Row

Policy = TypeVar("Policy")


class ParsePlanner:
    """A planner of the network with parses as boxes, for the network without."""

    def __init__(self, catalog: Catalog, inner: Planner) -> None:
        self.inner = inner
        self._catalog = catalog

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        decision = self.inner.decide(rates)
        return replace(decision, rows=LoweredRows(decision.rows, self._catalog))


class LoweredRows(Sequence[Row]):
    """Rows of a table, each in the network's own arcs when it is looked at."""

    def __init__(self, rows: Sequence[Row], catalog: Catalog) -> None:
        self._rows = rows
        self._catalog = catalog

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        row = self._rows[at]
        return replace(row, drops=lowered(row.drops, self._catalog))


def weighing_parse(planner: Callable[[Policy, Catalog], Planner]) -> Callable[[Policy, Catalog], Planner]:
    """A policy's `planner` that also plans for networks whose rows are parsed late."""

    @wraps(planner)
    def made(policy: Policy, catalog: Catalog) -> Planner:
        if not catalog.parses:
            return planner(policy, catalog)
        return ParsePlanner(catalog, planner(policy, with_parse_boxes(catalog)))

    return made
