"""`bench sharing`: outputs behind one shared parse, as one network and as queries written by hand.

The same backlog is drained by the network, by one hand-written query for each output, all at the same time, by one
hand-written `foreachBatch` that persists what is shared, and by one query for one output alone; in turn, in one
session. Times are from start to end.
"""

from __future__ import annotations

import statistics
from typing import Any

import streamshed.lab.bench.play as playing
from streamshed.lab.bench import networks
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.standing import backlog

OUTPUTS = 20
ROWS = 60_000
BATCHES = 3


def run(say: Say, rounds: int = 3) -> dict[str, Any]:
    spark = playing.session("bench sharing")
    network = networks.fan_out(OUTPUTS)
    times: dict[str, list[float]] = {"network": [], "queries": [], "by batch": [], "one query": []}
    with playing.Workplace() as place:
        source = backlog(place, JsonRows(), ROWS, BATCHES)
        for turn in range(-1, rounds):  # the first round warms up
            took = {
                "network": networks.compiled(spark, place, source, network).wall,
                "queries": networks.separate(spark, place, source, OUTPUTS).wall,
                "by batch": networks.by_batch(spark, place, source, OUTPUTS).wall,
                "one query": networks.separate(spark, place, source, 1).wall,
            }
            if turn >= 0:
                for name, seconds in took.items():
                    times[name].append(seconds)
                say(f"round {turn + 1} of {rounds}: {took['network'] / took['queries']:.3f}")

    def ratio(other: str) -> float:
        pairs = zip(times["network"], times[other], strict=True)
        return round(statistics.median(a / b for a, b in pairs), 4)

    return {
        "bench": "sharing",
        "outputs": OUTPUTS,
        "ratio_to_queries": ratio("queries"),
        "ratio_to_foreach_batch": ratio("by batch"),
        "ratio_to_one_query_for_one_output": ratio("one query"),
        "rounds": rounds,
        "seconds": {name: round(statistics.median(each), 2) for name, each in times.items()},
        "rows_per_batch": ROWS,
        "batches": BATCHES,
    }
