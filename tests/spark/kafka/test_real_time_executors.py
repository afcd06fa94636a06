"""What is in force reaches tasks on separate executors inside a running batch, though they hold every slot."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamshed.lab.bench.kafka import Broker
from tests.spark.executors import Executors
from tests.spark.helpers import wait_for
from tests.spark.kafka.helpers import topic

pytestmark = pytest.mark.cluster

PARTITIONS = 2


@contextmanager
def sending_old_rows(broker: Broker, into: str) -> Iterator[list[int]]:
    """Rows that seem a second old, by turns to the partitions; the numbers of those sent so far.

    They come without a pause: behind one, a queue was empty and does not stand yet. A quick machine was through
    with rows that came in lumps long before the next lump, and dropped none of them.
    """
    producer, sent, ended = broker.producer(), list[int](), threading.Event()

    def send() -> None:
        while not ended.wait(0.005):
            stamp = int((time.time() - 1.0) * 1000)
            for partition in range(PARTITIONS):
                value = json.dumps({"n": len(sent)}).encode()
                producer.produce(into, value=value, partition=partition, timestamp=stamp)
                sent.append(len(sent))
            producer.flush(10)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def test_a_bound_changes_in_a_running_batch_on_separate_executors(
    broker: Broker, tmp_path: Path, executors: Executors
) -> None:
    into, out = topic(broker, partitions=PARTITIONS), topic(broker)
    executors.start("kafka.executors_job", tmp_path, broker.address, into, out)
    consumer = broker.consumer(out)
    collected: set[int] = set()

    def collect() -> None:
        assert not executors.ended(tmp_path)
        messages = consumer.consume(100_000, timeout=0.1)
        collected.update(json.loads(each.value())["n"] for each in messages if each.error() is None)

    def shed_on(partition: int, since: int) -> bool:
        """Whether rows of a partition are missing that were sent before others that came."""
        there = {n for n in collected if n % PARTITIONS == partition and n >= since}
        return bool(there) and len(there) < len(
            [n for n in range(since, max(there) + 1) if n % PARTITIONS == partition]
        )

    with sending_old_rows(broker, into) as sent:
        try:
            # Five JVMs start here; beside other work on two cores that alone has taken two minutes.
            wait_for(lambda: (collect(), (tmp_path / "started").exists())[1], seconds=400)
            wait_for(lambda: (collect(), len(collected) > 20)[1], seconds=200)
            before = len(sent)
            (tmp_path / "tighten").touch()
            wait_for(lambda: (collect(), (tmp_path / "tightened").exists())[1])
            wait_for(lambda: (collect(), all(shed_on(each, before) for each in range(PARTITIONS)))[1])
        finally:
            (tmp_path / "end").touch()
            consumer.close()
    wait_for(lambda: executors.ended(tmp_path))
    assert json.loads((tmp_path / "result.json").read_text()) == {"executors": 2}
