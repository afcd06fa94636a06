"""`bench compiled`: what a network costs with nothing to shed, against the same outputs written by hand.

One output against a plain streaming query; five against a `foreachBatch` that persists what they share, which is
how one writes that by hand. All four stand in one session and take the same batches in turns; each turn gives a
ratio of the batches' time, and the median is told.
"""

from __future__ import annotations

import statistics
from typing import Any

import streamshed.lab.bench.play as playing
from streamshed.lab.bench import networks
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.standing import Standing, in_turns, ratios, stock

ROWS = 300_000
BATCHES = 3  # in a turn
WARM_UP = 3  # turns of each that are not counted: the JVM compiles
SEVERAL = 5


def run(say: Say, pairs: int = 11) -> dict[str, Any]:
    spark = playing.session("bench compiled")
    with playing.Workplace() as place:
        supply = stock(place, JsonRows(), ROWS)
        network, network_of_several = networks.fan_out(1), networks.fan_out(SEVERAL)
        queries = {
            "network 1": Standing(place, lambda source: networks.standing(spark, place, source, network)),
            "hand 1": Standing(place, lambda source: networks.plain(spark, place, source, 0)),
            f"network {SEVERAL}": Standing(
                place, lambda source: networks.standing(spark, place, source, network_of_several)
            ),
            f"hand {SEVERAL}": Standing(place, lambda source: networks.shared(spark, place, source, SEVERAL)),
        }
        took = in_turns(queries, supply, BATCHES, pairs, WARM_UP, say)
    one = ratios(took["network 1"], took["hand 1"])
    several = ratios(took[f"network {SEVERAL}"], took[f"hand {SEVERAL}"])
    return {
        "bench": "compiled",
        "ratio_one_output": round(statistics.median(one), 4),
        f"ratio_{SEVERAL}_outputs": round(statistics.median(several), 4),
        "one_quartiles": _quartiles(one),
        "several_quartiles": _quartiles(several),
        "pairs": pairs,
        "rows_per_batch": ROWS,
        "batch_s": {name: round(statistics.median(times) / BATCHES, 3) for name, times in took.items()},
    }


def _quartiles(found: list[float]) -> list[float]:
    low, _, high = statistics.quantiles(found, n=4)
    return [round(low, 3), round(high, 3)]
