"""`bench drain`: what a dropped row still costs, against a kept one.

The light job drains the same backlog with everything kept and with everything dropped, in turn. What
is left when all is dropped, less the fixed cost of a batch (measured with batches of next to nothing),
is the cost of reading and dropping.
"""

from __future__ import annotations

import statistics
from typing import Any

import streamshed.bench.play as playing
from streamshed.bench import jobs
from streamshed.bench.draining import backlog, drain
from streamshed.bench.feeder import Rows
from streamshed.bench.overhead import BATCH_SECONDS, BATCHES
from streamshed.bench.play import Say


def run(say: Say, pairs: int = 7) -> dict[str, Any]:
    spark = playing.session("bench drain")
    rows = Rows()
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, jobs.light, rows, say, seconds=BATCH_SECONDS)
        full = backlog(place, rows, int(able * BATCH_SECONDS), BATCHES)
        empty = backlog(place, rows, 10, BATCHES)
        kept: list[float] = []
        dropped: list[float] = []
        fixed: list[float] = []
        for pair in range(-1, pairs):  # the first one warms up
            times = (
                drain(spark, place, jobs.light, full, keep=1.0),
                drain(spark, place, jobs.light, full, keep=0.0),
                drain(spark, place, jobs.light, empty, keep=1.0),
            )
            if pair >= 0:
                for seen, took in zip((kept, dropped, fixed), times, strict=True):
                    seen.append(took)
                whole, none, empty_ = times
                say(
                    f"pair {pair + 1} of {pairs}: kept {whole:.2f} s, dropped {none:.2f} s, no rows {empty_:.2f} s"
                )
    ratios = [(d - f) / (k - f) for k, d, f in zip(kept, dropped, fixed, strict=True)]
    return {
        "bench": "drain",
        "ratio": round(max(0.0, statistics.median(ratios)), 4),
        "pairs": pairs,
        "ratio_with_fixed_cost": round(statistics.median(d / k for k, d in zip(kept, dropped, strict=True)), 4),
        "fixed_s_per_batch": round(statistics.median(fixed) / BATCHES, 3),
        "rows_per_batch": int(able * BATCH_SECONDS),
    }
