"""`bench realtime`: a bound of 200 ms in real-time mode, at 2, 4 and 8 times what the job can do.

From Kafka to Kafka with real work for every row; plain real-time mode and the age ladder take turns in the same
run, on the same arrivals, and both are warm. Each load has a turn of a minute of either job, for its latencies,
and then short turns in pairs, for the rows that come out in a second. Machines have been seen to have two speeds,
7 to 10 % apart for all threads of all processes, and to stay at one for half a minute or a few: two long turns
often meet different ones. Each pair gives a ratio, and the median of them is told; beside it, how far equal turns
of the plain job are apart. Before each load the plain job has a short turn with more than it can do, and loads are
multiples of what it did then.

Half the capacity: what the ladder costs, and that it sheds nothing then. A burst of ten
times the capacity for two seconds: when shedding ends. Cold: four times the capacity from the first second on, on
a fresh Spark with executors of its own, three pairs of turns; and, when those are warm, how long it takes until a
tighter bound is in force there. `--part` runs one of these alone; each run begins with the capacity.

What must come out: p99 of at most 210 ms and none later than 400 at 2, 4 and 8 times, and at least as many rows a
second as the plain job; at half of it nothing shed, and p99 and rows within noise of the plain job's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.errors import InvalidArgument
from streamshed.lab.bench.kafka import Broker, Kafka
from streamshed.lab.bench.kafka_play import Play, capacity, play, session, spell
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.realtime_picture import draw_burst
from streamshed.spark.real_time.ladder_shedder import LadderShedder

FACTORS = ("2", "4", "8")
"""Times the capacity."""
PARTS = ("idle", *FACTORS, "burst", "cold", "picture")
LEAD_IN, CALM = 5.0, 0.4  # seconds of a load that fits, and which: of the capacity
PAIRS, SHORT_LEAD_IN, SHORT = 6, 2.0, 10.0  # short turns: how many pairs, and seconds
SETTLED = 1.0  # seconds of the load that is measured, before goodput counts
WARM = 15.0  # seconds
IDLE = 0.5  # of the capacity
BURST, BURST_BEGINS, BURST_ENDS, BURST_PLAY = 10.0, 10.0, 12.0, 25.0  # times the capacity; seconds
COLD, COLD_SECONDS, COLD_PAIRS = 4.0, 20.0, 3
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

    def now(self) -> _Stage:
        """The same with what the plain job can do at this moment."""
        self.say("what the plain job can do now")
        return replace(self, able=spell(self.spark, self.broker, self.able))

    def turns(self, factor: float, stays: float, *, steady: bool = False) -> Turns:
        """A long turn of either job, and then short ones in pairs, each of which begins with the other job.

        `steady`: at this load from the first second on. Else a load that fits comes first.
        """

        def one(ladder: bool, lead_in: float, seconds: float) -> Turn:
            self.say(
                f"{factor:g} times the capacity for {seconds:.0f} s: {'with an age ladder' if ladder else 'plain'}"
            )
            calm = factor if steady else CALM
            rate = partial(after_lead_in, self.able, factor, lead_in=lead_in, calm=calm)
            shed = self.shed if ladder else None
            played = play(self.spark, self.broker, rate, lead_in + seconds, shed, stays=stays)
            return Turn(played, lead_in, seconds)

        long = {ladder: one(ladder, LEAD_IN, self.seconds) for ladder in (False, True)}
        pairs = []
        for number in range(PAIRS):
            order = (False, True) if number % 2 == 0 else (True, False)
            short = {ladder: one(ladder, SHORT_LEAD_IN, SHORT) for ladder in order}
            pairs.append((short[False], short[True]))
        return Turns(self.able, long[False], long[True], pairs)


@dataclass(frozen=True)
class Turn:
    """What one job did with a load that came behind a lead-in."""

    played: Play
    lead_in: float
    seconds: float

    def rows_per_second(self) -> float:
        since, until = self.lead_in + SETTLED, self.lead_in + self.seconds
        return self.played.delivered(since, until) / (until - since)

    def latency(self, percent: float) -> float:
        return self.played.latency(percent, self.lead_in)


@dataclass(frozen=True)
class Turns:
    """The plain job and the one with a ladder under the same load: long turns, and pairs of short ones."""

    able: float
    """Rows per second that the plain job did just before."""
    plain: Turn
    ours: Turn
    pairs: list[tuple[Turn, Turn]]

    def ratios(self, of: Callable[[Turn], float]) -> list[float]:
        """Of each pair: a number of the turn with a ladder over that of the plain one."""
        return [of(ours) / max(1e-9, of(plain)) for plain, ours in self.pairs]

    def rows_ratio(self) -> float:
        """Rows that came out in a second with a ladder, over those of the plain job: the median of the pairs."""
        return round(statistics.median(self.ratios(Turn.rows_per_second)), 3)

    def plain_apart(self) -> float:
        """Rows a second of the plain job's best short turn over those of its worst."""
        rates = [plain.rows_per_second() for plain, _ in self.pairs]
        return round(max(rates) / max(1e-9, min(rates)), 3)


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
        if "idle" in wanted:
            told |= _idle(stage.now())
        if factors := [factor for factor in FACTORS if factor in wanted]:
            told |= _overload(stage, factors)
        if "burst" in wanted:
            told |= _burst(stage.now())
        if out is not None and "picture" in wanted:
            draw_burst(spark, broker, stage.able, bound, out, say)
        if "cold" in wanted:
            told |= _cold(stage)
    return told | {"able_rows_per_s": round(stage.able), "seconds": seconds}


def after_lead_in(
    able: float, factor: float, second: float, *, lead_in: float = LEAD_IN, calm: float = CALM
) -> float:
    return (factor if second >= lead_in else calm) * able


def _overload(stage: _Stage, factors: Sequence[str]) -> dict[str, Any]:
    turns = {factor: stage.now().turns(float(factor), 0.0) for factor in factors}

    def each(tell: Callable[[Turns], Any]) -> dict[str, Any]:
        return {factor: tell(found) for factor, found in turns.items()}

    return {
        "p99_ms": each(lambda found: round(found.ours.latency(99), 1)),
        "worst_ms": each(lambda found: round(found.ours.latency(100), 1)),
        "plain_p99_ms": each(lambda found: round(found.plain.latency(99), 1)),
        "goodput_ratio": each(Turns.rows_ratio),
        "goodput_ratios": each(lambda found: _rounded(found.ratios(Turn.rows_per_second))),
        "plain_apart": each(Turns.plain_apart),
        "able_then": each(lambda found: round(found.able)),
        "p50_ms": each(lambda found: round(found.ours.latency(50), 1)),
        "short_p99_ms": each(lambda found: _rounded([ours.latency(99) for _, ours in found.pairs], 1)),
    }


def _idle(stage: _Stage) -> dict[str, Any]:
    turns = stage.turns(IDLE, 3.0, steady=True)
    p99 = turns.ratios(lambda turn: turn.latency(99))
    ladders = [turns.ours, *(ours for _, ours in turns.pairs)]
    return {
        "idle_p99_ratio": round(statistics.median(p99), 3),
        "idle_p99_ratios": _rounded(p99),
        "shed_when_idle": sum(len(turn.played.missing(turn.lead_in)) for turn in ladders),
        "idle_p99_ms": round(turns.ours.latency(99), 1),
        "idle_plain_p99_ms": round(turns.plain.latency(99), 1),
        "idle_rows_ratio": turns.rows_ratio(),
        "idle_able_then": round(turns.able),
    }


def _rounded(numbers: Sequence[float], digits: int = 3) -> list[float]:
    return [round(number, digits) for number in numbers]


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
    told: dict[str, list[dict[str, Any]]] = {"plain": [], "shed": []}
    for number in range(COLD_PAIRS):
        for kind in ("plain", "shed") if number % 2 == 0 else ("shed", "plain"):
            told[kind].append(_fresh_spark(stage, kind))
    rows = {kind: [turn["delivered"] for turn in turns] for kind, turns in told.items()}
    ratios = [shed / max(1, plain) for plain, shed in zip(rows["plain"], rows["shed"], strict=True)]
    return {
        "cold_ratio": round(statistics.median(ratios), 3),
        "cold_ratios": _rounded(ratios),
        "cold_rows": rows,
        "control_s": [turn["control_s"] for turn in told["shed"]],
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
