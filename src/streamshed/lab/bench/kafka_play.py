"""Plays arrivals to a job from Kafka to Kafka, in real-time mode or not, and measures each row's latency.

A row's latency is the broker's time of what came out less the producer's time of what went in; both clocks are
this machine's. The work of the job is real: a chain of digests for every row that passes.

Its sink waits 5 ms for more rows (`kafka.linger.ms`), whoever sheds. By default it sends every row in a request of
its own: the broker, on the same cores, then took as much of them as the job, and the plain job did anything
between 2,500 and 3,900 rows a second from one run to the next, instead of 6,200.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.errors import StreamshedError
from streamshed.lab.bench import kafka
from streamshed.lab.bench.kafka import Kafka
from streamshed.spark.real_time.ladder_books import RungCounts
from streamshed.spark.real_time.ladder_shedder import LadderShedder
from streamshed.spark.session import local_session

PARTITIONS = 2
DIGESTS = 300
"""Of each row: some 250 microseconds of a core."""
LINGER = 5
"""Milliseconds for which the sink waits for more rows."""
TIERS = ("gold", "silver", "bronze")
_STEP = 0.005  # seconds between two sends
_STARTED_WITHIN = 120.0
_MOST_TURNS = 6
_AFTER_BEST = 2
_SPELL = 10.0  # seconds

Shed = Callable[[DataFrame], DataFrame]
"""Puts a drop into a stream from Kafka."""


def session(name: str, master: str = f"local[{PARTITIONS}]", **settings: str) -> SparkSession:
    defaults = {
        "spark.jars": kafka.connector(),
        "spark.sql.shuffle.partitions": "1",
        "spark.executor.heartbeatInterval": "1s",
        # Stopping a query in the middle of a batch is an "error" to its tasks.
        "spark.log.level": "OFF",
    }
    return local_session(name, master, True, **(defaults | settings))


def work(kept: DataFrame, digests: int = DIGESTS) -> DataFrame:
    """The job: a chain of digests, each of the one before."""
    first = F.col("value").cast("string")
    chain = F.aggregate(F.sequence(F.lit(1), F.lit(digests)), first, lambda text, _: F.sha2(text, 512))
    return kept.select("key", chain.alias("value"))


@dataclass(frozen=True)
class Play:
    """What came of some arrivals. Times in seconds from the first arrival on."""

    sent: NDArray[np.float64]
    """When each row was sent."""
    tiers: NDArray[np.int64]
    came: NDArray[np.int64]
    """Numbers of the rows that came out."""
    latencies: NDArray[np.float64]
    """Of those, in milliseconds."""
    by_class: dict[str, RungCounts] = field(default_factory=dict)

    def latency(self, percent: float, since: float = 0.0) -> float:
        """A percentile of the rows that were sent after a time; 100 is the worst."""
        chosen = self.after(since)
        return float(np.percentile(chosen, percent)) if len(chosen) else float("nan")

    def after(self, since: float) -> NDArray[np.float64]:
        """The latencies of the rows that were sent after a time."""
        return self.latencies[self.sent[self.came] >= since]

    def delivered(self, since: float, until: float) -> int:
        """Rows that came out in a span of time."""
        out = self.sent[self.came] + self.latencies / 1000.0
        return int(((out >= since) & (out < until)).sum())

    def arrived(self, since: float, until: float) -> int:
        """Rows that were sent in a span of time."""
        return int(((self.sent >= since) & (self.sent < until)).sum())

    def missing(self, since: float = 0.0) -> NDArray[np.float64]:
        """When the rows were sent that never came out."""
        lost = np.ones(len(self.sent), dtype=bool)
        lost[self.came] = False
        return self.sent[lost & (self.sent >= since)]

    def lost_share(self, tier: int, since: float, until: float) -> float:
        chosen = (self.tiers == tier) & (self.sent >= since) & (self.sent < until)
        lost = chosen.copy()
        lost[self.came] = False
        return float(lost.sum() / max(1, chosen.sum()))


def play(
    spark: SparkSession,
    broker: Kafka,
    rate: Callable[[float], float],
    seconds: float,
    shed: Shed | None = None,
    *,
    stays: float = 3.0,
    shares: Sequence[float] = (0.2, 0.3, 0.5),
    digests: int = DIGESTS,
    micro_batches: bool = False,
) -> Play:
    """Send rows at a rate, by the second, to a job that is ready for them.

    `stays`: seconds for which what comes out is still waited for. `shares` of the tiers, by chance.
    """
    name = uuid.uuid4().hex
    into = broker.create(f"in-{name}", PARTITIONS)
    out = broker.create(f"out-{name}", PARTITIONS, message_timestamp_type="LogAppendTime")
    events = spark.readStream.format("kafka").options(**broker.source(into)).load()
    kept = events if shed is None else shed(events)
    handle = None if shed is None else ss.handle(kept)
    producer = broker.producer()
    with tempfile.TemporaryDirectory() as state, kafka.collecting(broker, out) as collector:
        sink = broker.sink(out) | {"kafka.linger.ms": str(LINGER)}
        writer = work(kept, digests).writeStream.format("kafka").options(**sink).outputMode("update")
        writer = writer.option("checkpointLocation", str(Path(state) / "checkpoint"))
        # PySpark's own types do not know this trigger.
        batch = f"{int(seconds + stays) + 600} seconds"
        trigger: dict[str, Any] = {"processingTime": "0 seconds"} if micro_batches else {"realTime": batch}
        query = writer.trigger(**trigger).start()
        try:
            _wait_until_ready(producer, into, collector, query)
            begun = len(collector.keys)
            times, tiers = _send(producer, into, rate, seconds, shares, query)
            time.sleep(stays)
            counted = dict(handle.by_class) if isinstance(handle, LadderShedder) else {}
        finally:
            query.stop()
            if handle is not None:
                handle.settle()
                handle.close()
    numbers = np.array([int.from_bytes(key, "big") for key in collector.keys[begun:]], dtype=np.int64)
    ends = np.array(collector.times[begun:], dtype=np.float64)
    ours = (numbers < len(times)) & (numbers >= 0)
    numbers, ends = numbers[ours], ends[ours]
    starts = np.array(times, dtype=np.float64)
    return Play((starts - starts[0]) / 1000.0, np.array(tiers), numbers, ends - starts[numbers], counted)


def _wait_until_ready(producer: Any, into: str, collector: kafka.Collector, query: Any) -> None:
    """Send a row now and then until both tasks have one through: the job runs then."""
    deadline = time.monotonic() + _STARTED_WITHIN
    seen: set[bytes] = set()
    for turn in itertools.count():
        for partition in range(PARTITIONS):
            key = (2**62 + turn * PARTITIONS + partition).to_bytes(8, "big")
            producer.produce(into, key=key, value=b"{}", partition=partition)
        producer.flush(10)
        time.sleep(0.1)
        seen = {bytes([key[-1] % PARTITIONS]) for key in collector.keys[-100:]}
        if len(seen) == PARTITIONS:
            time.sleep(0.5)
            return
        if time.monotonic() > deadline or not query.isActive:
            raise StreamshedError("the job did not start", got=str(query.exception()))


def _send(
    producer: Any, into: str, rate: Callable[[float], float], seconds: float, shares: Sequence[float], query: Any
) -> tuple[list[int], list[int]]:
    """Send rows; when each was sent, in milliseconds since 1970, and of which tier it is."""
    chance = random.Random(1)
    values = [json.dumps({"tier": tier, "text": "x" * 80}).encode() for tier in TIERS]
    drawn = chance.choices(range(len(TIERS)), shares, k=10_007)
    times: list[int] = []
    tiers: list[int] = []
    start = time.time()
    due, before = 0.0, start
    while (now := time.time()) - start < seconds:
        due += rate(now - start) * (now - before)
        before = now
        stamp = int(now * 1000)
        while due >= 1.0:
            due -= 1.0
            tier = drawn[len(times) % len(drawn)]
            producer.produce(into, key=len(times).to_bytes(8, "big"), value=values[tier], timestamp=stamp)
            times.append(stamp)
            tiers.append(tier)
            if len(times) % 500 == 0:
                producer.poll(0)
        producer.poll(0)
        time.sleep(_STEP)
        if not query.isActive:
            raise StreamshedError("the job failed", got=str(query.exception()))
    producer.flush(30)
    return times, tiers


def _steady(rate: float, second: float) -> float:
    return rate


def capacity(spark: SparkSession, broker: Kafka, say: Callable[[str], None], *, guess: float = 3000.0) -> float:
    """Rows per second that the plain job can do, warm: sent as much too much as makes it busy all the time.

    The JVM compiles for a minute or so: turns go on until the best of them is two turns old, and the middle one of
    the last three counts.
    """
    rates: list[float] = []
    while len(rates) < _MOST_TURNS and not _settled(rates):
        say(f"what the plain job can do, turn {len(rates) + 1} of {_MOST_TURNS} at most")
        guess = spell(spark, broker, guess)
        rates.append(guess)
    return statistics.median(rates[-1 - _AFTER_BEST :])


def spell(spark: SparkSession, broker: Kafka, guess: float) -> float:
    """Rows per second that the plain job does at two and a half times a guess, warm after half of the time."""
    played = play(spark, broker, partial(_steady, 2.5 * guess), _SPELL, stays=0.0)
    return max(100.0, played.delivered(_SPELL / 2, _SPELL) / (_SPELL / 2))


def _settled(rates: Sequence[float]) -> bool:
    """Whether what is measured again and again does not rise any more.

    >>> [_settled(rates) for rates in ([], [3.0, 2.0], [3.0, 2.0, 2.9], [2.0, 3.0, 2.9])]
    [False, False, True, False]
    """
    return len(rates) > _AFTER_BEST and max(rates) not in rates[-_AFTER_BEST:]
