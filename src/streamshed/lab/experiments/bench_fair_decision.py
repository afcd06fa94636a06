"""What one decision of fair shedding costs (DISSP Algorithm 1), and how it grows.

For each number of queries and batches, batches of random queries and sizes wait, and half of their tuples are
admitted. The exponent is the slope of log(time) over log(batches), by least squares on the fastest of the repeats;
n·log n over these sizes has a slope of about 1.1. The share is that of the shedding interval, 250 ms: the node
stands still for so long. Times are processor seconds of this process, so that a busy machine disturbs them less.

What must come out, written before the first run: an exponent below 1.3, and less than the interval for 10,000
queries with 100,000 batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamshed.policies.fair import Batches, admit

Progress = Callable[[int, int, str], None]
QUERIES = (1_000, 10_000)
BATCHES = (12_500, 25_000, 50_000, 100_000)
REPEATS = 5
INTERVAL = 0.25


def run(
    progress: Progress,
    *,
    queries: Sequence[int] = QUERIES,
    batches: Sequence[int] = BATCHES,
    repeats: int = REPEATS,
    seed: int = 1,
) -> dict[str, Any]:
    """Seconds of one decision for each size, the share of the interval, and the exponent for each query count."""
    admit(waiting(10, 100, seed), 500, np.zeros(10))  # compiled now, and not while it is timed
    rows: list[dict[str, Any]] = []
    total = len(queries) * len(batches)
    for number, (count, size) in enumerate((count, size) for count in queries for size in batches):
        progress(number, total, f"{count:,} queries, {size:,} batches")
        buffer = waiting(count, size, seed)
        half = buffer.tuples.sum() / 2
        projected = np.random.default_rng(seed).uniform(0, 0.5, count)
        seconds = []
        for _ in range(repeats):
            start = time.process_time()
            admit(buffer, half, projected)
            seconds.append(time.process_time() - start)
        rows.append(
            {
                "queries": count,
                "batches": size,
                "seconds": min(seconds),
                "seconds_all": seconds,
                "share_of_interval": min(seconds) / INTERVAL,
            }
        )
    progress(total, total, "done")
    return {
        "name": "fair-decision",
        "seed": seed,
        "interval": INTERVAL,
        "exponent": {str(count): exponent([row for row in rows if row["queries"] == count]) for count in queries},
        "sizes": rows,
    }


def waiting(queries: int, batches: int, seed: int) -> Batches:
    """A full input buffer: a query's tuples count alike, and batches have 10 to 100 of them."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, queries, batches)
    tuples = rng.integers(10, 101, batches)
    return Batches(query, tuples, tuples * rng.uniform(1e-5, 1e-3, queries)[query])


def exponent(rows: Sequence[dict[str, Any]]) -> float:
    """Least-squares slope of log(seconds) over log(batches).

    >>> round(exponent([{"batches": 10, "seconds": 1.0}, {"batches": 100, "seconds": 10.0}]), 9)
    1.0
    """
    x, y = (np.array([math.log(row[key]) for row in rows]) for key in ("batches", "seconds"))
    return float(np.polyfit(x, y, 1)[0])
