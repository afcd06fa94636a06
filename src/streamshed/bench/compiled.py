"""`bench compiled`: what a network costs with nothing to shed, against the same outputs written by hand.

One output against a plain streaming query; five against a `foreachBatch` that persists what they share, which is
how one writes that by hand. The same backlog, in turn, in one session; each pair gives a ratio, and the median of
them is told.
"""

from __future__ import annotations

import statistics
from typing import Any

import streamshed.bench.play as playing
from streamshed.bench import networks
from streamshed.bench.feeder import Rows
from streamshed.bench.play import Say
from streamshed.bench.standing import backlog

ROWS = 150_000
BATCHES = 4
SEVERAL = 5


def run(say: Say, pairs: int = 7) -> dict[str, Any]:
    spark = playing.session("bench compiled")
    found: dict[str, list[float]] = {"one": [], "several": []}
    with playing.Workplace() as place:
        source = backlog(place, Rows(), ROWS, BATCHES)
        for pair in range(-1, pairs):  # the first pair warms up
            for name, outputs in (("one", 1), ("several", SEVERAL)):
                took: dict[bool, float] = {}
                for by_hand in (False, True) if pair % 2 else (True, False):
                    if not by_hand:
                        took[by_hand] = networks.compiled(spark, place, source, networks.fan_out(outputs))
                    elif outputs == 1:
                        took[by_hand] = networks.separate(spark, place, source, 1)
                    else:
                        took[by_hand] = networks.by_batch(spark, place, source, outputs)
                if pair >= 0:
                    found[name].append(took[False] / took[True])
            if pair >= 0:
                say(f"pair {pair + 1} of {pairs}: {found['one'][-1]:.3f}, {found['several'][-1]:.3f}")
    return {
        "bench": "compiled",
        "ratio_one_output": round(statistics.median(found["one"]), 4),
        f"ratio_{SEVERAL}_outputs": round(statistics.median(found["several"]), 4),
        "one_low_high": [round(x, 3) for x in (min(found["one"]), max(found["one"]))],
        "several_low_high": [round(x, 3) for x in (min(found["several"]), max(found["several"]))],
        "pairs": pairs,
        "rows_per_batch": ROWS,
        "batches": BATCHES,
    }
