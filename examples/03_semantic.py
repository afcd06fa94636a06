"""Drop by value: which rows are worth least to whom. Run: .venv/bin/python examples/03_semantic.py

Sensors on trucks report their temperature. Only what is far from normal matters to the alarm desk; the archive
takes what it gets. More and more reports come, up to twice what this machine can process, and the rows that go are
those nobody will miss.
"""

import hashlib
import os
import time

from pyspark.sql import functions as F

import streamshed as ss
from streamshed.network import Builder
from streamshed.spark.session import local_session

OVERLOAD = 2.0


def forecast(truck, celsius):
    """Work on one report: stands for a model of how the freight spoils."""
    digest = f"{truck} {celsius}".encode()
    for _ in range(2_000):
        digest = hashlib.sha256(digest).digest()
    return digest[0] * celsius / 255


begun = time.perf_counter()
for _ in range(100):
    forecast(1, 4.0)
cost = (time.perf_counter() - begun) / 100
rate = int(OVERLOAD * os.cpu_count() / cost)
print(f"a forecast takes {cost * 1e3:.1f} ms here; {rate:,} reports a second will come")

spark = local_session("semantic")
trucks = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", rate)
    .option("rampUpTime", "45s")
    .load()
    .select(
        (F.col("value") % 1000).cast("int").alias("truck"),
        F.expr("4 + 2 * randn(1) + CASE WHEN value % 50 = 0 THEN 8 ELSE 0 END").alias("celsius"),
        F.col("timestamp").alias("at"),
    )
)
network = (
    Builder("cold-chain")
    .source("trucks", "truck INT, celsius DOUBLE, at TIMESTAMP", arrived="at", rate=rate,
            values={"celsius": (-4, 16)})
    .udf("risk", "trucks", "__main__:forecast", ["truck", "celsius"], "risk DOUBLE", cost=cost)
    .filter("warm", "risk", "celsius > 5", selectivity=0.3)
    .output("alarm", "warm", value=("celsius", [[5, 8, 0.1], [8, 20, 1.0]]))
    .output("archive", "risk", loss=[(100, 1.0), (10, 0.9), (0, 0.0)])
    .build()
)  # fmt: skip

start = time.monotonic()


def tell(plan):
    drops = ", ".join(f"{drop.at} keeps {drop.keep:.0%} of {drop.where or 'all'}" for drop in plan.drops)
    print(f"{time.monotonic() - start:4.0f} s  {drops or 'nothing is dropped'}\n        {plan.reason}", flush=True)


with ss.run(
    spark,
    network,
    sources={"trucks": trucks},
    sinks={"alarm": "memory", "archive": "memory"},
    policy="lsrm-semantic",
    latency="6 seconds",
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
    print(f"\n{arrived:,} reports came in; the last batch was done {at_the_end:.1f} s after its first")
    for arc, rows in report.shed.items():
        print(f"dropped on {arc:<14} {rows:>8,} of {report.reached[arc]:,}")
    for output in network.outputs:
        name = output.name
        print(
            f"{name:<8} got {report.delivered[name]:>7,} rows, {report.percent[name]:3.0f} % of what came for it;"
            f" utility {running.utility(name):.2f}"
        )
    # One report in fifty is of a truck that is 8 degrees too warm; few of the others are above 8 degrees.
    hot = sum(row.celsius >= 8 for row in running.rows("alarm"))
    print(
        f"{hot:,} reports of more than 8 degrees reached the alarm desk, {hot / arrived:.1%} of all that came in"
    )
spark.stop()
