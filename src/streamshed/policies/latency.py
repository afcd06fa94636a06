"""Policy `latency`: Aurora's run-time load shedding, driven by the outputs that are late.

Carney et al., Monitoring Streams, VLDB 2002, section on load shedding; knees are those of the latency
graphs. Each time it is asked:

1. Late outputs are those whose latency is past the knee of their latency graph. If there is too much load
   but nobody is late yet, or no latencies are known, every output counts as late.
2. To shed is what exceeds the limit, and the work that waits beyond the goals, spread over `drain` seconds:
       load − limit + (queued rows × load coefficient of their arc, or (latency − knee) · limit) / drain
3. It is shed on branches that end only in late outputs, by the slope of their loss graphs, as in the road
   map. If these do not yield enough, all active outputs have to give.
4. Where more than `large` seconds' worth of rows stand in a queue, the drop goes there and not upstream of
   it, so that the rows that wait are dropped too; unless the load would then not fit.

Outputs that the scheduler calls inactive are left alone.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("pair").source("a", "x INT", rate=60).source("b", "x INT", rate=60)
...     .filter("f", "a", "x > 0", cost=0.01).filter("g", "b", "x > 0", cost=0.01)
...     .output("fast", "f", latency=[(0, 1), (1, 1), (5, 0)])
...     .output("slow", "g", latency=[(0, 1), (60, 1), (90, 0)]).build()
... )
>>> planner = Latency(drain=10).planner(Catalog.of(network))
>>> decision = planner.decide(latencies={"fast": 3.0, "slow": 3.0})
>>> [(drop.at, round(drop.keep, 2)) for drop in decision.drops]
[('a->f', 0.2)]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.graph import ends
from streamshed.network.parse_step import lifted_queues, with_parse_boxes
from streamshed.network.value_flow.cells import below
from streamshed.network.value_flow.certainty import certainties
from streamshed.policies.contract import SLACK, Decision, overload, with_rates
from streamshed.policies.parse_planner import LoweredRows
from streamshed.policies.road_map.random import STEP_SIZE, build
from streamshed.policies.road_map.table import RoadMap


@dataclass(frozen=True)
class Latency:
    """`latency`."""

    drain: float = 5.0
    """Seconds within which waiting work is to be worked off."""
    large: float = 1.0
    """A queue is large when it holds more than this many seconds' worth of its arc's rows."""
    step: float = STEP_SIZE
    name: str = "latency"

    def __post_init__(self) -> None:
        if not self.drain > 0 or not self.large > 0:
            raise InvalidArgument("drain and large are seconds above 0", got=(self.drain, self.large))

    def planner(self, catalog: Catalog) -> LatencyPlanner:
        return LatencyPlanner(self, catalog)


class LatencyPlanner:
    def __init__(self, policy: Latency, catalog: Catalog) -> None:
        self.policy = policy
        self._own = catalog
        # It plans for the network in which parses are boxes, and answers in the network's own arcs.
        catalog = self.catalog = with_parse_boxes(catalog)
        self.outputs = {output.name: output for output in catalog.network.outputs}
        self.ends_in = {name: frozenset(below(catalog.network, name)[1]) for name in catalog.network.arcs}
        self._certainty = certainties(catalog)
        self._tables: dict[tuple[frozenset[str], frozenset[str]], RoadMap] = {}

    def decide(
        self,
        rates: Mapping[str, float] | None = None,
        *,
        latencies: Mapping[str, float] | None = None,
        queues: Mapping[str, float] | None = None,
        inactive: Collection[str] = (),
    ) -> Decision:
        """`latencies` in seconds by output, `queues` in rows by arc, as measured; both may be unknown."""
        catalog = with_rates(self.catalog, rates)
        queues = None if queues is None else lifted_queues(queues, self._own)
        active = frozenset(self.outputs) - frozenset(inactive)
        waits = {
            name: seconds - graph.knee
            for name, seconds in (latencies or {}).items()
            if name in active and (graph := self.outputs[name].qos.latency) is not None and seconds > graph.knee
        }
        if queues:
            waiting = sum(rows * catalog.coefficients[name] for name, rows in queues.items())
        else:
            waiting = max(waits.values(), default=0.0) * catalog.limit
        late = frozenset(waits) or active
        excess = catalog.load - catalog.limit + (waiting / self.policy.drain if waits else 0.0)
        if overload(catalog) == 0.0 and (not waits or excess <= SLACK * catalog.limit):
            return self._decision(catalog, (), None, 0.0)
        full = frozenset(
            name
            for name, rows in (queues or {}).items()
            if rows > self.policy.large * catalog.arc_rates[name] and rows > 0
        )
        wanted = excess - SLACK * catalog.limit
        tries = [(late, full), (late, frozenset[str]()), (active, full), (active, frozenset[str]())]
        for outputs, at in dict.fromkeys(tries):
            table = self._table(outputs, at)
            row = table.look_up(wanted, catalog.rates)
            if row < len(table):
                return self._decision(catalog, table, row, 0.0)
        remaining = excess - (table[len(table) - 1].saved(catalog.rates) if len(table) else 0.0)
        return self._decision(catalog, table, len(table) - 1 if len(table) else None, remaining)

    def _decision(
        self, catalog: Catalog, table: RoadMap | tuple[()], chosen: int | None, remaining: float
    ) -> Decision:
        rows = LoweredRows(table, self._own) if self._own.parses else table
        return Decision(
            self.policy.name, catalog.load, catalog.limit, rows, chosen, remaining, certainty=self._certainty
        )

    def _table(self, outputs: frozenset[str], full: frozenset[str]) -> RoadMap:
        """The road map of drops that touch these outputs only, below large queues."""
        key = (outputs, full)
        if key not in self._tables:
            above = self._stretches(full)
            self._tables[key] = build(
                self.catalog,
                self.policy.step,
                extra=full,
                movable=lambda name: self.ends_in[name] <= outputs and name not in above,
            )
        return self._tables[key]

    def _stretches(self, full: frozenset[str]) -> frozenset[str]:
        """Arcs above a large queue from which rows can go nowhere else."""
        network = self.catalog.network
        found: set[str] = set()
        for name in full:
            tail = ends(name)[0]
            while tail in network.nodes and len(network.consumers[tail]) == 1:
                into = network.arcs_into(tail)
                found.update(into)
                if len(into) != 1:
                    break
                tail = ends(into[0])[0]
        return frozenset(found - full)
