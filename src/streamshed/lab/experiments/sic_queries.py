"""The queries of the SIC experiments: averages, maxima, counts, top-k and joins of different weight.

A query's weight is how much it asks of a node: how many tuples a second its sources send, and what a tuple costs.
Costs are such that all queries together ask for a given multiple of what the nodes can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamshed.errors import InvalidArgument
from streamshed.network.builder import Builder
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Network
from streamshed.network.qos import Histogram
from streamshed.sim.nodes.deployment import FederatedQuery

KINDS = ("average", "max", "count", "top-k", "join")
BATCHES = (2.0, 4.0, 8.0)
"""Per second, that sources send: light queries send fewer."""
_SKEWED = Histogram.of([0, 1, 10, 100], [6, 3, 1])
_VALUES = {"k": Histogram.uniform(0, 9), "x": _SKEWED}
_SCHEMA = "k INT, x DOUBLE, at TIMESTAMP"


def query(kind: str, name: str, rate: float, cost: float, window: float = 1.0) -> Network:
    """One query of a kind: some boxes, one output.

    rate: tuples per second that each of its sources sends; cost: seconds that a tuple takes at a box
    """

    def source(builder: Builder, which: str, time: str) -> Builder:
        return builder.source(which, f"k INT, {which}x DOUBLE, {time} TIMESTAMP", arrived=time, rate=rate,
                              values={"k": _VALUES["k"], f"{which}x": _SKEWED})  # fmt: skip

    builder = Builder(name)
    if kind == "join":
        source(source(builder, "s", "at"), "t", "ta")
        builder.filter("near", "s", "sx >= 0", cost=cost).filter("far", "t", "tx >= 0", cost=cost)
        builder.join("both", ["near", "far"], "k", 0.2, cost=cost)
        return builder.output("result", "both").build()
    source(builder, "s", "at").filter("near", "s", "sx >= 0", cost=cost)
    builder.map("shape", "near", {"k": "k", "sx": "sx * 1.0", "at": "at"}, cost=cost)
    if kind == "top-k":
        builder.top_k("best", "shape", 5, "sx", window, cost=cost)
    elif kind in ("average", "max", "count"):
        function = {"average": "avg(sx)", "max": "max(sx)", "count": "count(*)"}[kind]
        builder.aggregate("best", "shape", window, {"x": function}, cost=cost)
    else:
        raise InvalidArgument("no such kind of query", got=kind, hint=", ".join(KINDS))
    return builder.output("result", "best").build()


def mixed(
    count: int,
    nodes: Sequence[str],
    overload: float,
    seed: int,
    *,
    capacity: float = 1.0,
    spread: tuple[int, int] = (1, 1),
    rates: tuple[float, float] = (10.0, 200.0),
    costs: tuple[float, float] = (0.5, 2.0),
    exact: Sequence[float] | None = None,
    even: bool = True,
) -> list[FederatedQuery]:
    """Queries of all kinds, of weights drawn anew for each.

    overload: load over capacity of all nodes together
    spread: least and most nodes that a query runs on
    rates: tuples per second of a source, from least to most, spread evenly over their logarithm
    costs: the same for what a tuple costs, before all costs are scaled to the overload
    exact: the rate of each query, instead of one drawn
    even: whether each part of a query goes to the node with the least load, or to any
    """
    rng = np.random.default_rng(seed)
    networks = []
    for number in range(count):
        rate, cost = (float(np.exp(rng.uniform(*np.log(ends)))) for ends in (rates, costs))
        rate = rate if exact is None else exact[number]
        networks.append(query(KINDS[number % len(KINDS)], f"q{number}", rate, cost))
    asked = sum(Catalog.of(network).load for network in networks)
    scale = overload * capacity * len(nodes) / asked
    parts = rng.integers(spread[0], spread[1] + 1, count).tolist()
    batches = rng.choice(BATCHES, count).tolist()
    scaled = [
        replace(network, boxes=tuple(replace(box, cost=box.cost * scale) for box in network.boxes))
        for network in networks
    ]
    places = deployed(scaled, parts, nodes, None if even else rng)
    return [
        FederatedQuery(network, place, batches=pace)
        for network, place, pace in zip(scaled, places, batches, strict=True)
    ]


def deployed(
    networks: Sequence[Network],
    parts: Sequence[int],
    nodes: Sequence[str],
    rng: np.random.Generator | None = None,
) -> list[dict[str, str]]:
    """Box ─► node for each query: as DISSP's oracle does it, each part goes to the node with the least load (4.3).

    The heaviest queries are placed first, and a query's boxes in order, so that each node has a stretch of them.
    rng: to place parts anywhere instead
    """
    load = dict.fromkeys(nodes, 0.0)
    found: list[dict[str, str]] = [{} for _ in networks]
    for number in sorted(range(len(networks)), key=lambda each: -Catalog.of(networks[each]).load):
        network = networks[number]
        rates = Catalog.of(network).arc_rates
        count = min(parts[number], len(network.order), len(nodes))
        free = list(nodes)
        for stretch in np.array_split(np.arange(len(network.order)), count):
            place = min(free, key=lambda name: load[name]) if rng is None else str(rng.choice(free))
            free.remove(place)
            for index in stretch.tolist():
                box = network.order[index]
                found[number][box.name] = place
                load[place] += box.cost * sum(rates[on] for on in network.arcs_into(box.name))
    return found
