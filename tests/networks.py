"""Small random networks for tests: trees with sharing, unions, joins and chains, of any concave QoS."""

from __future__ import annotations

import random
from dataclasses import replace

from streamshed.network import Builder, Catalog, Network
from streamshed.network.qos import Histogram


def concave(draw: random.Random) -> list[tuple[float, float]]:
    """A random concave loss graph of one to four pieces."""
    cuts = sorted({0.0, 100.0, *(float(draw.randint(1, 99)) for _ in range(draw.randint(0, 3)))})
    slopes = sorted((draw.random() for _ in cuts[1:]), reverse=True)
    heights = [0.0]
    for low, high, slope in zip(cuts, cuts[1:], slopes, strict=False):
        heights.append(heights[-1] + slope * (high - low))
    top = heights[-1] or 1.0
    return [(x, min(1.0, height / top)) for x, height in zip(cuts, heights, strict=True)]


def random_network(
    seed: int, *, sharing: bool, boxes: int = 20, sources: int = 4, protect: float = 0.0, mixing: bool = True
) -> Network:
    """`sharing`: boxes may feed several others; `mixing`: streams may meet in unions.

    How values spread is not said: filters then pass all rows alike, and everything is linear.
    """
    draw = random.Random(seed)
    builder = Builder(f"random {seed}", capacity=1.0)
    open_ends: list[str] = []
    for index in range(sources):
        builder.source(
            f"s{index}",
            "x DOUBLE",
            rate=draw.uniform(10, 100),
            protect="x > 99" if protect else None,
            protected=protect,
        )
        open_ends.append(f"s{index}")
    for index in range(boxes):
        name = f"b{index}"
        cost = draw.uniform(0.5e-3, 5e-3)
        if mixing and draw.random() < 0.25 and len(open_ends) >= 2:
            pair = draw.sample(open_ends, 2)
            for one in pair:
                open_ends.remove(one)
            builder.union(name, pair, cost=cost)
        else:
            above = draw.choice(open_ends)
            keeps_open = sharing and not above.startswith("s") and draw.random() < 0.5
            if not keeps_open:
                open_ends.remove(above)
            limit = draw.randint(5, 50)
            builder.filter(name, above, f"x > {limit}", cost=cost, selectivity=draw.uniform(0.3, 1.0))
        open_ends.append(name)
    for index, end in enumerate(open_ends):
        builder.output(f"o{index}", end, loss=concave(draw))
    return builder.build()


def valued_network(
    seed: int, *, joins: bool = True, protect: bool = True, key: str | tuple[str, ...] = ()
) -> Network:
    """Whatever a spec can have: joins, unions, protection, splits in a row, outputs on sources, costs and
    selectivities of 0; with selectivities that are what the values make them."""
    from tests.oracles.network_truth import truth

    draw = random.Random(seed)
    builder = Builder(f"valued {seed}", capacity=1.0)
    spares = "value > 90" if protect and draw.random() < 0.4 else None
    open_ends: list[str] = []
    for index in range(draw.randint(2, 4)):
        values = {"value": (0, 100), "other": (0, 10), "key": (1, 100)}
        if draw.random() < 0.3:
            values["value"] = Histogram.of([0, 20, 100], [draw.uniform(0.1, 0.9), 0.5])
        builder.source(
            f"s{index}",
            "key INT, value DOUBLE, other DOUBLE",
            rate=draw.uniform(50, 500),
            values=values,
            protect=spares,
            key=key,
        )
        open_ends.append(f"s{index}")
    used = set()
    for index in range(draw.randint(3, 9)):
        name, cost = f"b{index}", draw.choice([0.0, 1e-4, 3e-4, 1e-3])
        kind = draw.random()
        if kind < 0.25 and len(open_ends) >= 2:
            pair = draw.sample(open_ends, 2)
            open_ends = [end for end in open_ends if end not in pair]
            builder.union(name, pair, cost=cost)
            used.update(pair)
        elif kind < 0.4 and joins and len(open_ends) >= 2:
            left, right = draw.sample(open_ends, 2)
            open_ends = [end for end in open_ends if end not in (left, right)]
            builder.map(f"{name}k", right, {"key": "key"}, cost=0.0)
            builder.join(name, [left, f"{name}k"], ["key"], 0.1, cost=cost, selectivity=draw.uniform(0.2, 1.0))
            used.update((left, right))
        else:
            above = draw.choice(open_ends)
            if draw.random() < 0.6:
                open_ends.remove(above)
            used.add(above)
            test = draw.choice(["value > {0}", "value <= {0}", "other > 5", "value > 100", "other > 3"])
            builder.filter(name, above, test.format(draw.randint(10, 80)), cost=cost)
        open_ends.append(name)
    for index, end in enumerate(dict.fromkeys([*open_ends, draw.choice(["s0", "s1"])])):
        qos = {"loss": concave(draw)} if draw.random() < 0.5 else {}
        if not qos and draw.random() < 0.8:
            cut = draw.randint(20, 80)
            qos = {"value": ("value", [[0, cut, draw.random()], [cut, 100, 1.0]])}
        builder.output(f"o{index}", end, **qos)
    network = builder.build()
    found = truth(Catalog.of(network)).selectivities
    return replace(
        network,
        boxes=tuple(
            replace(box, selectivity=found[box.name]) if box.op == "filter" else box for box in network.boxes
        ),
    )
