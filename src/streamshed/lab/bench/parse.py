"""`bench parse`: a drop before the parse against the same drop after it, keeping a tenth.

The one is a drop at random, which needs no parsed column and is made on the raw rows; the other is told to take
its rows from a range of a parsed column, which holds all of them. The same backlog, in turn, in one session.
"""

from __future__ import annotations

import statistics
from typing import Any

import streamshed.lab.bench.play as playing
from streamshed.lab.bench import networks
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.standing import backlog
from streamshed.network import Builder, Network
from streamshed.records import Drop

ROWS = 300_000
BATCHES = 4
KEEP = 0.1


def network() -> Network:
    return (
        Builder("parse")
        .source("lines", "id LONG, user LONG, v DOUBLE, work INT", parse="json", values={"v": (0, 100)})
        .filter("some", "lines", "v > 10", selectivity=0.9)
        .output("out", "some", value=("v", [[0, 100, 1.0]]))
        .build()
    )


def run(say: Say, pairs: int = 5) -> dict[str, Any]:
    spark = playing.session("bench parse")
    drops = {"before": Drop("lines->some", KEEP), "after": Drop("lines->some", KEEP, "v < 1000")}
    ratios: list[float] = []
    times: dict[str, list[float]] = {"before": [], "after": [], "nothing dropped": []}
    with playing.Workplace() as place:
        source = backlog(place, JsonRows(), ROWS, BATCHES)
        for pair in range(-1, pairs):  # the first pair warms up
            took = {
                name: networks.compiled(spark, place, source, network(), [drop]).batches
                for name, drop in drops.items()
            }
            took["nothing dropped"] = networks.compiled(spark, place, source, network()).batches
            if pair >= 0:
                ratios.append(took["before"] / took["after"])
                for name, seconds in took.items():
                    times[name].append(seconds)
                say(f"pair {pair + 1} of {pairs}: {ratios[-1]:.3f}")
    return {
        "bench": "parse",
        "ratio": round(statistics.median(ratios), 4),
        "keep": KEEP,
        "pairs": pairs,
        "low_high": [round(min(ratios), 3), round(max(ratios), 3)],
        "seconds": {name: round(statistics.median(each), 2) for name, each in times.items()},
        "rows_per_batch": ROWS,
        "batches": BATCHES,
    }
