"""`bench ladder`: three classes on one age ladder, at twice what the job can do, in real-time mode.

Gold is a fifth of the rows, silver three tenths, bronze the rest; a row of gold is worth 1, of silver 0.6, of
bronze 0.2. The same arrivals go through a ladder of classes, through one on which all rows stand at random, and
through a network with an output for each class, on the ladder of its road map: its loss graphs say what the rows
are worth, and it has to find the classes by itself. The utility of a run is what came through in time, by worth,
over what was sent. The optimum for the capacity takes the dearest rows first, as many as the plain job does of the
same arrivals in the same run.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.lab.bench.kafka import Broker
from streamshed.lab.bench.kafka_play import TIERS, Play, capacity, play, session
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.realtime import LEAD_IN, after_lead_in
from streamshed.network import Builder, Network
from streamshed.policies.road_map.random import RandomRoadMap
from streamshed.records import Mode
from streamshed.spark.network.run_real_time import network_by_age
from streamshed.spark.orders.store import Store

FACTOR = 2.0
SHARES, WORTHS = (0.2, 0.3, 0.5), (1.0, 0.6, 0.2)
CLASSES = {"gold": "value like '%\"gold\"%'", "silver": "value like '%\"silver\"%'"}


def run(say: Say, bound: float = 0.2, seconds: float = 30.0) -> dict[str, Any]:
    spark = session("bench ladder")

    def by_class(events: DataFrame) -> DataFrame:
        return ss.shed(events, bound, trigger="real-time", classes=CLASSES)

    def at_random(events: DataFrame) -> DataFrame:
        return ss.shed(events, bound, trigger="real-time")

    def by_road_map(events: DataFrame) -> DataFrame:
        return _through_network(events, bound)

    with Broker() as broker:
        able = capacity(spark, broker, say)
        rate = partial(after_lead_in, able, FACTOR)
        runs: dict[str, Play] = {}
        ladders = {"plain": None, "classes": by_class, "random": at_random, "road-map": by_road_map}
        for name, shed in ladders.items():
            say(f"{FACTOR:g} times the capacity for {seconds:.0f} s: {name}")
            runs[name] = play(spark, broker, rate, LEAD_IN + seconds, shed, shares=SHARES)
    since, until = LEAD_IN + 1.0, LEAD_IN + seconds
    plain = runs.pop("plain")
    fits = plain.delivered(since, until) / max(1, plain.arrived(since, until))
    best = optimum(fits)
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
        "fits": round(fits, 4),
        "optimum": round(best, 4),
        "of_optimum": {name: round(utility / best, 4) for name, utility in utilities.items()},
        "able_rows_per_s": round(able),
        "seconds": seconds,
    }


def network() -> Network:
    """An output for each class of rows, with a loss graph as steep as all of its rows are worth."""
    whole = sum(share * worth for share, worth in zip(SHARES, WORTHS, strict=True))
    builder = Builder("tiers").source(
        "events", "key BINARY, tier INT, value STRING, at TIMESTAMP", arrived="at", rate=4000
    )
    for number, (tier, share, worth) in enumerate(zip(TIERS, SHARES, WORTHS, strict=True)):
        builder.filter(f"is-{tier}", "events", f"tier = {number}", selectivity=share)
        # The work stands behind the outputs here, and is charged to a box in front of each.
        columns = {"key": "key", "value": "value"}
        builder.map(f"work-{tier}", f"is-{tier}", columns, cost=0.0005)
        builder.output(tier, f"work-{tier}", loss=[(100, 1.0), (0, 1.0 - share * worth / whole)])
    return builder.build()


def _through_network(events: DataFrame, bound: float) -> DataFrame:
    """The rows that the outputs of the network get."""
    spark = events.sparkSession
    place = Store(spark, tempfile.mkdtemp(prefix="streamshed-"), temporary=True)
    running = network_by_age(spark, network(), RandomRoadMap(), bound, 0.0, Mode.ENFORCE, place)
    tier = F.expr(f"CASE WHEN {CLASSES['gold']} THEN 0 WHEN {CLASSES['silver']} THEN 1 ELSE 2 END")
    text = F.col("value").cast("string")
    rows = events.select("key", tier.alias("tier"), text.alias("value"), F.col("timestamp").alias("at"))
    (stream,) = running.streams({"events": rows}, {name: name for name in TIERS}).values()
    return stream


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
