"""A real Kafka for tests, benchmarks and examples: one broker here, from jars that `make kafka` fetched.

    with Broker() as broker:
        broker.create("in", partitions=2)
        spark.readStream.format("kafka").options(**broker.source("in")).load()

The broker is a process of its own (KRaft, no ZooKeeper), listens on the loopback interface only, keeps its log in
a temporary folder, and ends with the `with`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from streamshed.errors import EnvironmentProblem
from streamshed.spark.session import check_java

if TYPE_CHECKING:
    from typing_extensions import Self

_HEAP = "-Xmx512m"
_READY_WITHIN = 90.0  # seconds; on an idle machine it takes 8
_ENDS_WITHIN = 10.0


def jars_folder() -> Path:
    """Where `make kafka` puts its jars: STREAMSHED_KAFKA, or .kafka in this folder or one above it."""
    named = os.environ.get("STREAMSHED_KAFKA")
    if named:
        return Path(named)
    here = Path.cwd()
    return next((each / ".kafka" for each in (here, *here.parents) if (each / ".kafka").is_dir()), here / ".kafka")


def missing() -> str | None:
    """Why there is no Kafka to be had here; None if there is."""
    folder = jars_folder()
    problem = folder / "problem.txt"
    if problem.exists():
        return problem.read_text().strip()
    if not (folder / ".ready").exists():
        return f"there are no jars of Kafka in {folder}: run make kafka"
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return "there is no client: install confluent-kafka"
    return None


def connector() -> str:
    """The jars of Spark's own source and sink, as `spark.jars` wants them."""
    _check()
    return ",".join(str(jar) for jar in sorted((jars_folder() / "connector").glob("*.jar")))


def _check() -> None:
    problem = missing()
    if problem is not None:
        raise EnvironmentProblem("there is no Kafka here", got=problem, hint="run: make kafka")


class Kafka:
    """A Kafka that runs somewhere: its topics, and what is in them."""

    def __init__(self, address: str) -> None:
        _check()
        from confluent_kafka.admin import AdminClient

        self.address = address
        self._admin: Any = AdminClient(self._client())

    def create(self, topic: str, partitions: int = 1, **settings: str) -> str:
        """A new topic; settings with _ for the dots of Kafka's names. Its name is given back."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        self._admin.create_topics([new])[topic].result(30)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """More partitions for a topic."""
        from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def _client(self) -> dict[str, Any]:
        # A broker that is away is no news here: its clients must not fill the screen with it.
        return {"bootstrap.servers": self.address, "log_level": 0, "broker.address.family": "v4"}

    # For Spark.

    def source(self, topics: str, **options: str) -> dict[str, str]:
        """Options to read from it."""
        return {
            "kafka.bootstrap.servers": self.address,
            "subscribe": topics,
            "startingOffsets": "earliest",
            **options,
        }

    def sink(self, topic: str | None = None) -> dict[str, str]:
        """Options to write to it: all to one topic, or each row to that of its column `topic`."""
        whither = {} if topic is None else {"topic": topic}
        return {"kafka.bootstrap.servers": self.address, **whither}

    # For Python.

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        return Producer({**self._client(), "linger.ms": 2, "queue.buffering.max.messages": 2_000_000, **settings})

    def put(self, topic: str, messages: Iterable[dict[str, Any]]) -> int:
        """Send messages (key, value, headers, partition, timestamp) and wait until it has them; how many."""
        producer, count = self.producer(), 0
        for message in messages:
            producer.produce(topic, **message)
            count += 1
        if producer.flush(60) > 0:
            raise EnvironmentProblem("the broker did not take all messages", got=self.address)
        return count

    def consumer(self, *topics: str) -> Any:
        """A consumer of all that is and will be in some topics."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": uuid.uuid4().hex, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer({**self._client(), **settings})
        places = [TopicPartition(topic, at, 0) for topic in topics for at in _partitions(consumer, topic)]
        consumer.assign(places)
        return consumer

    def messages(self, topic: str, quiet: float = 1.0) -> list[Any]:
        """All messages that a topic has now; it is over when nothing came for `quiet` seconds."""
        consumer, found = self.consumer(topic), list[Any]()
        try:
            while batch := consumer.consume(10_000, timeout=quiet):
                found += [message for message in batch if message.error() is None]
        finally:
            consumer.close()
        return found


def _partitions(consumer: Any, topic: str) -> list[int]:
    """The partitions of a topic; one that was just created has none for a moment."""
    deadline = time.monotonic() + 30.0
    while True:
        found = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        if found:
            return found
        if time.monotonic() > deadline:
            raise EnvironmentProblem("the broker has no such topic", got=topic)
        time.sleep(0.05)


def cluster_id(drawn: bytes) -> str:
    """A name for a cluster as Kafka has them. None begins with a dash: its tool would take that for an option.

    >>> cluster_id(bytes([0xFB] * 16))
    'e_v7-_v7-_v7-_v7-_v7-w'
    """
    return urlsafe_b64encode(bytes([drawn[0] & 0x7F]) + drawn[1:]).decode().rstrip("=")


class Broker(Kafka):
    """One Kafka broker, started here; a context manager."""

    def __init__(self) -> None:
        port, controller = _free_ports(2)
        super().__init__(f"127.0.0.1:{port}")
        self._java = check_java()
        self._folder = Path(tempfile.mkdtemp(prefix="streamshed-kafka-"))
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "log"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "log.cleaner.backoff.ms": "200",
        }
        self._settings = self._folder / "broker.properties"
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        identity = cluster_id(uuid.uuid4().bytes)
        with (self._folder / "format.txt").open("wb") as words:
            subprocess.run(
                self._command("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(self._settings)),
                stdout=words, stderr=words, check=True,
            )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _command(self, main: str, *arguments: str) -> list[str]:
        jars = jars_folder() / "broker" / "*"
        return [
            str(self._java),
            _HEAP,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            str(jars),
            main,
            *arguments,
        ]

    def start(self) -> None:
        """Start it, or start it again after `stop`, with the log that it had."""
        with (self._folder / "words.txt").open("ab") as words:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        deadline = time.monotonic() + _READY_WITHIN
        while True:
            with contextlib.suppress(Exception):
                if self._admin.list_topics(timeout=1.0).brokers:
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "words.txt").read_text(errors="replace")[-2000:]
                raise EnvironmentProblem(
                    "the Kafka broker did not start", got=said, hint="is there memory for it?"
                )
            time.sleep(0.1)

    def stop(self, *, kill: bool = False) -> None:
        """Have it go away; topics stay, for `start`."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        self.stop(kill=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Collector:
    """Reads topics in a thread of its own while they are written."""

    def __init__(self, broker: Kafka, *topics: str) -> None:
        self.keys: list[bytes] = []
        self.times: list[int] = []
        """When the broker had each, or the producer sent it, as the topic is set: milliseconds since 1970."""
        self._consumer = broker.consumer(*topics)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(10_000, timeout=0.2):
                if message.error() is None:
                    self.keys.append(message.key())
                    self.times.append(message.timestamp()[1])

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()


@contextlib.contextmanager
def collecting(broker: Kafka, *topics: str) -> Iterator[Collector]:
    collector = Collector(broker, *topics)
    try:
        yield collector
    finally:
        collector.close()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
