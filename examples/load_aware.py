"""An expensive function over rows of very different cost, held at a mean wait of 2 seconds.

Run: .venv/bin/python examples/load_aware.py
"""

import hashlib
import tempfile
import time

from pyspark.sql.functions import expr

import streamshed as ss
from streamshed.spark.session import local_session

spark = local_session("load-aware", "local[2]", **{"spark.sql.adaptive.enabled": "false"})
# 400 rows a second of 50 authors; the rows of every fifth take 20 ms, the others 2.
mentions = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", 400)
    .option("numPartitions", 2)
    .load()
    .withColumn("mention", expr("concat('author ', value * value % 50)"))
)


def decorate(row):
    digest, busy = b"", 20 if int(row["mention"].split()[1]) % 5 == 0 else 2
    until = time.perf_counter() + busy / 1000
    while time.perf_counter() < until:
        digest = hashlib.sha256(digest + row["mention"].encode()).digest()
    return {"mention": row["mention"], "info": digest.hex()}


out = ss.load_aware(
    mentions,
    decorate,
    key="mention",
    latency="avg 2 seconds over 1000 rows",
    schema="mention STRING, info STRING",
    arrived="timestamp",
    window=256,
)
query = out.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp()).start()

handle = ss.load_shedder(out)
for _ in range(8):
    time.sleep(5)
    if handle.batches:
        last = handle.batches[-1].report
        print(f"{last.kept} of {last.arrived} rows kept, mean wait {last.queue_mean:.2f} s; in all: {handle}")
query.stop()
spark.stop()
