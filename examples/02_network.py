"""A network of queries on one stream of web requests. Run: .venv/bin/python examples/02_network.py

Three teams read the same log. It is parsed once for all; when more comes in than this machine can process, the
network gives up what costs its outputs least. The log comes in faster and faster, up to twice what fits here.
"""

import hashlib
import os
import time

from pyspark.sql import functions as F

import streamshed as ss
from streamshed.network import Builder
from streamshed.spark.session import local_session

OVERLOAD = 2.0


def explain(path, ms):
    """Work on one request: stands for a look at its traces."""
    digest = f"{path} {ms}".encode()
    for _ in range(4_000):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()[:8]


begun = time.perf_counter()
for _ in range(100):
    explain("/item/1", 20.0)
cost = (time.perf_counter() - begun) / 100
# Three in a hundred requests fail and fourteen are slow; each of these is explained.
rate = int(OVERLOAD * os.cpu_count() / (0.17 * cost))
print(f"explaining a request takes {cost * 1e3:.1f} ms here; {rate:,} requests a second will come")

spark = local_session("network")
# A log as it comes off a bus: one JSON text a request. Response times have a long tail.
log = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", rate)
    .option("rampUpTime", "45s")
    .load()
    .select(
        F.to_json(
            F.struct(
                F.concat(F.lit("/item/"), F.col("value") % 300).alias("path"),
                F.expr("CASE WHEN rand(1) < 0.03 THEN 500 WHEN rand(2) < 0.1 THEN 404 ELSE 200 END").alias(
                    "status"
                ),
                F.expr("20 - 40 * ln(1 - rand(3))").alias("ms"),
            )
        ).alias("value"),
        F.col("timestamp").alias("at"),
    )
)
network = (
    Builder("weblog")
    .source("log", "path STRING, status INT, ms DOUBLE, at TIMESTAMP", parse="json", arrived="at", rate=rate,
            watermark="5 seconds", protect="status = 500", protected=0.03)
    .filter("answered", "log", "ms < 2000")
    .filter("failing", "answered", "status >= 500", selectivity=0.03)
    .udf("cause", "failing", "__main__:explain", ["path", "ms"], "cause STRING", cost=cost)
    .filter("slow", "answered", "ms > 100", selectivity=0.14)
    .udf("advice", "slow", "__main__:explain", ["path", "ms"], "advice STRING", cost=cost)
    .aggregate("load", "answered", "10 seconds", {"requests": "count(*)", "mean": "avg(ms)"}, by=["path"],
               selectivity=0.01)
    .output("on-call", "cause", loss=[(100, 1.0), (0, 0.0)])
    .output("tuning", "advice", loss=[(100, 1.0), (20, 0.8), (0, 0.0)])
    .output("planning", "load", loss=[(100, 1.0), (10, 0.9), (0, 0.0)])
    .build()
)  # fmt: skip
print(network.draw())

start = time.monotonic()


def tell(plan):
    drops = ", ".join(f"{drop.at} keeps {drop.keep:.0%}" for drop in plan.drops) or "nothing is dropped"
    print(f"{time.monotonic() - start:4.0f} s  {drops}\n        {plan.reason}", flush=True)


sinks = {"on-call": "memory", "tuning": "memory", "planning": "memory"}
with ss.run(
    spark, network, sources={"log": log}, sinks=sinks, policy="lsrm-random", latency="6 seconds"
) as running:
    running.on_plan(tell)
    # Until it has shed for half a minute; if that never begins, for three minutes.
    end = start + 180
    while time.monotonic() < end:
        time.sleep(0.5)
        if end == start + 180 and sum(running.report().shed.values()):
            end = time.monotonic() + 30
    running.stop()
    report = running.report()
    arrived, at_the_end = sum(report.arrived.values()), report.latency_last
    print(f"\n{arrived:,} requests came in; the last batch was done {at_the_end:.1f} s after its first")
    for arc, rows in report.shed.items():
        print(f"dropped on {arc:<16} {rows:>9,} of {report.reached[arc]:,}")
    for output in network.outputs:
        name = output.name
        print(
            f"{name:<9} got {report.delivered[name]:>7,} rows, {report.percent[name]:3.0f} % of what came for it;"
            f" utility {running.utility(name):.2f}"
        )
spark.stop()
