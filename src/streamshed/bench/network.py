"""`bench network`: five queries on one stream at two and four times what this machine can process.

Each policy gets the same arrivals (Spark's rate source: rows of known values, each with its arrival time). A row
that an output gets is worth what its value graph says, times what the latency graph makes of how late it came.
Total utility is the mean over the outputs of what they got, as a share of what prompt delivery of every row would
be worth. `none` is the same network with shedding off: what plain Spark does.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
import streamshed.bench.play as playing
from streamshed.bench.jobs import weighted_quantile
from streamshed.bench.play import Say
from streamshed.network import Builder, Network
from streamshed.network.graph import Output
from streamshed.spark.runtime import RunningNetwork

POLICIES = ("none", "input-uniform", "lsrm-random", "lsrm-semantic")
FACTORS = (2.0, 4.0)
BOUND = 6.0
SECONDS = 45.0
SETTLING = (
    18.0  # seconds at the start of each run that do not count: the controller has yet to see its first batches
)
# For each query: least value it takes, terms of its computation, cut between common and wanted values, worth of
# the common ones.
QUERIES = ((0, 4, 75, 0.05), (0, 8, 80, 0.9), (20, 8, 90, 0.1), (40, 6, 70, 0.4), (60, 4, 85, 0.02))


def network() -> Network:
    builder = Builder("five").source(
        "rows", "id LONG, v DOUBLE, at TIMESTAMP", arrived="at", values={"v": (0, 100)}
    )
    builder.map("shared", "rows", {"id": "id", "v": "v", "w": terms("v", 3), "at": "at"}, cost=5e-7)
    for number, (least, work, cut, worth) in enumerate(QUERIES):
        builder.filter(f"f{number}", "shared", f"v >= {least}", cost=5e-8, selectivity=1 - least / 100)
        columns = {"id": "id", "v": "v", "score": terms("w", work), "at": "at"}
        builder.map(f"m{number}", f"f{number}", columns, cost=1.5e-7 * work)
        builder.output(
            f"q{number}",
            f"m{number}",
            value=("v", [[least, cut, worth], [cut, 100, 1.0]]),
            latency=[(0, 1.0), (BOUND, 1.0), (2 * BOUND, 0.0)],
        )
    return builder.build()


def terms(field: str, count: int) -> str:
    """A computation of some length."""
    return " + ".join(f"power(abs({field}) + {number}, 0.{number}1) * exp(ln({field} * {field} + {number}) / 3)"
                      for number in range(1, count + 1))  # fmt: skip


def stream(spark: SparkSession, rate: float) -> DataFrame:
    rows = spark.readStream.format("rate").option("rowsPerSecond", int(rate)).option("numPartitions", 4).load()
    return rows.select(F.col("value").alias("id"), value().alias("v"), F.col("timestamp").alias("at"))


def value() -> Any:
    return F.pmod(F.xxhash64("value"), F.lit(100_000)) / 1000.0


class Ledger:
    """What an output got: rows and their worth, by batch and second of arrival."""

    def __init__(self, output: Output) -> None:
        graph = output.qos.value
        assert graph is not None
        worth = F.lit(0.0)
        for interval in graph.intervals:
            worth = F.when(F.col("v") >= interval.low, F.lit(interval.utility)).otherwise(worth)
        self.worth = worth
        self.entries: list[tuple[int, int, int, float]] = []

    def __call__(self, rows: DataFrame, batch: int) -> None:
        second = F.unix_seconds("at").alias("second")
        # The score is used, or Spark would not compute it.
        found = rows.groupBy(second).agg(F.count("*"), F.sum(self.worth), F.sum("score")).collect()
        self.entries.extend((batch, int(row[0]), int(row[1]), float(row[2])) for row in found)


def start(
    spark: SparkSession, place: playing.Workplace, made: Network, policy: str, rate: float
) -> RunningNetwork:
    return ss.run(
        spark,
        made,
        sources={"rows": stream(spark, rate)},
        sinks={output.name: Ledger(output) for output in made.outputs},
        policy=policy,
        mode="off" if policy == "none" else "enforce",
        latency=BOUND,
        checkpoint=str(place.fresh(policy)),
    )


def capacity(spark: SparkSession, place: playing.Workplace, made: Network, say: Say) -> float:
    """Rows per second that the network can just process inside the bound: two runs, the second near that rate."""
    rate = 20_000.0
    for seconds in (30.0, 25.0):
        running = start(spark, place, made, "none", rate)
        time.sleep(seconds)
        running.stop()
        share = running.controller.full_share
        say(f"capacity: {rate:,.0f} rows/s is {1 / share if share else 0:.2f} of what fits")
        rate *= min(8.0, share or 1.0)
    return rate


def worth_of_all(spark: SparkSession, made: Network) -> dict[str, float]:
    """Worth of an arriving row to each output, on average, when it is delivered in time."""
    rows = spark.range(200_000).select(F.col("id").alias("value")).select(value().alias("v"))
    found = {}
    for (least, *_), output in zip(QUERIES, made.outputs, strict=True):
        total = rows.where(f"v >= {least}").agg(F.sum(Ledger(output).worth)).first()
        assert total is not None
        found[output.name] = float(total[0]) / 200_000
    return found


def measure(
    spark: SparkSession, place: playing.Workplace, made: Network, policy: str, rate: float, full: dict[str, float]
) -> dict[str, Any]:
    running = start(spark, place, made, policy, rate)
    begin = time.time()
    time.sleep(SECONDS)
    ended = time.time()
    running.stop()
    committed = {sample.batch: sample.at for sample in running.samples if sample.finished}
    first, last = begin + SETTLING, ended - 2 * BOUND
    late: list[float] = []
    weight: list[float] = []
    utility: dict[str, float] = defaultdict(float)
    for output in made.outputs:
        graph = output.qos.latency
        assert graph is not None
        for batch, second, rows, worth in running.sinks[output.name].entries:
            if not first <= second < last or batch not in committed:
                continue
            # Rows of one second: the oldest of them.
            latency = committed[batch] - second
            late.append(latency)
            weight.append(rows)
            utility[output.name] += worth * graph(latency)
    seconds = float(int(last) - int(first))
    shares = {name: utility[name] / (rate * seconds * worth) for name, worth in full.items()}
    batches = [s for s in running.samples if s.finished and s.started >= first and s.at <= ended]
    return {
        "policy": policy,
        "utility": round(float(np.mean(list(shares.values()))), 4),
        "by_output": {name: round(share, 3) for name, share in shares.items()},
        "latency_p99": round(weighted_quantile(np.array(late), np.array(weight), 0.99), 2) if late else None,
        "latency_median": round(weighted_quantile(np.array(late), np.array(weight), 0.5), 2) if late else None,
        "worst_batch": round(max((s.latency for s in batches), default=0.0), 2),
        "batches": len(batches),
        "shed": {name: rows for name, rows in running.report().shed.items() if rows},
    }


def run(say: Say) -> dict[str, Any]:
    spark = playing.session("bench network")
    made = network()
    with playing.Workplace() as place:
        able = capacity(spark, place, made, say)
        full = worth_of_all(spark, made)
        rows = []
        for factor in FACTORS:
            for policy in POLICIES:
                say(f"{factor:g}x, {policy}")
                rows.append({"factor": factor} | measure(spark, place, made, policy, factor * able, full))
                say(f"{factor:g}x, {policy}: utility {rows[-1]['utility']}, p99 {rows[-1]['latency_p99']} s")
    return {"bench": "network", "bound": BOUND, "capacity_rows_per_s": int(able), "rows": rows}
