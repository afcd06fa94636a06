"""What is in force, brought to running tasks: a table of numbers that the driver puts into every executor.

A real-time batch lasts for minutes, and its tasks hold their slots: nothing can be sent to them by a job. But
Spark's block store takes blocks without one. The driver puts version n of the table there, as block n of a number
of our own: into its own store, which is also that of the tasks in local mode, and into that of each executor by
the same call with which Spark replicates blocks. A task looks into the store of its own process whether there is a
version after the one it has. Nothing on the way of a row waits for the network.

The first version travels with the code of a batch. Whatever is missing changes nothing, and before the first
version, every row is kept.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

from pyspark.sql import SparkSession

_OWNER = 1_500_000_000  # block ids of streams; those of Spark's old receivers begin with 0
_numbers = itertools.count(_OWNER)
_KEPT_VERSIONS = 1000
# The default of an argument is the one static way to a process's block store that reflection can take.
_STORE = "$lessinit$greater$default$5"


class ExecutorControl:
    """A table of whole numbers that tasks read while they run. Its first entry is its version."""

    def __init__(self, spark: SparkSession, table: list[int]) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        # In local mode the driver's process has the tasks, and nobody to ask for others.
        self._alone = bool(spark.sparkContext._jsc.sc().isLocal())
        self.stream = next(_numbers)
        """The number of its blocks."""
        self._version = 0
        self._versions: dict[int, Any] = {}
        self._served: dict[str, int] = {}
        self.holder = jvm.java.util.concurrent.atomic.AtomicReference(_packed([0, *table]))
        """What tasks begin with: it travels with their code."""

    def publish(self, table: list[int]) -> None:
        """Put another table in force: for tasks that run, and for those to come."""
        self._version += 1
        packed = _packed([self._version, *table])
        self._versions[self._version] = packed
        self._versions.pop(self._version - _KEPT_VERSIONS, None)
        self.holder.set(packed)
        blocks = self._blocks()
        content = self._jvm.org.apache.spark.util.io.ChunkedByteBuffer(self._jvm.java.nio.ByteBuffer.wrap(packed))
        blocks.putBytes(
            self._id(self._version), content, self._level(), False, self._nothing(), False, self._tag()
        )
        self.serve()

    def serve(self) -> None:
        """Give every executor the versions that it does not have yet: new ones have none."""
        if self._alone or not self._versions:
            return
        blocks = self._blocks()
        peers = blocks.getPeers(True)
        for peer in (peers.apply(i) for i in range(peers.size())):
            name = str(peer.executorId())
            for version in range(max(self._served.get(name, 0) + 1, min(self._versions)), self._version + 1):
                buffer = self._jvm.java.nio.ByteBuffer.wrap(self._versions[version])
                blocks.blockTransferService().uploadBlockSync(
                    peer.host(),
                    peer.port(),
                    name,
                    self._id(version),
                    self._jvm.org.apache.spark.network.buffer.NioManagedBuffer(buffer),
                    self._level(),
                    self._tag(),
                    self._nothing(),
                    False,
                )
                self._served[name] = version

    def _blocks(self) -> Any:
        return getattr(self._jvm.org.apache.spark.util.collection.ExternalAppendOnlyMap, _STORE)()

    def _id(self, version: int) -> Any:
        return self._jvm.org.apache.spark.storage.StreamBlockId(self.stream, version)

    def _level(self) -> Any:
        return self._jvm.org.apache.spark.storage.StorageLevel.MEMORY_ONLY_SER()

    def _nothing(self) -> Any:
        return getattr(getattr(self._jvm.scala, "None$"), "MODULE$")

    def _tag(self) -> Any:
        tags = getattr(getattr(self._jvm.scala.reflect, "ClassTag$"), "MODULE$")
        return tags.apply(self._jvm.java.lang.Class.forName("java.lang.Object"))


def _packed(numbers: list[int]) -> bytearray:
    return bytearray(struct.pack(f"<{len(numbers)}q", *numbers))
