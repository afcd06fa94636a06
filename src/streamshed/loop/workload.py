"""How the work of a batch is counted: in rows, or by a network's catalog.

A detector compares amounts of work: what arrived, as the work it would be if all of it were kept, and what was
kept, as the work that it was. In a job of its own a row is a row. In a network one row may pass three boxes and
another none, so there both are counted by the catalog, in rows of average work. Costs that are wrong by a factor,
and what a micro-batch costs whatever is in it, are learned from the measured durations (`AffineCost`); of the
catalog only the proportions count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Protocol

from streamshed.network.catalog import Catalog
from streamshed.network.graph import Box, ends
from streamshed.records import Flows, Sample

_ENOUGH = 100  # rows that must have come to a drop before it tells what share it keeps


class Workload(Protocol):
    def of(self, sample: Sample) -> Sample:
        """The sample with `arrived` and `kept` in units of work."""
        ...

    def wanted(self, sample: Sample) -> float:
        """Of the work that was cut, the share that was not to be dropped anyway."""
        ...


class RowWork:
    """Every row is as much work as any other."""

    def of(self, sample: Sample) -> Sample:
        return sample

    def wanted(self, sample: Sample) -> float:
        """A row is cut behind the drop."""
        return 1.0


class CatalogWork:
    """The work that a network's catalog says, for one of its queries."""

    def __init__(self, catalog: Catalog, selectivities: Callable[[], Mapping[str, float]]) -> None:
        """`catalog` is of what runs in the query; `selectivities` gives those that are known by now."""
        self.catalog = catalog
        self._selectivities = selectivities
        rate = sum(catalog.rates.values())
        mean = catalog.load / rate if rate > 0 else 0.0
        # What one row of average work costs; 1 where the catalog knows of no work: then rows are counted.
        self._unit = mean or 1.0
        self._counts_work = mean > 0

    def wanted(self, sample: Sample) -> float:
        """Rows of a network are cut in front of the drop on their arc. What the others met on their way tells."""
        flows = sample.flows or Flows()
        came = {**flows.left, **flows.arrived}
        catalog = replace(self.catalog, selectivities=self._selectivities())

        @cache
        def left(on: str) -> float:
            """The work of a row that comes to an arc, under the drops in force."""
            tail, head = ends(on)
            seen = came.get(tail, 0) - flows.cut.get(on, 0) - flows.expired.get(on, 0)
            if seen < _ENOUGH:
                return sample.keep * catalog.coefficients[on]
            share = min(1.0, flows.passed.get(on, 0) / seen)
            if head not in catalog.costs:
                return 0.0
            below = sum(map(left, catalog.network.arcs_out_of(head)))
            return share * (catalog.costs[head] + catalog.selectivities[head] * below)

        ours = {on: rows for on, rows in flows.cut.items() if on in catalog.coefficients}
        cut = sum(rows * catalog.coefficients[on] for on, rows in ours.items())
        kept = sum(rows * left(on) for on, rows in ours.items())
        return kept / cut if cut > 0 else 1.0

    def of(self, sample: Sample) -> Sample:
        flows = sample.flows or Flows()
        if self._counts_work:
            catalog = replace(self.catalog, selectivities=self._selectivities())
            arrived = sum(rows * catalog.source_coefficients[name] for name, rows in flows.arrived.items())
            heads = ((catalog.network.nodes[ends(on)[1]], rows) for on, rows in flows.passed.items())
            kept = sum(rows * catalog.costs[head.name] for head, rows in heads if isinstance(head, Box))
        else:
            arrived = float(sum(flows.arrived.values()))
            kept = arrived * sample.keep
        if not (flows.thinned or sample.cut or sample.expired):
            kept = arrived  # nothing was dropped; if the two differ, then because selectivities are off
        kept = min(kept, arrived)
        a_row = arrived / max(1, sample.arrived)
        expired = min(sample.expired * a_row, arrived - kept)
        return replace(
            sample,
            arrived=round(arrived / self._unit),
            kept=round(kept / self._unit),
            # At least something, if any row was: that it was cut counts.
            cut=math.ceil(min(sample.cut * a_row, arrived - kept - expired) / self._unit),
            expired=round(expired / self._unit),
            flows=None,
        )
