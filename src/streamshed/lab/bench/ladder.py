"""`bench ladder`: three classes on one age ladder, at twice what the job can do, in real-time mode.

Gold is a fifth of the rows, silver three tenths, bronze the rest; a row of gold is worth 1, of silver 0.6, of
bronze 0.2. The same arrivals go through a ladder of classes, through one on which all rows stand at random, and
through a network with an output for each class, on the ladder of its road map: its loss graphs say what the rows
are worth, and it has to find the classes by itself. The utility of a run is what came through in time, by worth,
over what was sent. The optimum for the capacity takes the dearest rows first, as many as the plain job does of the
same arrivals beside it.

The four jobs take turns, in rounds, since the machine may change its speed. Shares and ages are of all rounds, and
what a ladder has of the optimum is the median of them.

What must come out: under one row of a hundred of the top class lost, and a mean latency of at most half the bound.
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.lab.bench.kafka import Broker
from streamshed.lab.bench.kafka_play import TIERS, Play, capacity, play, session
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.realtime import LEAD_IN, SETTLED, after_lead_in
from streamshed.network import Builder, Network
from streamshed.policies.road_map.random import RandomRoadMap
from streamshed.records import Mode
from streamshed.spark.network.run_real_time import network_by_age
from streamshed.spark.orders.store import Store

FACTOR = 2.0
ROUNDS = 3
SHARES, WORTHS = (0.2, 0.3, 0.5), (1.0, 0.6, 0.2)
CLASSES = {"gold": "value like '%\"gold\"%'", "silver": "value like '%\"silver\"%'"}


def run(say: Say, bound: float = 0.2, seconds: float = 30.0) -> dict[str, Any]:
    """Each job plays for `seconds`, in all rounds together."""
    spark = session("bench ladder")

    def by_class(events: DataFrame) -> DataFrame:
        return ss.shed(events, bound, trigger="real-time", classes=CLASSES)

    def at_random(events: DataFrame) -> DataFrame:
        return ss.shed(events, bound, trigger="real-time")

    def by_road_map(events: DataFrame) -> DataFrame:
        return _through_network(events, bound)

    jobs = {"plain": None, "classes": by_class, "random": at_random, "road-map": by_road_map}
    spell = max(SETTLED + 1.0, seconds / ROUNDS)
    rounds: list[dict[str, Play]] = []
    with Broker() as broker:
        able = capacity(spark, broker, say)
        rate = partial(after_lead_in, able, FACTOR)
        for number in range(ROUNDS):
            names = list(jobs) if number % 2 == 0 else list(reversed(jobs))
            played = {}
            for name in names:
                say(f"{FACTOR:g} times the capacity for {spell:.0f} s, round {number + 1} of {ROUNDS}: {name}")
                played[name] = play(spark, broker, rate, LEAD_IN + spell, jobs[name], shares=SHARES)
            rounds.append(played)
    since, until = LEAD_IN + SETTLED, LEAD_IN + spell
    ladders = [name for name in jobs if name != "plain"]
    fits = [share_done(played["plain"], since, until) for played in rounds]
    utilities = {name: [_utility(played[name], bound, since, until) for played in rounds] for name in ladders}
    of_optimum = {
        name: [utility / optimum(fit) for utility, fit in zip(found, fits, strict=True)]
        for name, found in utilities.items()
    }

    def lost(name: str, tier: int) -> float:
        return statistics.fmean(played[name].lost_share(tier, since, until) for played in rounds)

    def latencies(name: str) -> NDArray[np.float64]:
        return np.concatenate([played[name].after(since) for played in rounds])

    return {
        "bench": "ladder",
        "bound_ms": round(bound * 1000),
        "top_lost": round(lost("classes", 0), 5),
        "lost": {name: [round(lost(name, tier), 4) for tier in range(len(SHARES))] for name in ladders},
        "mean_ms": {name: round(float(latencies(name).mean()), 1) for name in ladders},
        "p99_ms": {name: round(float(np.percentile(latencies(name), 99)), 1) for name in ladders},
        "utility": {name: round(statistics.median(found), 4) for name, found in utilities.items()},
        "fits": [round(fit, 4) for fit in fits],
        "of_optimum": {name: round(statistics.median(found), 4) for name, found in of_optimum.items()},
        "of_optimum_by_round": {name: [round(share, 4) for share in found] for name, found in of_optimum.items()},
        "able_rows_per_s": round(able),
        "seconds": seconds,
    }


def share_done(played: Play, since: float, until: float) -> float:
    """Rows that came out in a span of time, over those that were sent in it."""
    return played.delivered(since, until) / max(1, played.arrived(since, until))


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
