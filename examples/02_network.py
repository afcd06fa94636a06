"""A network of queries on one stream of web requests. Run: .venv/bin/python examples/02_network.py

Three teams read the same log. It is parsed once for all; when more comes in than this machine can process, the
network gives up what costs its outputs least.
"""

import tempfile
import time

from pyspark.sql import functions as F

import streamshed as ss
from streamshed.network import Builder
from streamshed.spark.session import local_session

spark = local_session("network")
# A log as it comes off a bus: one JSON text a request. Response times have a long tail.
log = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", 5_000)
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
    .source("log", "path STRING, status INT, ms DOUBLE, at TIMESTAMP", parse="json", arrived="at", rate=5_000,
            watermark="5 seconds", protect="status = 500", protected=0.03)
    .filter("answered", "log", "ms < 2000")
    .filter("failing", "answered", "status >= 500", selectivity=0.03)
    .filter("slow", "answered", "ms > 100", selectivity=0.14)
    .map("seconds", "slow", {"path": "path", "seconds": "ms / 1000", "at": "at"})
    .aggregate("load", "answered", "10 seconds", {"requests": "count(*)", "ms": "avg(ms)"}, by=["path"],
               selectivity=0.01)
    .output("on-call", "failing", loss=[(100, 1.0), (0, 0.0)])
    .output("tuning", "seconds", loss=[(100, 1.0), (20, 0.8), (0, 0.0)])
    .output("planning", "load", loss=[(100, 1.0), (10, 0.9), (0, 0.0)])
    .build()
)  # fmt: skip
print(network.draw())

running = ss.run(
    spark,
    network,
    sources={"log": log},
    sinks={"on-call": "memory", "tuning": "memory", "planning": "memory"},
    policy="lsrm-random",
    latency="4 seconds",
    checkpoint=tempfile.mkdtemp(),
)
running.on_plan(lambda plan: print(plan.reason))
time.sleep(30)
running.stop()
report = running.report()
print(f"arrived: {report.arrived}, shed: {report.shed}")
for output in network.outputs:
    percent, utility = report.percent[output.name], running.utility(output.name)
    print(
        f"{output.name}: {report.delivered[output.name]} rows, {percent:.0f} % of what came, utility {utility:.2f}"
    )
spark.stop()
