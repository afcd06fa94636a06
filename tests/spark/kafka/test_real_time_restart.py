"""A kill −9 in the middle of a real-time batch: nothing that is kept is lost, and rows are counted once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamshed.lab.bench.kafka import Broker
from tests.spark.helpers import wait_for
from tests.spark.kafka import restart_job
from tests.spark.kafka.helpers import topic

pytestmark = pytest.mark.spark


@contextlib.contextmanager
def killed(folder: Path, broker: Broker, into: str, out: str) -> Iterator[None]:
    """The job, which is killed with its JVM at the end, in whatever it does."""
    with (folder / "words.txt").open("a") as words:
        command = [sys.executable, "-m", "tests.spark.kafka.restart_job", str(folder), broker.address, into, out]
        process = subprocess.Popen(command, stdout=words, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: (folder / "pids.json").exists() or process.poll() is not None, seconds=120)
        assert process.poll() is None, (folder / "words.txt").read_text()[-3000:]
        yield
    finally:
        pids = json.loads((folder / "pids.json").read_text()) if (folder / "pids.json").exists() else []
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


def books(folder: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        return dict(json.loads((folder / "books.json").read_text()))
    return {}


@pytest.mark.complains  # of rows that are a minute old, as they are meant to be
def test_a_job_that_is_killed_in_a_batch_loses_nothing_and_counts_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    into, out = topic(broker, partitions=2), topic(broker)
    stamp = int((time.time() - 60.0) * 1000)
    sent = 0
    seen: set[int] = set()
    times = 0
    consumer = broker.consumer(out)

    def send(count: int, word: str) -> None:
        nonlocal sent
        values = (
            {"value": json.dumps({"n": sent + i, "x": word}).encode(), "timestamp": stamp} for i in range(count)
        )
        sent += broker.put(into, values)

    def came(n: int) -> bool:
        nonlocal times
        messages = [each for each in consumer.consume(100_000, timeout=0.1) if each.error() is None]
        times += len(messages)
        seen.update(json.loads(each.value())["n"] for each in messages)
        return n in seen

    send(2000, "keep")
    send(4000, "old")
    with killed(tmp_path, broker, into, out):
        wait_for(lambda: books(tmp_path).get("arrived", 0) >= 6000)  # a batch is over
        # Spark commits a batch a while after its report, and does not start again from a half-written commit.
        wait_for(lambda: (tmp_path / "state" / "commits" / "0").exists())
        send(3000, "keep")
        wait_for(lambda: came(sent - 1))  # the next one is in the middle
    first = books(tmp_path)
    send(1000, "keep")
    handle, query = restart_job.start(spark, tmp_path, broker.address, into, out)
    wait_for(lambda: handle.report().arrived >= sent, seconds=90)
    wait_for(lambda: came(sent - 1))
    query.stop()
    consumer.close()
    second = restart_job.books(handle)
    handle.close()
    protected = {*range(2000), *range(6000, 10_000)}
    assert protected <= seen  # nothing that is kept is lost
    assert first["arrived"] == 6000
    assert second["arrived"] == sent == 10_000  # every row once, also those of the batch that ran twice
    assert second["unseen"] == 0
    assert second["kept"] >= len(protected)
    assert times >= second["kept"]  # at least once, as Spark promises
    assert sum(counts["arrived"] for counts in second["classes"].values()) == sent
    assert sum(sum(counts["shed"]) for counts in second["classes"].values()) == sent - second["kept"]
