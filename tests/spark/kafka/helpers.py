"""Topics, queries from one to another, and what came out of them."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamshed.lab.bench.kafka import Broker
from tests.spark.helpers import wait_for

_names = itertools.count()


def topic(broker: Broker, partitions: int = 1, **settings: str) -> str:
    """A new topic of a name of its own."""
    return broker.create(f"topic-{next(_names)}", partitions, **settings)


def read(spark: SparkSession, broker: Broker, topics: str, **options: str) -> DataFrame:
    return spark.readStream.format("kafka").options(**broker.source(topics, **options)).load()


@contextmanager
def running(
    frame: DataFrame, broker: Broker, out: str, checkpoint: Path, batch: str = "5 minutes", **trigger: Any
) -> Iterator[StreamingQuery]:
    """A query into a topic: in real-time mode, unless it is told another trigger."""
    writer = frame.writeStream.format("kafka").options(**broker.sink(out)).outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"realTime": batch})).start()
    try:
        yield query
    finally:
        query.stop()


def put_numbers(broker: Broker, into: str, first: int, count: int, *, age: float | None = None) -> None:
    """Messages with the numbers first … first+count−1 as JSON; `age`: as if sent so many seconds ago."""
    stamp = {} if age is None else {"timestamp": int((time.time() - age) * 1000)}
    broker.put(into, ({"value": json.dumps({"n": n}).encode(), **stamp} for n in range(first, first + count)))


def numbers(frame: DataFrame) -> DataFrame:
    """The number in each message, as a column `n`."""
    return frame.withColumn("n", F.get_json_object(F.col("value").cast("string"), "$.n").cast("int"))


def numbers_in(broker: Broker, out: str) -> list[int]:
    return [json.loads(message.value())["n"] for message in broker.messages(out, quiet=0.5)]


def wait_for_numbers(broker: Broker, out: str, wanted: int, query: StreamingQuery) -> list[int]:
    """Wait until a topic has a number, and give all that it has."""
    consumer, found = broker.consumer(out), list[int]()

    def there() -> bool:
        assert query.isActive, query.exception()
        messages = consumer.consume(10_000, timeout=0.1)
        found.extend(json.loads(message.value())["n"] for message in messages if message.error() is None)
        return wanted in found

    try:
        wait_for(there)
    finally:
        consumer.close()
    return found
