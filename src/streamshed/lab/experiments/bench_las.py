"""How fast load-aware decisions are, against the same loop over another library's Count-Min from Python.

A decision is what LAS does with a row: foresee its wait, check it against the target, and for a row that is let
in, estimate its cost and, when it is done, add it to F and W. The compiled loop is that of the simulator, with
hashes, queue and both state machines. The other loop does the same with two `datasketches.count_min_sketch`,
one for F and one for W, of as many rows and columns; it reads the sketches that it writes and never
synchronises, so it does less. The two are taken in turns, after a round that is not measured, and the medians
compared. Time is that of the processor; both use one core.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from streamshed.extras import need
from streamshed.lab.experiments.registry import Progress
from streamshed.las.check import average
from streamshed.las.settings import LasSettings
from streamshed.sim.operator.kernel import run_las
from streamshed.sim.operator.streams import MILLISECOND, Association, StreamShape, TimedRows, stream, warm_up
from streamshed.sketch.hashing import CarterWegman

ROWS = 200_000
REPEATS = 7
_THRESHOLD = 6.4 * MILLISECOND


def run(progress: Progress, *, rows: int = ROWS, repeats: int = REPEATS, seed: int = 1) -> dict[str, Any]:
    """Decisions per second of each, and their ratio; `repeats` interleaved rounds."""
    shape, settings = StreamShape(rows=rows), LasSettings()
    association = Association.draw(shape, seed)
    rng = np.random.default_rng(seed)
    given = stream(shape, association, rng)
    first = warm_up(shape, association, rng, 1 << 15)
    hashes = CarterWegman.draw(settings.size.rows, settings.size.columns, rng)
    speeds: dict[str, list[float]] = {"streamshed": [], "datasketches": []}
    dropped: dict[str, float] = {}
    for number in range(repeats + 1):
        progress(number, repeats + 1, "warming up" if number == 0 else f"round {number}")
        start = time.process_time()
        waits = run_las(given, average(_THRESHOLD), hashes, settings, first).waits
        ours = time.process_time() - start
        dropped["streamshed"] = float((waits < 0).mean())
        start = time.process_time()
        dropped["datasketches"] = _datasketches(given, settings)
        theirs = time.process_time() - start
        if number:
            speeds["streamshed"].append(rows / ours)
            speeds["datasketches"].append(rows / theirs)
    progress(repeats + 1, repeats + 1, "done")
    median = {name: statistics.median(found) for name, found in speeds.items()}
    return {
        "ratio": median["streamshed"] / median["datasketches"],
        "rows": rows,
        "sketch": [settings.size.rows, settings.size.columns],
        "repeats": repeats,
        "decisions_per_second": median,
        "decisions_per_second_range": {name: [min(found), max(found)] for name, found in speeds.items()},
        "dropped": dropped,
        "ratio_to_datasketches": median["streamshed"] / median["datasketches"],
    }


def _datasketches(given: TimedRows, settings: LasSettings) -> float:
    """The share of rows dropped."""
    count_min_sketch = need("datasketches", "lab").count_min_sketch
    size = settings.size
    often, took = count_min_sketch(size.rows, size.columns, 7), count_min_sketch(size.rows, size.columns, 7)
    caution = 1 + settings.epsilon
    dropped, let_in, waited, free_at = 0, 0, 0.0, 0.0
    rows = zip(given.keys.tolist(), given.costs.tolist(), given.arrivals.tolist(), strict=True)
    for key, cost, now in rows:
        wait = max(0.0, free_at - now)
        if (waited + wait) / (let_in + 1) > _THRESHOLD:
            dropped += 1
            continue
        waited, let_in = waited + wait, let_in + 1
        frequency = often.get_estimate(key)
        free_at = max(free_at, now) + (took.get_estimate(key) / frequency if frequency else cost) * caution
        often.update(key, 1)
        took.update(key, cost)
    return dropped / len(given)
