"""`bench ladder`: three classes on one age ladder, at twice what the job can do, in real-time mode.

Gold is a fifth of the rows, silver three tenths, bronze the rest; a row of gold is worth 1, of silver 0.6, of
bronze 0.2. The same arrivals go through a ladder of classes, through one on which all rows stand at random, and
through one limit for all. The utility of a run is what came through in time, by worth, over what was sent. The
optimum for the capacity takes the dearest rows first, as many as the plain job can do.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

import streamshed as ss
from streamshed.lab.bench.kafka import Broker
from streamshed.lab.bench.kafka_play import Play, capacity, play, session
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.realtime import LEAD_IN, after_lead_in

FACTOR = 2.0
SHARES, WORTHS = (0.2, 0.3, 0.5), (1.0, 0.6, 0.2)
CLASSES = {"gold": "value like '%\"gold\"%'", "silver": "value like '%\"silver\"%'"}


def run(say: Say, bound: float = 0.2, seconds: float = 60.0) -> dict[str, Any]:
    spark = session("bench ladder")

    def by_class(events: DataFrame) -> DataFrame:
        return ss.shed(events, bound, trigger="real-time", classes=CLASSES)

    def at_random(events: DataFrame) -> DataFrame:
        return ss.shed(events, bound, trigger="real-time")

    with Broker() as broker:
        able = capacity(spark, broker, say)
        rate = partial(after_lead_in, able, FACTOR)
        runs: dict[str, Play] = {}
        for name, shed in (("classes", by_class), ("random", at_random)):
            say(f"{FACTOR:g} times the capacity for {seconds:.0f} s: {name}")
            runs[name] = play(spark, broker, rate, LEAD_IN + seconds, shed, shares=SHARES)
    since, until = LEAD_IN + 1.0, LEAD_IN + seconds
    best = optimum(1.0 / FACTOR)
    utilities = {name: _utility(played, bound, since, until) for name, played in runs.items()}
    return {
        "bench": "ladder",
        "bound_ms": round(bound * 1000),
        "top_lost": round(runs["classes"].lost_share(0, since, until), 5),
        "lost": {
            name: [round(played.lost_share(tier, since, until), 4) for tier in range(len(SHARES))]
            for name, played in runs.items()
        },
        "mean_ms": {name: round(played.mean(since), 1) for name, played in runs.items()},
        "p99_ms": {name: round(played.latency(99, since), 1) for name, played in runs.items()},
        "utility": {name: round(utility, 4) for name, utility in utilities.items()},
        "optimum": round(best, 4),
        "of_optimum": {name: round(utility / best, 4) for name, utility in utilities.items()},
        "able_rows_per_s": round(able),
        "seconds": seconds,
    }


def optimum(fits: float) -> float:
    """The utility of the dearest rows, if this share of all rows fits.

    >>> round(optimum(0.5), 3), optimum(1.0)
    (0.792, 1.0)
    """
    total, left = 0.0, fits
    for share, worth in zip(SHARES, WORTHS, strict=True):
        total += min(share, left) * worth
        left -= min(share, left)
    return total / sum(share * worth for share, worth in zip(SHARES, WORTHS, strict=True))


def _utility(played: Play, bound: float, since: float, until: float) -> float:
    """Worth of what came within the bound, over that of what was sent."""
    worths = np.array(WORTHS)
    chosen = (played.sent >= since) & (played.sent < until)
    sent = worths[played.tiers[chosen]].sum()
    in_time = chosen[played.came] & (played.latencies <= bound * 1000.0)
    return float(worths[played.tiers[played.came[in_time]]].sum() / max(1e-9, sent))
