"""Rows at one place of a network, and what drops further on cost in rows of the sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

Worth = Mapping[str, float]
"""What a row is worth in rows of each source."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows at a source or on an arc: arrived = kept + shed + failed.

    On an arc these are the rows that came along it, counted. At a source, `arrived` is counted, and the others say
    what was dropped anywhere behind it, in rows of the source (see `by_source`).
    """

    arrived: int = 0
    shed: int = 0
    failed: int = 0
    """Rows that passed, and on which the load-aware box behind failed."""
    would_shed: float = 0.0
    """In dry-run: rows that enforcing would have dropped here, an estimate."""
    cut: int = 0
    """Of `shed`: rows that came after their batch's time was used up, and were dropped for that alone."""
    expired: int = 0
    """Of `shed`: rows that were older than the bound when their batch began, and were dropped for that alone."""

    @property
    def thinned(self) -> int:
        """Of `shed`: rows that the plan's drops took."""
        return self.shed - self.cut - self.expired

    @property
    def kept(self) -> int:
        return self.arrived - self.shed - self.failed

    @property
    def passed(self) -> int:
        """Rows that were not dropped, also if they failed later."""
        return self.arrived - self.shed

    def plus(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.arrived + other.arrived,
            self.shed + other.shed,
            self.failed + other.failed,
            self.would_shed + other.would_shed,
            self.cut + other.cut,
            self.expired + other.expired,
        )


class _Ways:
    """Which arcs lead where, by their names."""

    def __init__(self, sources: Mapping[str, int], arcs: Mapping[str, RowCounts]) -> None:
        self.sources = sources
        self.arcs = arcs
        self.out_of: dict[str, list[str]] = {}
        self.into: dict[str, list[str]] = {}
        before: dict[str, list[str]] = {}
        # In the same order however the arcs came together, so that sums are the same to the last digit.
        for on in sorted(arcs):
            start, _, end = on.partition("->")
            self.out_of.setdefault(start, []).append(on)
            self.into.setdefault(end, []).append(on)
            before.setdefault(end, []).append(start)
        self.order = tuple(TopologicalSorter(before).static_order())
        """Sources and boxes, each behind those that lead to it."""

    def worths(self) -> dict[str, Worth]:
        """Of a row on each arc. A row that goes several ways is split evenly among them."""
        found: dict[str, Worth] = {}
        for node in self.order:
            ways = self.out_of.get(node, [])
            worth = self._leaving(node, found)
            for on in ways:
                found[on] = {source: share / len(ways) for source, share in worth.items()}
        return found

    def _leaving(self, node: str, worths: Mapping[str, Worth]) -> Worth:
        """Of a row that leaves a node: as much as a mean one that came in, unless more come out than in."""
        if node in self.sources:
            return {node: 1.0}
        if node not in self.into:
            # Books of the version before have only arcs with a drop: nobody knows where these rows came from.
            return dict.fromkeys(self.sources, 1.0 / max(1, len(self.sources)))
        came = sum(self.arcs[on].kept for on in self.into[node])
        left = max((self.arcs[on].arrived for on in self.out_of.get(node, ())), default=0)
        found: dict[str, float] = {}
        for on in self.into[node]:
            for source, share in worths[on].items():
                rows = share * self.arcs[on].kept / max(came, left, 1)
                found[source] = found.get(source, 0.0) + rows
        return found


def by_source(arrived: Mapping[str, int], arcs: Mapping[str, RowCounts]) -> dict[str, RowCounts]:
    """What drops on arcs cost, in rows of the sources.

    A row that goes several ways is split evenly among them: one that is dropped on one of two ways counts as half.
    A row behind a box is worth as much as a mean row that came into the box, and all rows that leave it are never
    worth more than those that came in. So no more can be shed than arrived; and where a source's rows go one way,
    through filters and maps, `shed` is just the number of rows dropped on it.

    >>> arcs = {"s->f": RowCounts(100), "s->g": RowCounts(100, shed=40), "f->o": RowCounts(50, shed=10)}
    >>> by_source({"s": 100}, arcs)["s"].shed  # 40 halves on the way to g, 10 halves behind f
    25
    """
    worths = _Ways(arrived, arcs).worths()
    lost = {source: [0.0] * 5 for source in arrived}
    for on, rows in sorted(arcs.items()):
        if not (rows.shed or rows.failed or rows.would_shed):
            continue
        for source, share in worths[on].items():
            for kind, count in enumerate((rows.shed, rows.failed, rows.would_shed, rows.cut, rows.expired)):
                lost[source][kind] += share * count
    found = {}
    for source, (shed, failed, would_shed, cut, expired) in lost.items():
        rows_shed = min(arrived[source], round(shed))
        rows_failed = min(arrived[source] - rows_shed, round(failed))
        rows_cut = min(rows_shed, round(cut))
        found[source] = RowCounts(
            arrived[source],
            rows_shed,
            rows_failed,
            min(would_shed, arrived[source]),
            rows_cut,
            min(rows_shed - rows_cut, round(expired)),
        )
    return found


def would_drop(
    sources: Mapping[str, int], arcs: Mapping[str, RowCounts], keeps: Mapping[str, float]
) -> dict[str, float]:
    """Rows that drops would have taken on each arc, had these shares been kept there.

    As if each box gave out rows in proportion to those that come in: what is dropped on one arc does not come to
    the arcs behind it.

    >>> arcs = {"s->f": RowCounts(100), "f->o": RowCounts(50)}
    >>> would_drop({"s": 100}, arcs, {"s->f": 0.5, "f->o": 0.2})
    {'s->f': 50.0, 'f->o': 20.0}
    """
    ways = _Ways(sources, arcs)
    left: dict[str, float] = {}  # share of the rows that would still leave each node
    for node in ways.order:
        into = [] if node in sources else ways.into.get(node, [])
        came = sum(arcs[on].kept for on in into)
        passing = sum(arcs[on].kept * left[on.partition("->")[0]] * keeps.get(on, 1.0) for on in into)
        left[node] = passing / came if came else 1.0
    return {
        on: arcs[on].passed * left[on.partition("->")[0]] * (1.0 - keep)
        for on, keep in keeps.items()
        if on in arcs
    }
