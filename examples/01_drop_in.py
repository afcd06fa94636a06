"""One line in an existing job. Run: .venv/bin/python examples/01_drop_in.py

The rate of arrivals rises to twice what this machine can process. Without the line the job would fall behind for
as long as that lasts; with it, rows are dropped, and a bound of 4 seconds is kept for the others.
"""

import tempfile
import time

from pyspark.sql.functions import col, expr

import streamshed as ss
from streamshed.spark.session import local_session

BOUND, RISES, LASTS = 4.0, 20, 45  # seconds

spark = local_session("drop-in", **{"spark.sql.adaptive.enabled": "false"})
work = expr("sha2(repeat(concat('user ', user_id), 20000), 256)").alias("digest")

# How many rows a second is twice what this machine can do?
sample = spark.range(20_000).select(col("id").alias("user_id"))
for _ in range(3):
    begin = time.perf_counter()
    sample.select(work).write.format("noop").mode("overwrite").save()
    able = 20_000 / (time.perf_counter() - begin)
rate = int(2 * able)
print(f"this machine can do about {able:,.0f} rows a second; {rate:,} will arrive")

events = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", rate)
    .option("rampUpTime", f"{RISES}s")
    .load()
    .withColumn("user_id", col("value") % 500)
    .withColumn("priority", expr("if(value % 100 = 0, 'high', 'low')"))
)

# The line.
kept = ss.shed(events, latency=BOUND, arrived="timestamp", key="user_id", protect="priority = 'high'", floor=0.05)

digests = kept.select("timestamp", "user_id", work)
query = digests.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp()).start()

with ss.shedder(kept) as handle:
    handle.on_plan(lambda plan: print(f"  {time.monotonic() - begin:3.0f} s  keep {plan.keep:.2f}  {plan.reason}"))
    begin = time.monotonic()
    while time.monotonic() < begin + LASTS or handle.report().shed == 0:
        time.sleep(1.0)
        if time.monotonic() > begin + 3 * LASTS:
            break
    spark.sparkContext.setLogLevel("OFF")  # the batch that runs is cut short, and Spark would tell so at length
    query.stop()
    handle.settle()
    report = handle.report()
    print(f"{report.arrived:,} rows arrived, {report.shed:,} were shed ({1 - report.kept_share:.0%})")
    late = f"{report.over_bound} of {report.batches} batches had a row later than the bound of {BOUND:g} s"
    print(f"{late}; the latest was at {report.latency_worst:.1f} s")
spark.stop()
