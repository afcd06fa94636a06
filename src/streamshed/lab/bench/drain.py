"""`bench drain`: what a dropped row still costs, against a kept one.

One query of the light job gets the same rows in turns with everything kept and with everything
dropped. What is left when all is dropped, less the fixed cost of a batch (measured with batches of next
to nothing), is the cost of reading and dropping: at most 0.10 must come out. So it must for rows that a time
budget cuts, one that is used up before the first row comes (`cut_ratio`).
"""

from __future__ import annotations

import statistics
from typing import Any

import streamshed.lab.bench.play as playing
from streamshed.lab.bench import jobs
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.overhead import BATCH_SECONDS, BATCHES, WARM_UP
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.standing import StandingJob, stock


def run(say: Say, pairs: int = 9) -> dict[str, Any]:
    spark = playing.session("bench drain")
    rows = JsonRows()
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, jobs.light, rows, say, seconds=BATCH_SECONDS)
        full = stock(place, rows, int(able * BATCH_SECONDS))
        empty = stock(place, rows, 10)
        query = StandingJob(spark, place, jobs.light)
        kept: list[float] = []
        dropped: list[float] = []
        fixed: list[float] = []
        cut: list[float] = []
        for pair in range(-WARM_UP, pairs):
            query.keep(1.0)
            whole, nothing = query.take(full, BATCHES), query.take(empty, BATCHES)
            query.keep(0.0)
            none = query.take(full, BATCHES)
            query.keep(1.0, budget=0.001)
            late = query.take(full, BATCHES)
            if pair >= 0:
                kept.append(whole)
                dropped.append(none)
                cut.append(late)
                fixed.append(nothing)
                told = f"kept {whole:.2f} s, dropped {none:.2f} s, cut {late:.2f} s, no rows {nothing:.2f} s"
                say(f"pair {pair + 1} of {pairs}: {told}")
        query.stop()
    ratios = [(d - f) / (k - f) for k, d, f in zip(kept, dropped, fixed, strict=True)]
    cuts = [(c - f) / (k - f) for k, c, f in zip(kept, cut, fixed, strict=True)]
    return {
        "bench": "drain",
        "ratio": round(max(0.0, statistics.median(ratios)), 4),
        "cut_ratio": round(max(0.0, statistics.median(cuts)), 4),
        "pairs": pairs,
        "ratio_with_fixed_cost": round(statistics.median(d / k for k, d in zip(kept, dropped, strict=True)), 4),
        "fixed_s_per_batch": round(statistics.median(fixed) / BATCHES, 3),
        "rows_per_batch": int(able * BATCH_SECONDS),
    }
