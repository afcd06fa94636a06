"""Drop by value: which rows are worth least to whom. Run: .venv/bin/python examples/03_semantic.py

Sensors on trucks report their temperature. Only what is far from normal matters to the alarm desk; the archive
takes what it gets. More and more reports come, up to twice what this machine can process, and the rows that go are
those nobody will miss.
"""

import time

from pyspark.sql import functions as F

import streamshed as ss
from streamshed.network import Builder
from streamshed.spark.session import leave_spark, local_session

OVERLOAD, BOUND, RISES, SHEDS, AT_MOST = 2.0, 6.0, 45, 30, 240  # the last four are seconds

spark = local_session("semantic", **{"spark.sql.adaptive.enabled": "false"})
cores = spark.sparkContext.defaultParallelism
hot = 0


def forecast(rows, number):
    """Computes for each warm truck when its freight spoils (many digests stand for that), and counts the hot."""
    global hot
    made = rows.withColumn("spoils", F.expr("sha2(repeat(string(celsius), 50000), 256)"))
    hot += made.agg(F.count_if(F.col("celsius") >= 8), F.max("spoils")).first()[0]


# How many forecasts can be made in a second? A third of the trucks is warm enough for one.
sample = spark.range(2_000).selectExpr("id / 100D AS celsius")
for _ in range(3):
    begin = time.perf_counter()
    forecast(sample, 0)
    able = 2_000 / (time.perf_counter() - begin)
hot = 0
rate = int(OVERLOAD * able / 0.32)
print(f"this machine can make about {able:,.0f} forecasts a second; {rate:,} reports will come, 32 % need one")

trucks = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", rate)
    .option("rampUpTime", f"{RISES}s")
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
    .filter("valid", "trucks", "celsius > -40")
    .filter("warm", "valid", "celsius > 5", cost=0.32 * cores / able, selectivity=0.32)
    .output("alarm", "warm", value=("celsius", [[5, 8, 0.1], [8, 20, 1.0]]))
    .output("archive", "valid", loss=[(100, 1.0), (10, 0.9), (0, 0.0)])
    .build()
)  # fmt: skip

start = time.monotonic()


def tell(plan):
    drops = ", ".join(f"{drop.at} keeps {drop.keep:.0%} of {drop.where or 'all'}" for drop in plan.drops)
    print(f"{time.monotonic() - start:4.0f} s  {drops or 'nothing is dropped'}\n        {plan.reason}", flush=True)


sinks = {"alarm": forecast, "archive": "noop"}
with ss.run(
    spark, network, sources={"trucks": trucks}, sinks=sinks, policy="lsrm-semantic", latency=BOUND
) as running:
    running.on_plan(tell)
    end = start + AT_MOST
    while time.monotonic() < end:
        time.sleep(0.5)
        if end == start + AT_MOST and running.report().shed:
            end = time.monotonic() + SHEDS
    spark.sparkContext.setLogLevel("OFF")  # the batch that runs is cut short, and Spark would tell so at length
    running.stop()
    report = running.report()
    print(f"\n{report.arrived:,} reports came in")
    for arc, rows in report.by_arc.items():
        print(f"dropped on {arc:<15} {rows.shed:>9,} of {rows.arrived:>9,}")
    for output in network.outputs:
        got, percent, utility = (
            report.by_output[output.name].delivered, report.by_output[output.name].percent,
            report.by_output[output.name].utility,
        )  # fmt: skip
        print(f"{output.name:<8} got {got:>7,} rows, {percent:3.0f} % of what came for it; utility {utility:.2f}")
    print(f"of the alarm desk's rows {hot:,} were above 8 degrees")
    late = f"{report.over_bound} of {report.batches} batches were later than {BOUND:g} s"
    print(f"latency {report.latency_last:.1f} s at the end, {report.latency_mean:.1f} s on average; {late}")
leave_spark()
