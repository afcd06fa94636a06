"""Policy `random`: drops at random points of the network, with no regard to what they cost anybody.

The naive way that Aurora compares its own with (Carney et al., Monitoring Streams, VLDB 2002, load shedding):
rows are lost wherever it happens, as packets are in a full router. Again and again a candidate arc is drawn,
and drops a tenth more of its rows, until the load fits. The draws come from the seed. Rows dropped far down
were worked on in vain, and an output that lies below many places loses more often.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("split").source("s", "x INT", rate=60)
...     .filter("h", "s", "x > 0", cost=0.01)
...     .filter("a", "h", "x > 1", cost=0.01).filter("b", "h", "x > 2", cost=0.01)
...     .output("o", "a").output("p", "b").build()
... )
>>> decision = RandomPoints(seed=1).planner(Catalog.of(network)).decide()
>>> [(drop.at, round(drop.keep, 2)) for drop in decision.drops]
[('h->a', 0.7), ('h->b', 0.6), ('s->h', 0.65)]
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from streamshed.network.catalog import Catalog
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.drop_path import Keeps, PathPlanner
from streamshed.policies.parse_planner import weighing_parse
from streamshed.policies.road_map.segments import candidates

_STEPS = 10
"""Draws after which an arc drops everything."""


@dataclass(frozen=True)
class RandomPoints:
    """`random`."""

    seed: int = 0
    name: str = "random"

    @weighing_parse
    def planner(self, catalog: Catalog) -> PathPlanner:
        model = FlowModel(catalog)
        draws = [name for name in candidates(model) for _ in range(_STEPS)]
        random.Random(self.seed).shuffle(draws)

        def after(number: int) -> Keeps:
            taken: dict[str, int] = {}
            for name in draws[:number]:
                taken[name] = taken.get(name, 0) + 1
            return {name: 1 - times / _STEPS for name, times in taken.items()}

        return PathPlanner(self.name, model, after, len(draws))
