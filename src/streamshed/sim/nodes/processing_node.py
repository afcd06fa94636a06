"""A processing node: subqueries, an input buffer, an operator runner and a load-shedder (DISSP 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streamshed.policies.fair import Admitted, Batches, Floats
from streamshed.quality.source_time_window import SourceTimeWindow
from streamshed.sim.nodes.batch import Batch
from streamshed.sim.nodes.events import Events
from streamshed.sim.nodes.input_buffer import InputBuffer
from streamshed.sim.nodes.local_sic import LocalSic
from streamshed.sim.nodes.node_shedder import DECISION, INTERVAL, NodeShedder
from streamshed.sim.nodes.operator_runner import OperatorRunner
from streamshed.sim.nodes.shedders import BatchShedder
from streamshed.sim.nodes.subquery import Subquery


class ProcessingNode:
    """send: takes batches that leave the node, for other nodes or as results"""

    def __init__(
        self,
        name: str,
        events: Events,
        capacity: float,
        shedder: BatchShedder,
        send: Callable[[Batch], None],
        window: SourceTimeWindow,
        *,
        interval: float = INTERVAL,
        decision: float = DECISION,
        predicting: bool = True,
    ) -> None:
        self.name = name
        self.up = True
        self.subqueries: dict[int, Subquery] = {}
        self.local: dict[int, LocalSic] = {}
        self.tuples = 0
        """Worked on, since the node began."""
        self._weights: dict[int, tuple[float, float]] = {}
        self._events = events
        self._send = send
        self._policy = shedder
        self._window = window
        self._predicting = predicting
        self._interval = interval
        self.buffer = InputBuffer()
        self.runner = OperatorRunner(events, self.buffer, self._work, capacity)
        self.shedder = NodeShedder(
            events, self.buffer, self.runner, self._choose, interval=interval, decision=decision
        )

    def start(self, offset: float) -> None:
        """Begin with the cycles; nodes do not look at the same moment."""
        self._events.at(offset, self.shedder.cycle)
        self._events.at(offset, self._flush)

    def deploy(self, query: int, subquery: Subquery, weight: float, minimum: float) -> None:
        self.subqueries[query] = subquery
        self.local[query] = LocalSic(self._window, predicting=self._predicting)
        self._weights[query] = (weight, minimum)

    def remove(self, query: int) -> None:
        for kept in (self.subqueries, self.local, self._weights):
            kept.pop(query, None)

    def fail(self) -> None:
        """All that it holds is lost, and all that is sent to it from now on."""
        self.up = False
        self.buffer.clear()
        self.subqueries.clear()
        self.local.clear()

    def receive(self, batch: Batch) -> None:
        if not self.up or batch.query not in self.subqueries:
            return  # lost
        batch.received = self._events.now
        self.local[batch.query].seen(batch.sent)
        self.buffer.put(batch)
        self.runner.poke()

    def _work(self, batch: Batch, now: float) -> tuple[float, Callable[[], None]]:
        subquery = self.subqueries.get(batch.query)
        if subquery is None:  # the query has gone meanwhile
            return 0.0, lambda: None
        self.local[batch.query].let_in(batch.sic, batch.sent)
        self.tuples += batch.tuples
        work, leaving = subquery.process(batch, now)
        return work, lambda: self._hand_on(batch.query, leaving)

    def _flush(self) -> None:
        if not self.up:
            return
        for query, subquery in self.subqueries.items():
            work, leaving = subquery.flush(self._events.now)
            self.runner.owe(work)
            self._hand_on(query, leaving)
        self._events.at(self._events.now + self._interval, self._flush)

    def _hand_on(self, query: int, leaving: Sequence[Batch]) -> None:
        if self.up:
            for batch in leaving:
                batch.query = query
                self._send(batch)

    def _choose(self, waiting: tuple[Batch, ...], tuples: float) -> Admitted:
        queries = sorted({batch.query for batch in waiting})
        place = {query: number for number, query in enumerate(queries)}
        last = self._window.number(self._events.now)
        here = [query in self.local for query in queries]
        lived = [
            self.local[query].lived(last) if known else 1.0 for query, known in zip(queries, here, strict=True)
        ]
        projected: Floats = np.array(
            [self.local[q].now(self._events.now) if known else 1.0 for q, known in zip(queries, here, strict=True)]
        )
        weights, minimum = np.array([self._weights.get(query, (1.0, 0.0)) for query in queries]).T
        batches = Batches(
            np.array([place[batch.query] for batch in waiting], np.int64),
            np.array([batch.tuples for batch in waiting], np.int64),
            np.array([batch.sic / lived[place[batch.query]] for batch in waiting]),
        )
        return self._policy.choose(batches, tuples, projected, weights, minimum)
