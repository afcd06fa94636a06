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
from streamshed.bench.standing import StandingJob, in_turns, ratios, stock

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
        queries = {name: StandingJob(spark, place, jobs.light, attached=name == "shed") for name in names}
        took = in_turns(queries, supply, BATCHES, pairs, WARM_UP, say)
    found = ratios(took["shed"], took["plain"])
    return {
        "bench": "overhead",
        "ratio": round(statistics.median(found), 4),
        "pairs": pairs,
        "ratio_low": round(sorted(found)[pairs // 4], 4),
        "ratio_high": round(sorted(found)[-1 - pairs // 4], 4),
        "ratio_of_totals": round(sum(took["shed"]) / sum(took["plain"]), 4),
        "noise": round(statistics.median(ratios(took["plain again"], took["plain"])), 4),
        "batch_s": round(statistics.median(took["plain"]) / BATCHES, 3),
        "rows_per_batch": int(able * BATCH_SECONDS),
    }
