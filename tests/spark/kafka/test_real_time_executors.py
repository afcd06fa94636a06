"""What is in force reaches tasks on separate executors inside a running batch, though they hold every slot."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from streamshed.lab.bench.kafka import Broker
from tests.spark.executors import Executors
from tests.spark.helpers import wait_for
from tests.spark.kafka.helpers import topic

pytestmark = pytest.mark.cluster


def test_a_bound_changes_in_a_running_batch_on_separate_executors(
    broker: Broker, tmp_path: Path, executors: Executors
) -> None:
    into, out = topic(broker, partitions=2), topic(broker)
    executors.start("kafka.executors_job", tmp_path, broker.address, into, out)
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

    def runs() -> None:
        assert not executors.ended(tmp_path)

    try:
        # Five JVMs start here; beside other work on two cores that alone has taken two minutes.
        wait_for(lambda: (runs(), (tmp_path / "started").exists())[1], seconds=400)
        wait_for(lambda: (send(2), runs(), len(collected) > 20)[2], seconds=200)
        before = next(serials)
        (tmp_path / "tighten").touch()
        wait_for(lambda: (send(50), runs(), (tmp_path / "tightened").exists())[2])
        wait_for(lambda: (send(400), runs(), shed_on(0, before) and shed_on(1, before))[2])
    finally:
        (tmp_path / "end").touch()
        consumer.close()
    wait_for(lambda: executors.ended(tmp_path))
    assert json.loads((tmp_path / "result.json").read_text()) == {"executors": 2}
