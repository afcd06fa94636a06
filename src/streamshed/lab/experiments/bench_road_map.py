"""How the road map scales: build time for growing networks, and the cost of a look-up.

For each size a network is generated (ten boxes a query, no sharing) and its road map built with random drops;
the exponent is the slope of log(time) over log(boxes), by least squares on the fastest of the repeats. Two
look-ups are timed: at rates already weighed, and at rates that changed since, when the table is weighed anew.
Beside them stands what `optimal` takes to plan for rates that changed, by solving its linear program.
Times are processor seconds of this process, so that a busy machine disturbs them less.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from streamshed.network.catalog import Catalog
from streamshed.network.generate import NetworkShape, generate
from streamshed.policies.optimal import Optimal
from streamshed.policies.road_map.random import build
from streamshed.policies.road_map.table import RoadMap

Progress = Callable[[int, int, str], None]
SIZES = (50, 500, 5000)
REPEATS = 3
LOOK_UPS = 10_000
SOLVES = 9


def run(
    progress: Progress, *, sizes: Sequence[int] = SIZES, repeats: int = REPEATS, seed: int = 1
) -> dict[str, Any]:
    """Build times, their exponent, and microseconds per look-up, for each size."""
    rows: list[dict[str, Any]] = []
    total = len(sizes) * repeats
    for number, boxes in enumerate(sizes):
        network = generate(NetworkShape(queries=max(1, boxes // 10), boxes=boxes), seed=seed)
        catalog = Catalog.of(network).overloaded(1.0)
        seconds: list[float] = []
        for repeat in range(repeats):
            progress(number * repeats + repeat, total, f"{boxes} boxes, build {repeat + 1}")
            start = time.process_time()
            table = build(catalog)
            seconds.append(time.process_time() - start)
        rows.append(
            {
                "boxes": boxes,
                "rows": len(table),
                "build_seconds": min(seconds),
                "build_seconds_all": seconds,
                "look_up_microseconds": _look_up(table, catalog, changing=False),
                "look_up_new_rates_microseconds": _look_up(table, catalog, changing=True),
                "optimal_milliseconds": _solve(catalog),
            }
        )
    progress(total, total, "done")
    return {"name": "road-map", "seed": seed, "exponent": _exponent(rows), "sizes": rows}


def _look_up(table: RoadMap, catalog: Catalog, *, changing: bool) -> float:
    """Microseconds per look-up, over excesses spread evenly over the whole table."""
    count = LOOK_UPS // 100 if changing else LOOK_UPS
    rates = dict(catalog.rates)
    excesses = [catalog.load * index / count for index in range(count)]
    table.look_up(0.0, rates)
    start = time.process_time()
    for excess in excesses:
        table.look_up(excess, dict(rates) if changing else rates)
    return (time.process_time() - start) / count * 1e6


def _solve(catalog: Catalog) -> float:
    """Milliseconds in which `optimal` decides for new rates; the median."""
    planner = Optimal().planner(catalog)
    seconds: list[float] = []
    for number in range(SOLVES):
        rates = {name: rate * (0.8 + 0.1 * number) for name, rate in catalog.rates.items()}
        start = time.process_time()
        planner.decide(rates)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds) * 1e3


def _exponent(rows: Sequence[dict[str, Any]]) -> float:
    """Least-squares slope of log(build time) over log(boxes).

    >>> _exponent([{"boxes": 10, "build_seconds": 1.0}, {"boxes": 100, "build_seconds": 10.0}])
    1.0
    """
    points = [(math.log(row["boxes"]), math.log(row["build_seconds"])) for row in rows]
    x = sum(point[0] for point in points) / len(points)
    y = sum(point[1] for point in points) / len(points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
