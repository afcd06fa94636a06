"""How far the road map is from the exact optimum: `lsrm-random` against the linear program.

On generated networks, half of them with sharing, at excess loads drawn from +22 % to +307 %. The distance
is the utility that the program keeps and the chosen row does not, summed over the outputs (each has at most
1). It is also given in steps: the road map's own last step is what the chosen row lost against the row
before it, so a distance of at most 1 step is as close as a table of steps can come.

    python -m streamshed.experiments.road_map_distance
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from streamshed.network.catalog import Catalog
from streamshed.network.generate import Shape, generate
from streamshed.policies.optimal import Optimal
from streamshed.policies.road_map import RandomRoadMap

Progress = Callable[[int, int, str], None]


def run(progress: Progress, *, networks: int = 500, seed: int = 1) -> dict[str, Any]:
    """Quantiles of the distance, without and with sharing, and the worst networks."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[dict[str, Any]]] = {"without sharing": [], "with sharing": []}
    for number in range(networks):
        progress(number, networks, "networks")
        sharing = number % 2 == 1
        shape = Shape(
            queries=int(rng.integers(3, 8)),
            boxes=int(rng.integers(20, 48)),
            shared=int(rng.integers(2, 5)) if sharing else 0,
            skew=float(rng.uniform(0, 1.5)),
            rates=(0.5, 2.0),
        )
        made = int(rng.integers(1 << 30))
        catalog = Catalog.of(generate(shape, seed=made)).overloaded(float(rng.uniform(0.22, 3.07)))
        kind = "with sharing" if sharing else "without sharing"
        found[kind].append({"seed": made, "shape": shape, **_distance(catalog)})
    progress(networks, networks, "done")
    return {
        "name": "road-map-distance",
        "seed": seed,
        "networks": networks,
        **{kind: _summary(rows) for kind, rows in found.items()},
    }


def _distance(catalog: Catalog) -> dict[str, float]:
    chosen = RandomRoadMap().planner(catalog).decide()
    best = Optimal().planner(catalog).decide()
    assert chosen.chosen is not None
    assert chosen.row is not None
    assert best.row is not None
    kept = sum(chosen.row.utility.values())
    outputs = len(chosen.row.utility)
    before = sum(chosen.rows[chosen.chosen - 1].utility.values()) if chosen.chosen else float(outputs)
    distance = sum(best.row.utility.values()) - kept
    step = before - kept
    return {
        "distance": distance,
        "steps": distance / step if step > 1e-9 else 0.0 if distance <= 1e-7 else float("inf"),
        "lost": outputs - sum(best.row.utility.values()),
    }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    distances = np.array([row["distance"] for row in rows])
    steps = np.array([row["steps"] for row in rows])
    worst = max(rows, key=lambda row: row["distance"])
    return {
        "networks": len(rows),
        "within_one_step": float(np.mean(steps <= 1 + 1e-6)),
        "distance_median": float(np.median(distances)),
        "distance_p90": float(np.quantile(distances, 0.9)),
        "distance_p99": float(np.quantile(distances, 0.99)),
        "distance_max": float(distances.max()),
        "steps_max": float(steps.max()),
        "worst": {"seed": worst["seed"], "shared": worst["shape"].shared, "lost_by_optimum": worst["lost"]},
    }


def main() -> None:
    """Print the summary as JSON."""
    print(json.dumps(run(lambda done, total, what: None), indent=1))


if __name__ == "__main__":
    main()
