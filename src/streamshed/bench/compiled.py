"""`bench compiled`: what a network costs with nothing to shed, against the same outputs written by hand.

One output against a plain streaming query; five against a `foreachBatch` that persists what they share, which is
how one writes that by hand. The same backlog, in turn, in one session; each pair gives a ratio of the time of all
batches, and the median is told; also with the start of the queries, which for a network includes checking it.
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
    batches: dict[str, list[float]] = {"one": [], "several": []}
    wall: dict[str, list[float]] = {"one": [], "several": []}
    with playing.Workplace() as place:
        source = backlog(place, Rows(), ROWS, BATCHES)
        for pair in range(-1, pairs):  # the first pair warms up
            for name, outputs in (("one", 1), ("several", SEVERAL)):
                took: dict[bool, networks.Took] = {}
                for by_hand in (False, True) if pair % 2 else (True, False):
                    if not by_hand:
                        took[by_hand] = networks.compiled(spark, place, source, networks.fan_out(outputs))
                    elif outputs == 1:
                        took[by_hand] = networks.separate(spark, place, source, 1)
                    else:
                        took[by_hand] = networks.by_batch(spark, place, source, outputs)
                if pair >= 0:
                    batches[name].append(took[False].batches / took[True].batches)
                    wall[name].append(took[False].wall / took[True].wall)
            if pair >= 0:
                say(f"pair {pair + 1} of {pairs}: {batches['one'][-1]:.3f}, {batches['several'][-1]:.3f}")
    return {
        "bench": "compiled",
        "ratio_one_output": round(statistics.median(batches["one"]), 4),
        f"ratio_{SEVERAL}_outputs": round(statistics.median(batches["several"]), 4),
        "one_low_high": [round(x, 3) for x in (min(batches["one"]), max(batches["one"]))],
        "several_low_high": [round(x, 3) for x in (min(batches["several"]), max(batches["several"]))],
        "with_start_one_output": round(statistics.median(wall["one"]), 4),
        f"with_start_{SEVERAL}_outputs": round(statistics.median(wall["several"]), 4),
        "pairs": pairs,
        "rows_per_batch": ROWS,
        "batches": BATCHES,
    }
