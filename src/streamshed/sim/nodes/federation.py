"""Many nodes, queries spread over them, and a coordinator for each query (DISSP 4.3), in virtual time.

    sources ─► node ─► node ─► result        batches carry their SIC along
                 ▲       ▲        │
                 └───────┴── coordinator     tells the query's SIC to its nodes, at intervals and with a delay

Each node sheds for itself, by what it knows of its queries: no node knows the others' load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from streamshed.network.graph import Box, Source
from streamshed.network.texts import texts
from streamshed.quality.ledger import Ledger
from streamshed.quality.node_statistics import STATISTICS_INTERVAL, NodeStatistics
from streamshed.quality.report import OutputCounts, Report
from streamshed.quality.sic import jain
from streamshed.quality.source_time_window import QueryWindow, SourceTimeWindow, thinned
from streamshed.sim.network.rows import Rows
from streamshed.sim.network.values import Values
from streamshed.sim.nodes.batch import Batch
from streamshed.sim.nodes.deployment import FederatedQuery, FederationSettings, Incident, check
from streamshed.sim.nodes.events import Events
from streamshed.sim.nodes.local_sic import Told
from streamshed.sim.nodes.processing_node import ProcessingNode
from streamshed.sim.nodes.shedders import shedder
from streamshed.sim.nodes.subquery import Subquery

JITTER = 0.2
"""How much earlier or later than the mean time a source sends its next batch, as a share of it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The SIC of all queries that run, as their users see it."""

    at: float
    sic: Mapping[str, float]

    @property
    def jain(self) -> float:
        return jain(self.sic.values())


class _Feed:
    """What a source sends: a steady number of tuples a second."""

    def __init__(self, source: Source, values: Values, rng: np.random.Generator) -> None:
        self.source = source
        self.rng = rng
        self._values = values
        self._sent = 0
        self._owed = 0.0

    def rows(self, since: float, now: float) -> Rows:
        self._owed += self.source.rate * (now - since)
        count = int(self._owed)
        self._owed -= count
        times = now - (now - since) * np.arange(count)[::-1] / max(1, count)
        uid = np.arange(self._sent, self._sent + count, dtype=np.uint64)
        self._sent += count
        return Rows(self._values.draw(times), times, uid)


class _Coordinator:
    """Watches a query's results, and tells its nodes."""

    def __init__(self, query: FederatedQuery, window: SourceTimeWindow) -> None:
        self.account = QueryWindow(window, [source.name for source in query.network.sources])
        self.delivered = 0
        self.late: float | None = None
        self.running = False


class Federation:
    """A run in virtual time. `run` may be called again to go on."""

    def __init__(
        self,
        nodes: Mapping[str, float],
        queries: Sequence[FederatedQuery],
        settings: FederationSettings | None = None,
        incidents: Sequence[Incident] = (),
    ) -> None:
        """`nodes`: their capacities, core-seconds per second."""
        self.settings = settings = settings or FederationSettings()
        check(nodes, queries, settings, incidents)
        self.queries = tuple(queries)
        self.history: list[Moment] = []
        self.ledger = Ledger()
        self.results: dict[str, list[Rows]] = {query.name: [] for query in queries}
        self.arrived = 0
        self._events = Events()
        sources = sum(len(query.network.sources) for query in queries)
        chance, *seeds = np.random.SeedSequence(settings.seed).spawn(1 + sources)
        rng = np.random.default_rng(chance)
        self.nodes = {
            name: ProcessingNode(
                name,
                self._events,
                capacity,
                shedder(settings.shedder, np.random.default_rng(rng.integers(1 << 62))),
                self._send,
                settings.window,
                interval=settings.interval,
                decision=settings.decision,
                predicting=settings.predicting,
            )
            for name, capacity in nodes.items()
        }
        for node in self.nodes.values():
            node.start(rng.uniform(0.5, 1.0) * settings.interval)
            self._tell_of(node, 0, 0, 0.0)
        self._coordinators = [_Coordinator(query, settings.window) for query in queries]
        spread = iter(seeds)
        for number, query in enumerate(queries):
            asked = texts(query.network)
            self._events.at(query.starts, partial(self._come, number))
            if query.ends < float("inf"):
                self._events.at(query.ends, partial(self._go, number))
            for source in query.network.sources:
                phase, values = next(spread).spawn(2)
                feed = _Feed(source, Values(source, values, asked[source.name]), np.random.default_rng(phase))
                first = query.starts + feed.rng.uniform(0, 1) / query.batches
                self._events.at(first, partial(self._emit, number, feed, query.starts))
        for incident in incidents:
            self._events.at(incident.at, partial(self._befall, incident))
        self._events.at(1.0, self._look)

    def run(self, until: float, progress: Callable[[float], None] | None = None) -> None:
        """Go on until a time, seconds."""
        while self._events.now < until:
            self._events.run(min(until, self._events.now + 1.0))
            if progress:
                progress(self._events.now)

    # ── what happened ────────────────────────────────────────────────────────────────────────────

    def sic(self) -> dict[str, float]:
        """Of the queries that run, now."""
        return {
            query.name: each.account.sic(self._events.now)
            for query, each in zip(self.queries, self._coordinators, strict=True)
            if each.running
        }

    @property
    def throughput(self) -> float:
        """Tuples worked on per second, by all nodes, from the beginning."""
        return sum(node.tuples for node in self.nodes.values()) / self._events.now

    def warnings(self) -> list[str]:
        """Queries whose window is too short to see their results in."""
        return [
            f"{query.name}: the source time window of {self.settings.window.seconds:g} s is not longer than the"
            f" query's delay of {each.late:.2f} s; its SIC is not to be relied on: take a longer window"
            for query, each in zip(self.queries, self._coordinators, strict=True)
            if each.late is not None
        ]

    def report(self) -> Report:
        """The same as elsewhere; an output is a query here, and tuples shed are those of any node."""
        shed = sum(node.shedder.shed for node in self.nodes.values())
        told = self.ledger.report()
        return Report(
            arrived=self.arrived,
            kept=max(0, self.arrived - shed),
            batches=len(self.history),
            by_output={
                query.name: OutputCounts(each.delivered, information=each.account.totals())
                for query, each in zip(self.queries, self._coordinators, strict=True)
            },
            by_node=told.by_node,
        )

    # ── what happens ─────────────────────────────────────────────────────────────────────────────

    def _come(self, number: int) -> None:
        query = self.queries[number]
        self._coordinators[number].running = True
        for place in query.places:
            boxes = [box for box, node in query.nodes.items() if node == place]
            if self.nodes[place].up:
                subquery = Subquery(query.network, boxes, self.settings.lateness)
                self.nodes[place].deploy(number, subquery, query.weight, query.minimum)
        if self.settings.feedback is not None:
            self._events.at(self._events.now + self.settings.feedback, partial(self._feed_back, number))

    def _go(self, number: int) -> None:
        self._coordinators[number].running = False
        for place in self.queries[number].places:
            self.nodes[place].remove(number)

    def _befall(self, incident: Incident) -> None:
        node = self.nodes[incident.node]
        if incident.capacity > 0:
            node.runner.capacity = incident.capacity
        else:
            node.fail()

    def _emit(self, number: int, feed: _Feed, before: float) -> None:
        """A source sends what it has had since it last sent."""
        query, coordinator, now = self.queries[number], self._coordinators[number], self._events.now
        if not coordinator.running:
            return
        source = feed.source.name
        rows = feed.rows(before, now)
        if len(rows):
            mass = coordinator.account.sent(source, len(rows), now)
            sic = len(rows) * coordinator.account.row_sic(source, now)
            below = query.network.consumers[source]
            share = 1.0 / len(below)
            self.arrived += len(rows)
            for name in below:
                node = query.network.nodes[name]
                side = node.inputs.index(source) if isinstance(node, Box) else 0
                self._send(Batch(number, name, side, rows, thinned(mass, share), sic * share, now))
        # Sources do not keep time with the shedders: their batches would always fall on the same side of a look.
        pause = feed.rng.uniform(1.0 - JITTER, 1.0 + JITTER) / query.batches
        self._events.at(now + pause, partial(self._emit, number, feed, now))

    def _send(self, batch: Batch) -> None:
        """Hand a batch to the node of the box it goes to, or to the user."""
        query, coordinator = self.queries[batch.query], self._coordinators[batch.query]
        if batch.to in query.nodes:
            receiver = self.nodes[query.nodes[batch.to]]
            self._events.at(self._events.now + self.settings.link, partial(receiver.receive, batch))
            return
        coordinator.account.delivered(batch.mass, self._events.now)
        coordinator.late = coordinator.account.too_short or coordinator.late
        coordinator.delivered += len(batch.rows)
        if self.settings.results and len(batch.rows):
            self.results[query.name].append(batch.rows)

    def _feed_back(self, number: int) -> None:
        coordinator, now = self._coordinators[number], self._events.now
        if not coordinator.running:
            return
        told = Told(coordinator.account.sic(now), coordinator.account.covered(now))
        for place in self.queries[number].places:
            self._events.at(now + self.settings.feedback_delay, partial(self._hear, place, number, told))
        assert self.settings.feedback is not None
        self._events.at(now + self.settings.feedback, partial(self._feed_back, number))

    def _hear(self, place: str, number: int, told: Told) -> None:
        local = self.nodes[place].local.get(number)
        if local is not None:
            local.told = told

    def _look(self) -> None:
        self.history.append(Moment(self._events.now, self.sic()))
        self._events.at(self._events.now + 1.0, self._look)

    def _tell_of(self, node: ProcessingNode, tuples: int, shed: int, at: float) -> None:
        """Statistics of a node, once a minute."""
        if at:
            seconds = self._events.now - at
            found = self.sic()
            mine = [found[name] for q in node.subqueries if (name := self.queries[q].name) in found]
            latency, batches = node.runner.latencies()
            statistics = NodeStatistics(
                node=node.name,
                at=self._events.now,
                sic_mean=float(np.mean(mine)) if mine else 1.0,
                shed=(node.shedder.shed - shed) / seconds,
                throughput=(node.tuples - tuples) / seconds,
                latency=latency / batches if batches else 0.0,
                running=len(node.subqueries),
                connected=sum(all(self.nodes[p].up for p in self.queries[q].places) for q in node.subqueries),
            )
            self.ledger.enter_node(statistics)
        now = self._events.now
        again = partial(self._tell_of, node, node.tuples, node.shedder.shed, max(now, 1e-9))
        self._events.at(now + STATISTICS_INTERVAL, again)
