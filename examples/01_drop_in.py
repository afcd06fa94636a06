"""The one line: a job with a window, kept inside 4 seconds. Run: .venv/bin/python examples/01_drop_in.py"""

import tempfile
import time

from pyspark.sql.functions import col, expr, window

import streamshed as ss
from streamshed.spark.session import local_session

spark = local_session("drop-in")
events = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", 2_000)
    .load()
    .withColumn("user_id", col("value") % 500)
    .withColumn("priority", expr("if(value % 100 = 0, 'high', 'low')"))
)

kept = ss.shed(
    events, latency="4 seconds", arrived="timestamp", key="user_id", protect="priority = 'high'", floor=0.05
)

counts = (
    kept.withWatermark("timestamp", "10 seconds").groupBy(window("timestamp", "10 seconds"), "user_id").count()
)
query = (
    counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", tempfile.mkdtemp()).start()
)

handle = ss.shedder(kept)
handle.on_plan(lambda plan: print(f"keep {plan.keep():.2f}: {plan.reason}"))
time.sleep(20)
print(handle)
query.stop()
spark.stop()
