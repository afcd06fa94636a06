"""Policy `aurora-greedy`: Aurora's static load shedding by the slopes of loss graphs alone.

Carney et al., Monitoring Streams, VLDB 2002, load shedding by dropping tuples. The output whose loss graph has
the least slope where it stands gives rows, until another has a smaller one; and so on until enough is
recovered. Its drop goes as far up as it hits no other output. What a row of that output costs plays no part in
the choice: LSRM divides the slope by it (Loss/Gain), and this is what it is compared with.

What is ours: work that several outputs share is above all of these drops. If the load does not fit when every
output has lost everything, all sources lose rows alike, which costs no more utility.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("pair").source("a", "x INT", rate=50).source("b", "x INT", rate=10)
...     .filter("f", "a", "x > 0", cost=0.01).filter("g", "b", "x > 0", cost=0.09)
...     .output("cheap", "f", loss=[(100, 1.0), (50, 0.9), (0, 0.0)])
...     .output("dear", "g", loss=[(100, 1.0), (50, 0.85), (0, 0.0)]).build()
... )
>>> decision = AuroraGreedy().planner(Catalog.of(network)).decide()
>>> [(drop.at, round(drop.keep, 2)) for drop in decision.drops]
[('a->f', 0.5), ('b->g', 0.72)]
"""

from __future__ import annotations

from dataclasses import dataclass

from streamshed.network.catalog import Catalog
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.drop_path import Keeps, PathPlanner
from streamshed.policies.intervals import places
from streamshed.policies.parse_planner import weighing_parse
from streamshed.policies.road_map.segments import candidates


@dataclass(frozen=True)
class AuroraGreedy:
    """`aurora-greedy`."""

    name: str = "aurora-greedy"

    @weighing_parse
    def planner(self, catalog: Catalog) -> PathPlanner:
        model = FlowModel(catalog)
        considered = candidates(model)
        sources = [on for source in catalog.network.sources for on in catalog.network.arcs_out_of(source.name)]
        outputs = [output.name for output in catalog.network.outputs]
        # An arc on which protected rows cannot be told from others is no place for a drop.
        drops = {name: [on for on in places(catalog.network, name) if on in considered] for name in outputs}
        protected = _protected_percent(model)
        graphs = loss_graphs(catalog)
        stages = sorted(
            (piece.slope, outputs.index(name), -piece.high, max(piece.low, protected[name]))
            for name in outputs
            for piece in graphs[name].pieces
            if piece.high > protected[name]
        )

        def after(number: int) -> Keeps:
            percent = dict.fromkeys(outputs, 100.0)
            for _, index, _, low in stages[:number]:
                percent[outputs[index]] = low
            keeps = {
                on: (percent[name] - protected[name]) / (100.0 - protected[name])
                for name in outputs
                if percent[name] < 100.0
                for on in drops[name]
            }
            return keeps | dict.fromkeys(sources, 0.0) if number > len(stages) else keeps

        return PathPlanner(self.name, model, after, len(stages) + 1)


def _protected_percent(model: FlowModel) -> dict[str, float]:
    """The percent of its rows that no drop can take from an output."""
    return model.delivery(model.state(model.protected_only()))
