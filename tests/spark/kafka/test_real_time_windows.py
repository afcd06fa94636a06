"""A windowed count in real-time mode agrees with the books: the sum of its counts is what was kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.lab.bench.kafka import Broker
from streamshed.spark.real_time.ladder_shedder import LadderShedder
from tests.spark.helpers import wait_for
from tests.spark.kafka.helpers import numbers, put_numbers, read, running, topic

pytestmark = pytest.mark.spark


@pytest.fixture
def one_shuffle_partition(spark: SparkSession) -> Iterator[None]:
    """Both stages of a real-time query run at once, and the tests have two slots."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)  # type: ignore[arg-type]


@pytest.mark.complains  # no row of a batch is young
@pytest.mark.usefixtures("one_shuffle_partition")
def test_the_counts_of_windows_add_up_to_what_was_kept(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    into, out = topic(broker), topic(broker)
    kept = ss.shed(numbers(read(spark, broker, into)), "200 ms", trigger="real-time", name="windows")
    handle = ss.handle(kept)
    assert isinstance(handle, LadderShedder)
    windows = kept.withWatermark("timestamp", "1 hour").groupBy(F.window("timestamp", "1 minute"), F.col("n") % 5)
    counts = windows.count().toDF("window", "key", "count")
    value = F.to_json(F.struct(F.col("window.start").alias("w"), "key", "count")).alias("value")
    put_numbers(broker, into, 0, 20_000, age=60.0)
    with running(counts.select(value), broker, out, tmp_path, batch="6 seconds"):
        wait_for(lambda: handle.report().arrived == 20_000)
    report = handle.report()
    newest: dict[tuple[str, int], int] = {}
    for message in broker.messages(out, quiet=0.5):
        row = json.loads(message.value())
        place = (row["w"], row["key"])
        newest[place] = max(newest.get(place, 0), row["count"])
    assert 0 < report.shed < report.arrived
    assert sum(newest.values()) == report.kept
    # A constant offset between two clocks looks the same.
    assert re.search(r"no row of the batch was younger than \d+(\.\d+)? s at the drop: do the clocks", caplog.text)
    handle.close()
