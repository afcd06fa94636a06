"""The operator runner of a node: it works on batches in the order of their arrival, and can be paused (DISSP
4.3)."""

from __future__ import annotations

from collections.abc import Callable

from streamshed.sim.nodes.batch import Batch
from streamshed.sim.nodes.events import Events
from streamshed.sim.nodes.input_buffer import InputBuffer

WorkUnit = Callable[[Batch, float], tuple[float, Callable[[], None]]]
"""Runs a batch through the boxes of its query: core-seconds, and what to do when they have passed."""


class OperatorRunner:
    """One batch after another.

    Paused, it finishes what it has begun and begins nothing: the shedder chooses from what really still waits.
    Without that a batch could be worked on and shed at the same time.
    """

    def __init__(self, events: Events, buffer: InputBuffer, work_unit: WorkUnit, capacity: float) -> None:
        self._events = events
        self._buffer = buffer
        self._work_unit = work_unit
        self.capacity = capacity
        """Core-seconds per second."""
        self._paused = False
        self._working = False
        self._owed = 0.0
        """Core-seconds for results of windows, to be spent before the next batch."""
        self._busy = 0.0
        self._tuples = 0
        self._latency = 0.0
        self._done = 0

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self.poke()

    def poke(self) -> None:
        """Begin with the next batch, if there is one and nothing stands against it."""
        if self._paused or self._working:
            return
        batch = self._buffer.next()
        if batch is None:
            return
        work, leave = self._work_unit(batch, self._events.now)
        seconds = (work + self._owed) / self.capacity
        self._owed = 0.0
        self._working = True

        def finish() -> None:
            self._working = False
            self._busy += seconds
            self._tuples += batch.tuples
            self._latency += self._events.now - batch.received
            self._done += 1
            leave()
            self.poke()

        self._events.at(self._events.now + seconds, finish)

    def owe(self, work: float) -> None:
        self._owed += work

    def measured(self) -> tuple[float, int]:
        """Seconds of work, and tuples worked on, since this was last asked."""
        found = self._busy, self._tuples
        self._busy, self._tuples = 0.0, 0
        return found

    def latencies(self) -> tuple[float, int]:
        """Sum and number of the times that batches spent here, since this was last asked."""
        found = self._latency, self._done
        self._latency, self._done = 0.0, 0
        return found
