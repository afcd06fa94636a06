"""An expensive function over rows of very different cost, held at a mean wait of 5 seconds.

Run: .venv/bin/python examples/load_aware.py

More rows come than two cores can take, and the job is not told what a row costs. It finds out, and drops the rows
for which there is no time. It ends when it has shown that, within a minute and a half.
"""

import hashlib
import tempfile
import time

from pyspark.sql.functions import expr

import streamshed as ss
from streamshed.spark.session import leave_spark, local_session

RATE = 400  # rows a second; what they cost is 5.6 ms on average, so that two cores can do 357 at the very best
CHEAP, DEAR = "author 1", "author 0"
LONGEST = 60  # seconds
ENOUGH = 7  # batches in which rows were shed


def decorate(row):
    """The rows of every fifth author take 20 ms, the others 2."""
    digest, busy = b"", 20 if int(row["mention"].split()[1]) % 5 == 0 else 2
    until = time.perf_counter() + busy / 1000
    while time.perf_counter() < until:
        digest = hashlib.sha256(digest + row["mention"].encode()).digest()
    return {"mention": row["mention"], "info": digest.hex()}


def milliseconds(seconds):
    return "?" if seconds is None else f"{seconds * 1000:.1f}"


def show(handle, told):
    """Tell of the newest batch, unless that was done; how many batches there are."""
    batches = [batch.report for batch in handle.batches if batch.report.arrived]
    if len(batches) == told:
        return told
    last = batches[-1]
    print(
        f"{last.kept} of {last.arrived} rows kept, mean wait {last.queue_mean:.2f} s; learned: a row of "
        f"{CHEAP!r} takes {milliseconds(handle.cost_of(CHEAP))} ms, one of {DEAR!r} "
        f"{milliseconds(handle.cost_of(DEAR))} ms",
        flush=True,
    )
    return len(batches)


spark = local_session("load-aware", "local[2]", **{"spark.sql.adaptive.enabled": "false"})
mentions = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", RATE)
    # Costs are known when a batch is over. The first has all that came while Spark got ready: let it be little.
    .option("rampUpTime", "20s")
    .option("numPartitions", 2)
    .load()
    .withColumn("mention", expr("concat('author ', value * value % 50)"))
)
out = ss.load_aware(
    mentions,
    decorate,
    cost_key="mention",
    target="avg 5 seconds over 300 rows",
    schema="mention STRING, info STRING",
    arrived="timestamp",
    window=256,
)
with ss.load_shedder(out) as handle:
    writer = out.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp())
    query = writer.trigger(processingTime="5 seconds").start()
    begun, told = time.monotonic(), 0
    while query.isActive and time.monotonic() - begun < LONGEST:
        time.sleep(4)
        told = show(handle, told)
        if sum(batch.report.shed > 0 for batch in handle.batches) >= ENOUGH:
            break
    spark.sparkContext.setLogLevel("OFF")  # the batch that runs is cut short, and Spark would tell so at length
    query.stop()
    handle.settle()
    print(f"in all: {handle}")
leave_spark()
