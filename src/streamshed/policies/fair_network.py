"""Policy `fair`: every output of a network keeps the same share of its information (DISSP 5.3, on keep fractions).

Algorithm 1 (`policies.fair`) admits batches, always of the query that has least. Where the unit is not a batch but
the share of a source's rows that goes to a query, its end is one level: all queries are filled up to it, none
above. With the SIC q of each output o over the last source time window and its weight w, the share that o is to
keep is

    kₒ(L) = w·L + (w·L − q),   between its minimum and 1

and the level L is the highest at which the load fits. The second term is what Algorithm 1 starts from: who had
less so far gets more now. Drops are where streams part: a box that several outputs share is fed for the one that
is to keep most, and the others lose the rest behind it,

    K(box) = max kₒ over the outputs below it;    keep on an arc into it = K(box) / K(the box it comes from)

so that every source of an output keeps the same share. When not even the minimums fit, all shares shrink alike.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("split").source("s", "x INT", rate=60)
...     .filter("h", "s", "x > 0", cost=0.01)
...     .filter("a", "h", "x > 1", cost=0.01).filter("b", "h", "x > 2", cost=0.01)
...     .output("o", "a", weight=2).output("p", "b").build()
... )
>>> decision = Fair().planner(Catalog.of(network)).decide()
>>> [(drop.at, round(drop.keep, 2)) for drop in decision.drops]
[('h->b', 0.5), ('s->h', 0.6)]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from streamshed.network.catalog import Catalog
from streamshed.network.graph import arc, inputs
from streamshed.network.parse_step import with_parse_boxes
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.contract import Decision
from streamshed.policies.drop_path import Keeps, PathPlanner
from streamshed.policies.parse_planner import LoweredRows
from streamshed.policies.road_map.segments import candidates

_LEVELS = 64
"""Levels from all that is kept to the minimums; then as many to nothing. Between them shares change evenly."""


@dataclass(frozen=True)
class Fair:
    """`fair`. Weights and minimums are those of the network's outputs."""

    name: str = "fair"

    def planner(self, catalog: Catalog) -> FairPlanner:
        return FairPlanner(self.name, catalog)


class FairPlanner:
    def __init__(self, policy: str, catalog: Catalog) -> None:
        self._own = catalog
        # It plans for the network in which parses are boxes, and answers in the network's own arcs.
        catalog = with_parse_boxes(catalog)
        network = catalog.network
        self._network = network
        self._sic: Mapping[str, float] = {}
        model = FlowModel(catalog)
        self._places = set(candidates(model))
        ways = self._ways()
        self._below = {node.name: [o for o, way in ways.items() if node.name in way] for node in network.heads}
        self._path = PathPlanner(policy, model, self._keeps, 2 * _LEVELS)

    def decide(
        self, rates: Mapping[str, float] | None = None, *, sic: Mapping[str, float] | None = None
    ) -> Decision:
        """`sic`: what outputs had over the last source time window; those not told of have no past."""
        self._sic = sic or {}
        decision = self._path.decide(rates)
        return replace(decision, rows=LoweredRows(decision.rows, self._own)) if self._own.parses else decision

    def _ways(self) -> dict[str, set[str]]:
        """For each output, itself and the boxes above it."""
        above = {output.name: self._network.above(output.name)[1] for output in self._network.outputs}
        return {output: {output, *(box.name for box in boxes)} for output, boxes in above.items()}

    def shares(self, point: int) -> dict[str, float]:
        """What each output is to keep, at a point of the way from everything to nothing."""
        level = 1.0 - min(point, _LEVELS) / _LEVELS
        shrunk = 1.0 - max(0, point - _LEVELS) / _LEVELS
        top = max(self._full(output.name, output.weight) for output in self._network.outputs)
        found = {}
        for output in self._network.outputs:
            wanted = output.weight * level * top
            wanted += wanted - self._sic[output.name] if output.name in self._sic else 0.0
            found[output.name] = shrunk * min(1.0, max(output.minimum_sic, wanted))
        return found

    def _full(self, output: str, weight: float) -> float:
        """The level at which an output keeps everything."""
        return (1.0 + self._sic[output]) / (2.0 * weight) if output in self._sic else 1.0 / weight

    def _keeps(self, point: int) -> Keeps:
        shares = self.shares(point)
        reached = {source.name: 1.0 for source in self._network.sources}
        keeps: dict[str, float] = {}
        for node in self._network.heads:
            wanted = max((shares[name] for name in self._below[node.name]), default=0.0)
            came = []
            for above in inputs(node):
                on = arc(above, node.name)
                keep = 1.0
                if on in self._places:
                    keep = min(1.0, wanted / reached[above]) if reached[above] > 0 else 0.0
                    keeps[on] = keep
                came.append(reached[above] * keep)
            reached[node.name] = max(came)
        return keeps
