"""`bench overhead`: what `shed` costs a job that has nothing to shed.

Two queries of the light job (parse JSON, filter, windowed aggregate) stand side by side, one with
`shed` and one without. They get the same rows in turns, several batches at a time; each pair of turns
gives a ratio of times, and the median of them is told. A third query, plain as well, takes its turns
too: how far its ratio is from 1 is what this machine's noise alone makes of the number.
"""

from __future__ import annotations

import statistics
from typing import Any

import streamshed.bench.play as playing
from streamshed.bench import jobs
from streamshed.bench.feeder import Rows
from streamshed.bench.play import Say
from streamshed.bench.standing import Standing, stock

BATCH_SECONDS = 2.0  # half of a bound of 4 seconds: the size of batch that a job near its bound has
BATCHES = 3  # in a turn
WARM_UP = 2  # turns of each that are not counted: the JVM compiles


def run(say: Say, pairs: int = 15) -> dict[str, Any]:
    spark = playing.session("bench overhead")
    rows = Rows()
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, jobs.light, rows, say, seconds=BATCH_SECONDS)
        supply = stock(place, rows, int(able * BATCH_SECONDS))
        names = ("plain", "plain again", "shed")
        queries = {name: Standing(spark, place, jobs.light, attached=name == "shed") for name in names}
        took: dict[str, list[float]] = {name: [] for name in names}
        for pair in range(-WARM_UP, pairs):
            for name in names if pair % 2 else reversed(names):
                took[name].append(queries[name].take(supply, BATCHES))
            say(f"pair {pair + 1} of {pairs}: {took['shed'][-1] / took['plain'][-1]:.3f}")
        for query in queries.values():
            query.stop()
    counted = {name: times[WARM_UP:] for name, times in took.items()}
    ratios = _ratios(counted["shed"], counted["plain"])
    return {
        "bench": "overhead",
        "ratio": round(statistics.median(ratios), 4),
        "pairs": pairs,
        "ratio_low": round(sorted(ratios)[pairs // 4], 4),
        "ratio_high": round(sorted(ratios)[-1 - pairs // 4], 4),
        "ratio_of_totals": round(sum(counted["shed"]) / sum(counted["plain"]), 4),
        "noise": round(statistics.median(_ratios(counted["plain again"], counted["plain"])), 4),
        "batch_s": round(statistics.median(counted["plain"]) / BATCHES, 3),
        "rows_per_batch": int(able * BATCH_SECONDS),
    }


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [a / b for a, b in zip(ours, theirs, strict=True)]
