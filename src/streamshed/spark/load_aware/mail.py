"""How the tasks' accounts come to the handle of a load-aware operator: an accumulator as a mailbox.

Spark merges accumulators on its scheduler's own thread and waits for the answer of this process. All that happens
then is that the accounts are laid down. The lock here is held for moments, and never while something is stored.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Protocol

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from streamshed.spark.load_aware.cost_stage import Tally

BatchId = tuple[str, int]
"""A query's id and the number of its batch."""
Parcel = dict[BatchId, dict[int, Tally]]
"""By batch, the tallies of its partitions."""
KEPT_BATCHES = 256
"""More than a monitor that is alive ever leaves lying."""


class Receiver(Protocol):
    serial: int

    def receive(self, parcel: Parcel) -> None: ...


class Inbox:
    """Accounts of batches that Spark has not reported yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parcels: Parcel = {}

    def put(self, batch: BatchId, tallies: dict[int, Tally]) -> None:
        with self._lock:
            # A partition that ran again (a lost executor, a second action) replaces its first account.
            self._parcels.setdefault(batch, {}).update(tallies)
            while len(self._parcels) > KEPT_BATCHES:
                del self._parcels[next(iter(self._parcels))]

    def look(self) -> Parcel:
        """What is there now."""
        with self._lock:
            return {batch: dict(tallies) for batch, tallies in self._parcels.items()}

    def take(self, batch: BatchId) -> dict[int, Tally]:
        """The accounts of a batch that is over. Those of earlier batches of its query are not wanted any more."""
        with self._lock:
            tallies = self._parcels.pop(batch, {})
            self._parcels = {b: t for b, t in self._parcels.items() if b[0] != batch[0] or b[1] > batch[1]}
            return tallies

    def forget(self, query: str) -> None:
        with self._lock:
            self._parcels = {batch: tallies for batch, tallies in self._parcels.items() if batch[0] != query}


_RECEIVERS: weakref.WeakValueDictionary[int, Receiver] = weakref.WeakValueDictionary()
"""Handles by serial number; in the driver only."""


def mailbox(spark: SparkSession, receiver: Receiver) -> Accumulator[Parcel]:
    """Where tasks put their accounts for a handle."""
    _RECEIVERS[receiver.serial] = receiver
    return spark.sparkContext.accumulator({}, _Mail(receiver.serial, on_driver=True))


def close_mailbox(receiver: Receiver) -> None:
    """What tasks still send is thrown away from now on."""
    _RECEIVERS.pop(receiver.serial, None)


class _Mail(AccumulatorParam[Parcel]):
    """On the driver, what comes in is handed over and not kept; in a worker, it is gathered for the task's end."""

    def __init__(self, serial: int, *, on_driver: bool) -> None:
        self.serial = serial
        self.on_driver = on_driver

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_worker, (self.serial,)

    def zero(self, value: Parcel) -> Parcel:
        return {}

    def addInPlace(self, value1: Parcel, value2: Parcel) -> Parcel:  # noqa: N802
        if self.on_driver:
            receiver = _RECEIVERS.get(self.serial)
            if receiver is not None:
                receiver.receive(value2)
            return value1
        for batch, tallies in value2.items():
            value1.setdefault(batch, {}).update(tallies)
        return value1


def _in_worker(serial: int) -> _Mail:
    return _Mail(serial, on_driver=False)
