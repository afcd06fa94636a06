"""`bench realtime`: a bound of 200 ms in real-time mode, at 2, 4 and 8 times what the job can do.

From Kafka to Kafka with real work for every row; plain real-time mode and the age ladder take turns in the same
run, on the same arrivals. Both are warm, and half of the plain job's time comes before the ladder's and half of it
after: a machine whose speed drifts would else be taken for one of the two. How far these two halves are apart says
what a ratio is worth. Half the capacity: what the ladder costs, and that it sheds nothing then. A burst of ten
times the capacity for two seconds: when shedding ends. Cold: four times the capacity from the first second on, on
a fresh Spark with executors of its own; and, when those are warm, how long it takes until a tighter bound is in
force there. `--part` runs one of these alone; each run begins with the capacity.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.errors import InvalidArgument
from streamshed.lab.bench.kafka import Broker, Kafka
from streamshed.lab.bench.kafka_play import Play, Shed, capacity, play, session
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.realtime_picture import draw_burst
from streamshed.spark.real_time.ladder_shedder import LadderShedder

FACTORS = ("2", "4", "8")
"""Times the capacity."""
PARTS = ("idle", *FACTORS, "burst", "cold", "picture")
LEAD_IN = 5.0  # seconds of a load that fits
SETTLED = 1.0  # seconds of the load that is measured, before goodput counts
WARM = 15.0  # seconds
IDLE = 0.5  # of the capacity
BURST, BURST_BEGINS, BURST_ENDS, BURST_PLAY = 10.0, 10.0, 12.0, 25.0  # times the capacity; seconds
COLD, COLD_SECONDS = 4.0, 20.0
TIGHT_BOUND, TIGHT_SECONDS = (
    0.05,
    4.0,
)  # seconds: the bound that comes in force after a cold start, and for how long
_SPAN = 0.1  # seconds whose rows are looked at together


@dataclass(frozen=True)
class _Stage:
    """Where jobs are played, and what the plain one can do there."""

    spark: SparkSession
    broker: Kafka
    able: float
    """Rows per second."""
    bound: float
    seconds: float
    say: Say

    def shed(self, events: DataFrame) -> DataFrame:
        return ss.shed(events, self.bound, trigger="real-time")

    def warm(self) -> None:
        """Have the JVM compile the ladder's job as well; the capacity was found with the plain one."""
        self.say("the same with an age ladder, to be as warm")
        play(self.spark, self.broker, lambda _: 2.0 * self.able, WARM, self.shed, stays=0.0)

    def both(self, factor: float, rate: Callable[[float], float], stays: float) -> Turns:
        """The plain job and the one with a ladder, for as long."""

        def one(name: str, seconds: float, shed: Shed | None) -> Play:
            self.say(f"{factor:g} times the capacity for {LEAD_IN + seconds:.0f} s: {name}")
            return play(self.spark, self.broker, rate, LEAD_IN + seconds, shed, stays=stays)

        before = one("plain", self.seconds / 2, None)
        ours = one("with an age ladder", self.seconds, self.shed)
        return Turns(before, ours, one("plain", self.seconds / 2, None), self.seconds)


@dataclass(frozen=True)
class Turns:
    """The plain job, the one with a ladder, and the plain one again."""

    before: Play
    ours: Play
    after: Play
    seconds: float
    """Of the ladder's turn; those of the plain job are half as long."""

    def rows_ratio(self) -> float:
        """Rows that came out in a second with a ladder, over those of the plain job."""
        plain = [_rows_per_second(each, self.seconds / 2) for each in (self.before, self.after)]
        return round(_rows_per_second(self.ours, self.seconds) / max(1.0, sum(plain) / 2), 3)

    def plain_ratio(self) -> float:
        """The same of the plain job's second turn over its first: how far two equal turns are apart."""
        first, second = (_rows_per_second(each, self.seconds / 2) for each in (self.before, self.after))
        return round(second / max(1.0, first), 3)

    def plain_p99(self) -> float:
        """Of the worse of its turns."""
        return max(each.latency(99, LEAD_IN) for each in (self.before, self.after))


def _rows_per_second(played: Play, seconds: float) -> float:
    since, until = LEAD_IN + SETTLED, LEAD_IN + seconds
    return played.delivered(since, until) / (until - since)


def run(
    say: Say,
    bound: float = 0.2,
    seconds: float = 60.0,
    parts: Sequence[str] = (),
    out: Path | None = None,
) -> dict[str, Any]:
    """With `out`: also a picture of both modes under the same burst. No `parts`: all."""
    if out is None and "picture" in parts:
        raise InvalidArgument("a picture needs a folder", got="--part picture", hint="add --out FOLDER")
    wanted = parts or PARTS
    spark = session("bench realtime")
    told: dict[str, Any] = {"bench": "realtime", "bound_ms": round(bound * 1000)}
    with Broker() as broker:
        stage = _Stage(spark, broker, capacity(spark, broker, say), bound, seconds, say)
        if {"idle", *FACTORS} & {*wanted}:
            stage.warm()
        if factors := [factor for factor in FACTORS if factor in wanted]:
            told |= _overload(stage, factors)
        if "idle" in wanted:
            told |= _idle(stage)
        if "burst" in wanted:
            told |= _burst(stage)
        if out is not None and "picture" in wanted:
            draw_burst(spark, broker, stage.able, bound, out, say)
        if "cold" in wanted:
            told |= _cold(stage)
    return told | {"able_rows_per_s": round(stage.able), "seconds": seconds}


def after_lead_in(able: float, factor: float, second: float) -> float:
    return (factor if second >= LEAD_IN else 0.4) * able


def _overload(stage: _Stage, factors: Sequence[str]) -> dict[str, Any]:
    turns: dict[str, Turns] = {}
    for factor in factors:
        turns[factor] = stage.both(float(factor), partial(after_lead_in, stage.able, float(factor)), 0.0)
    ours = {factor: each.ours for factor, each in turns.items()}
    return {
        "p99_ms": {factor: round(play.latency(99, LEAD_IN), 1) for factor, play in ours.items()},
        "worst_ms": {factor: round(play.latency(100, LEAD_IN), 1) for factor, play in ours.items()},
        "plain_p99_ms": {factor: round(each.plain_p99(), 1) for factor, each in turns.items()},
        "goodput_ratio": {factor: each.rows_ratio() for factor, each in turns.items()},
        "plain_again_ratio": {factor: each.plain_ratio() for factor, each in turns.items()},
        "p50_ms": {factor: round(play.latency(50, LEAD_IN), 1) for factor, play in ours.items()},
    }


def _idle(stage: _Stage) -> dict[str, Any]:
    turns = stage.both(IDLE, lambda _: IDLE * stage.able, 3.0)
    plain = np.mean([each.latency(99, LEAD_IN) for each in (turns.before, turns.after)])
    return {
        "idle_p99_ratio": round(turns.ours.latency(99, LEAD_IN) / float(plain), 3),
        "shed_when_idle": len(turns.ours.missing(LEAD_IN)),
        "idle_p99_ms": round(turns.ours.latency(99, LEAD_IN), 1),
        "idle_rows_ratio": turns.rows_ratio(),
    }


def _burst(stage: _Stage) -> dict[str, Any]:
    stage.say(f"{BURST:g} times the capacity for {BURST_ENDS - BURST_BEGINS:g} s")

    def rate(second: float) -> float:
        return (BURST if BURST_BEGINS <= second < BURST_ENDS else IDLE) * stage.able

    ours = play(stage.spark, stage.broker, rate, BURST_PLAY, stage.shed)
    missing = ours.missing()
    return {
        "burst_shed": len(missing),
        "burst_over_s": round(float(missing.max()) - BURST_ENDS, 2) if len(missing) else None,
        "burst_worst_ms": round(ours.latency(100), 1),
    }


def _cold(stage: _Stage) -> dict[str, Any]:
    told = {kind: _fresh_spark(stage, kind) for kind in ("plain", "shed")}
    rows = {kind: told[kind]["delivered"] for kind in told}
    return {
        "cold_ratio": round(rows["shed"] / max(1, rows["plain"]), 3),
        "cold_rows": rows,
        "control_s": told["shed"]["control_s"],
    }


def _fresh_spark(stage: _Stage, kind: str) -> dict[str, Any]:
    stage.say(f"{COLD:g} times the capacity from the first second on, on a fresh Spark: {kind}")
    arguments = [stage.broker.address, kind, str(COLD * stage.able), str(stage.bound)]
    command = [sys.executable, "-m", "streamshed.lab.bench.realtime", *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise RuntimeError(told.stderr[-2000:])
    return dict(json.loads(told.stdout.splitlines()[-1]))


def _play_cold(address: str, kind: str, rate: float, bound: float) -> dict[str, Any]:
    """Rows that come out in the first seconds, and after which time a tighter bound is in force then."""
    spark = session("bench realtime cold", "local-cluster[2,1,1024]", **{"spark.driver.memory": "512m"})
    handles: list[LadderShedder] = []

    def shed(events: DataFrame) -> DataFrame:
        kept = ss.shed(events, bound, trigger="real-time")
        handle = ss.handle(kept)
        assert isinstance(handle, LadderShedder)
        handles.append(handle)
        return kept

    def tightened(second: float) -> float:
        for handle in handles:
            if second >= COLD_SECONDS and handle.latency != TIGHT_BOUND:
                handle.latency = TIGHT_BOUND
        return rate

    length = COLD_SECONDS + TIGHT_SECONDS
    played = play(spark, Kafka(address), tightened, length, None if kind == "plain" else shed, stays=0.0)
    return {
        "delivered": played.delivered(0.0, COLD_SECONDS),
        "control_s": in_force_after(played, COLD_SECONDS, TIGHT_BOUND) if handles else None,
    }


def in_force_after(played: Play, changed: float, bound: float) -> float | None:
    """Seconds from a change until most rows come out within a bound; None: they never do."""
    out = played.sent[played.came] + played.latencies / 1000.0
    for begin in np.arange(changed, played.sent.max(), _SPAN):
        ages = played.latencies[(out >= begin) & (out < begin + _SPAN)]
        if len(ages) and np.median(ages) <= bound * 1000.0:
            return round(float(begin + _SPAN - changed), 2)
    return None


if __name__ == "__main__":
    address, kind, rate, bound = sys.argv[1:]
    print(json.dumps(_play_cold(address, kind, float(rate), float(bound))))
