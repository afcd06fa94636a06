"""`bench overhead`: what `shed` costs a job that has nothing to shed.

The same backlog of files goes through the light job (parse JSON, filter, windowed aggregate) with and
without `shed`, in turn, in one session; each pair gives a ratio of times, and their median is told.
"""

from __future__ import annotations

import statistics
from typing import Any

import streamshed.bench.play as playing
from streamshed.bench import jobs
from streamshed.bench.draining import backlog, drain
from streamshed.bench.feeder import Rows
from streamshed.bench.play import Say

BATCH_SECONDS = 2.0  # half of a bound of 4 seconds: the size of batch that a job near its bound has
BATCHES = 5


def run(say: Say, pairs: int = 9) -> dict[str, Any]:
    spark = playing.session("bench overhead")
    rows = Rows()
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, jobs.light, rows, say, seconds=BATCH_SECONDS)
        source = backlog(place, rows, int(able * BATCH_SECONDS), BATCHES)
        plain: list[float] = []
        with_shed: list[float] = []
        for pair in range(-1, pairs):  # the first pair warms up
            took = {}
            for attached in (False, True) if pair % 2 else (True, False):
                took[attached] = drain(spark, place, jobs.light, source, attached=attached)
            if pair >= 0:
                plain.append(took[False])
                with_shed.append(took[True])
                say(f"pair {pair + 1} of {pairs}: {took[True] / took[False]:.3f}")
    ratios = [b / a for a, b in zip(plain, with_shed, strict=True)]
    return {
        "bench": "overhead",
        "ratio": round(statistics.median(ratios), 4),
        "pairs": pairs,
        "ratio_low": round(sorted(ratios)[pairs // 4], 4),
        "ratio_high": round(sorted(ratios)[-1 - pairs // 4], 4),
        "ratio_of_totals": round(sum(with_shed) / sum(plain), 4),
        "batch_s": round(statistics.median(plain) / BATCHES, 3),
        "rows_per_batch": int(able * BATCH_SECONDS),
    }
