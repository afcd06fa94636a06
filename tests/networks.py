"""Small random networks for tests: trees with sharing, unions, joins and chains, of any concave QoS."""

from __future__ import annotations

import random

from streamshed.network import Builder, Network


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
    """`sharing`: boxes may feed several others; `mixing`: streams may meet in unions and joins."""
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
            values={"x": (0, 100)},
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
