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

from streamshed.experiments.registry import Progress
from streamshed.extras import need
from streamshed.policies.queue_check import Average
from streamshed.policies.queue_model import QueueModel
from streamshed.sim.operator import Stream
from streamshed.sim.operator_kernel import LasSettings, run_las
from streamshed.sim.operator_streams import MILLISECOND, Association, Shape, stream, warm_up
from streamshed.sketch.hashing import CarterWegman

ROWS = 200_000
REPEATS = 7
_THRESHOLD = 6.4 * MILLISECOND


def run(progress: Progress, *, rows: int = ROWS, repeats: int = REPEATS, seed: int = 1) -> dict[str, Any]:
    """Decisions per second of each, and their ratio; `repeats` interleaved rounds."""
    shape, settings = Shape(rows=rows), LasSettings()
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
        waits = run_las(given, Average(_THRESHOLD), hashes, settings, first).waits
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


def _datasketches(given: Stream, settings: LasSettings) -> float:
    """The share of rows dropped."""
    count_min_sketch = need("datasketches", "lab").count_min_sketch
    size = settings.size
    often, took = count_min_sketch(size.rows, size.columns, 7), count_min_sketch(size.rows, size.columns, 7)
    check, queue = Average(_THRESHOLD), QueueModel()
    caution = 1 + settings.epsilon
    dropped = 0
    rows = zip(given.keys.tolist(), given.costs.tolist(), given.arrivals.tolist(), strict=True)
    for key, cost, now in rows:
        if not check.admits(queue.wait(now)):
            dropped += 1
            continue
        frequency = often.get_estimate(key)
        queue.push(now, (took.get_estimate(key) / frequency if frequency else cost) * caution)
        often.update(key, 1)
        took.update(key, cost)
    return dropped / len(given)
