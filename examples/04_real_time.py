"""A bound of 200 milliseconds. Run: make kafka && .venv/bin/python examples/04_real_time.py

From Kafka to Kafka in real-time mode, on a broker that this program starts. Four times what the job can do arrives
for ten seconds; orders of gold customers are never dropped, and of the others the least valued go first.
"""

import json
import random
import tempfile
import time

from pyspark.sql.functions import aggregate, col, expr, lit, sequence, sha2

import streamshed as ss
from streamshed.lab.bench.kafka import Broker, collecting, connector
from streamshed.spark.session import local_session

CALM, BURST, AFTER = 6, 10, 6  # seconds
spark = local_session("real-time", "local[2]", **{"spark.jars": connector(), "spark.log.level": "OFF"})

with Broker() as broker:
    broker.create("orders", partitions=2)
    broker.create("scored", partitions=2, message_timestamp_type="LogAppendTime")
    orders = (
        spark.readStream.format("kafka")
        .options(**broker.source("orders"))
        .load()
        .withColumn("order", expr("from_json(cast(value as string), 'tier STRING, amount DOUBLE')"))
    )

    # The line.
    kept = ss.shed(
        orders,
        latency="200 ms",
        trigger="real-time",
        protect="order.tier = 'gold'",
        classes={"silver": "order.tier = 'silver'"},
        value="order.amount / 100",
    )

    score = aggregate(sequence(lit(1), lit(300)), col("order.tier"), lambda text, _: sha2(text, 512))
    query = (
        kept.select("key", score.alias("value"))
        .writeStream.format("kafka")
        .options(**broker.sink("scored"))
        .option("kafka.linger.ms", "5")  # or each row is a request of its own to the broker
        .option("checkpointLocation", tempfile.mkdtemp())
        .outputMode("update")
        .trigger(realTime="45 seconds")
        .start()
    )

    producer, chance, sent = broker.producer(), random.Random(1), {}

    def send(rate: float, seconds: float) -> None:
        """Send orders at a rate."""
        begin, before = time.time(), len(sent)
        while (elapsed := time.time() - begin) < seconds:
            while len(sent) - before < rate * elapsed:
                tier = chance.choices(("gold", "silver", "bronze"), (0.05, 0.35, 0.6))[0]
                value = json.dumps({"tier": tier, "amount": chance.uniform(0, 100)})
                producer.produce("orders", key=str(len(sent)), value=value)
                sent[str(len(sent))] = (time.time(), tier)
            producer.poll(0)
            time.sleep(0.005)

    with collecting(broker, "scored") as collector, ss.handle(kept) as handle:
        send(20, 5)
        while not collector.keys:  # until the job runs
            send(20, 1)
        send(6000, 8)  # code that has just started is slow
        done, begin = len(collector.keys), time.monotonic()
        send(6000, 4)  # how many of these can it do?
        able = (len(collector.keys) - done) / (time.monotonic() - begin)
        print(f"this job can do about {able:,.0f} orders a second; {4 * able:,.0f} will arrive for {BURST} s")
        send(0.3 * able, CALM)
        first = len(sent)
        send(4 * able, BURST)
        last = len(sent)
        send(0.3 * able, AFTER)
        while not handle.report().batches and query.isActive:
            time.sleep(0.2)  # the books are exact when a batch is over
        query.stop()
        came = {key.decode(): at / 1000 for key, at in zip(collector.keys, collector.times, strict=True)}
        print(f"in all batches so far: {handle.report()}")

    for tier in ("gold", "silver", "bronze"):
        orders_of = [key for key in map(str, range(first, last)) if sent[key][1] == tier]
        late = sorted(1000 * (came[key] - sent[key][0]) for key in orders_of if key in came)
        p99 = f"p99 {late[int(0.99 * len(late))]:.0f} ms" if late else "none came"
        print(f"  in the burst, {tier:6}: {len(late):6,} of {len(orders_of):6,} came, {p99}")
spark.stop()
