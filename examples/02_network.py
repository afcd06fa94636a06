"""A network of queries on one stream of web requests. Run: .venv/bin/python examples/02_network.py

Three teams read the same log. It is parsed once for all; when more comes in than this machine can process, the
network gives up what costs its outputs least. Requests come faster and faster, up to twice what fits here.
"""

import time

from pyspark.sql import functions as F

import streamshed as ss
from streamshed.network import Builder
from streamshed.spark.session import leave_spark, local_session

OVERLOAD, BOUND, RISES, SHEDS, AT_MOST = 2.0, 6.0, 45, 30, 240  # the last four are seconds

spark = local_session("network", **{"spark.sql.adaptive.enabled": "false"})
cores = spark.sparkContext.defaultParallelism


def explain(rows, number):
    """Writes rows with a look at what happened to each: many digests stand for that."""
    rows.withColumn("trace", F.expr("sha2(repeat(path, 200000), 256)")).write.format("noop").mode("append").save()


# How many requests can be explained in a second? Three in a hundred fail and fourteen are slow, and those are.
sample = spark.range(500).select(F.lit("/item/123").alias("path"))
for _ in range(3):
    begin = time.perf_counter()
    explain(sample, 0)
    able = 500 / (time.perf_counter() - begin)
rate = int(OVERLOAD * able / 0.17)
print(f"this machine can explain about {able:,.0f} requests a second; {rate:,} will come, of which 17 % need it")

# A log as it comes off a bus: one JSON text a request. Response times have a long tail.
log = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", rate)
    .option("rampUpTime", f"{RISES}s")
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
    .source("log", "path STRING, status INT, ms DOUBLE, at TIMESTAMP", parse="json", arrived="at", rate=rate)
    .filter("answered", "log", "ms < 2000")
    .filter("failing", "answered", "status >= 500", selectivity=0.03)
    .map("cause", "failing", {"path": "path", "ms": "ms", "at": "at"}, cost=cores / able)
    .filter("slow", "answered", "ms > 100", selectivity=0.14)
    .map("advice", "slow", {"path": "path", "seconds": "ms / 1000", "at": "at"}, cost=cores / able)
    .map("load", "answered", {"path": "path", "ms": "ms", "at": "at"})
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


sinks = {"on-call": explain, "tuning": explain, "planning": "noop"}
with ss.run(spark, network, sources={"log": log}, sinks=sinks, policy="lsrm-random", latency=BOUND) as running:
    running.on_plan(tell)
    end = start + AT_MOST
    while time.monotonic() < end:
        time.sleep(0.5)
        if end == start + AT_MOST and running.report().shed:
            end = time.monotonic() + SHEDS
    spark.sparkContext.setLogLevel("OFF")  # the batch that runs is cut short, and Spark would tell so at length
    running.stop()
    report = running.report()
    print(f"\n{report.arrived:,} requests came in")
    for arc, rows in report.by_arc.items():
        print(f"dropped on {arc:<18} {rows.shed:>9,} of {rows.arrived:>9,}")
    for output in network.outputs:
        got, percent, utility = (
            report.by_output[output.name].delivered, report.by_output[output.name].percent,
            report.by_output[output.name].utility,
        )  # fmt: skip
        print(f"{output.name:<9} got {got:>7,} rows, {percent:3.0f} % of what came for it; utility {utility:.2f}")
    late = f"{report.over_bound} of {report.batches} batches were later than {BOUND:g} s"
    print(f"latency {report.latency_last:.1f} s at the end, {report.latency_mean:.1f} s on average; {late}")
leave_spark()
