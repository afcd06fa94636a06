"""What is in force reaches tasks on separate executors inside a running batch, though they hold every slot."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamshed.lab.bench.kafka import Broker
from tests.spark.helpers import wait_for
from tests.spark.kafka.helpers import topic

pytestmark = pytest.mark.cluster


def test_a_bound_changes_in_a_running_batch_on_separate_executors(broker: Broker, tmp_path: Path) -> None:
    into, out = topic(broker, partitions=2), topic(broker)
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.kafka.executors_job", str(tmp_path), broker.address, into, out],
        stdout=(tmp_path / "out.txt").open("w"),
        stderr=subprocess.STDOUT,
    )
    collected: list[tuple[int, int]] = []
    consumer = broker.consumer(out)
    producer = broker.producer()
    serials = iter(range(1_000_000))
    sent: dict[int, int] = {}

    def send(count: int) -> None:
        """Rows that seem a second old, on both partitions; what came out is collected."""
        stamp = int((time.time() - 1.0) * 1000)
        for serial in (next(serials) for _ in range(count)):
            sent[serial] = serial % 2
            value = json.dumps({"n": serial}).encode()
            producer.produce(into, value=value, partition=serial % 2, timestamp=stamp)
        producer.flush(10)
        messages = [each for each in consumer.consume(100_000, timeout=0.1) if each.error() is None]
        collected.extend((json.loads(each.value())["n"], sent[json.loads(each.value())["n"]]) for each in messages)

    def shed_on(partition: int, since: int) -> bool:
        """Whether rows of a partition are missing that were sent before others that came."""
        there = {n for n, place in collected if place == partition and n >= since}
        newest = max(there, default=since)
        return len(there) < sum(place == partition and since <= n <= newest for n, place in sent.items())

    try:
        # Five JVMs start here; beside other work on two cores that alone has taken two minutes.
        wait_for(lambda: (alive(job, tmp_path), (tmp_path / "started").exists())[1], seconds=400)
        wait_for(lambda: (send(2), alive(job, tmp_path), len(collected) > 20)[2], seconds=200)
        before = next(serials)
        (tmp_path / "tighten").touch()
        wait_for(lambda: (send(50), alive(job, tmp_path), (tmp_path / "tightened").exists())[2])
        assert json.loads((tmp_path / "tightened").read_text())["executors"] == 2
        wait_for(lambda: (send(400), alive(job, tmp_path), shed_on(0, before) and shed_on(1, before))[2])
    finally:
        (tmp_path / "end").touch()
        consumer.close()
        job.wait(60)


def alive(job: subprocess.Popen[bytes], folder: Path) -> None:
    problem = folder / "problem"
    assert job.poll() is None, (folder / "out.txt").read_text()[-3000:]
    assert not problem.exists(), problem.read_text()
