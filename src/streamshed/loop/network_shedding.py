"""A policy for networks, in the loop: what it is told of the network while it runs, and what it is asked.

A planner compares load with the limit of its catalog. The loop says which share of the work is to be kept; scaling
the rates so that the limit is that share of the load gives the wanted answer, without building its tables
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from streamshed.network.catalog import Catalog
from streamshed.policies.contract import Decision, NetworkPolicy
from streamshed.policies.latency import LatencyPlanner
from streamshed.records import Choice, Flows, Sample

_FORGET = 0.8  # weight of what was counted before against what the newest batch counted
_ENOUGH = 100  # rows that must have entered a box before its selectivity is believed
_LEAST = 1e-6  # share that a planner is asked for when nothing fits


class Rate(Protocol):
    @property
    def value(self) -> float: ...

    def observe(self, rows: float, gap: float) -> None: ...


class NetworkShedding:
    """A network policy, with the rates, selectivities and latencies that were measured."""

    def __init__(
        self,
        policy: NetworkPolicy,
        catalog: Catalog,
        *,
        rate: Callable[[], Rate],
        outputs: Mapping[str, Collection[str]] | None = None,
        nominal: bool = False,
    ) -> None:
        """`catalog` is of what physically runs; `rate` makes what the arrivals of a source are measured with.

        `outputs` has for each query its outputs; all of the network's where it is the only one. `nominal`: the
        catalog's capacity is the true one, and not a scale for proportions.
        """
        self.decision: Decision | None = None
        """The policy's last answer."""
        self._rate = rate
        self._nominal = nominal
        self._outputs = outputs or {}
        self._rates: dict[str, dict[str, Rate]] = {name: {} for name in catalog.rates}
        self._queued: Mapping[str, int] = {}
        self._flows: dict[str, tuple[float, float]] = {}
        self._latencies: dict[str, dict[str, float]] = {}
        self.use(policy, catalog)

    def use(self, policy: NetworkPolicy, catalog: Catalog) -> None:
        """Change the policy, or what is known of the network."""
        self.policy = policy
        self.catalog = catalog
        self._planner = policy.planner(catalog)

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def rates(self) -> dict[str, float]:
        """Rows per second of each source, as measured; those of the catalog where nothing was seen yet."""
        found = dict(self.catalog.rates)
        for source, seen in self._rates.items():
            values = [rate.value for rate in seen.values()]
            if values:
                found[source] = max(values)
        return found

    @property
    def load(self) -> float:
        """Core-seconds per second that the measured rates ask for, by the catalog."""
        return self.catalog.measured(rates=self.rates).load

    def limit(self, full_share: float | None) -> float | None:
        """The load that can be carried, on the catalog's scale, if this share of what arrives fits.

        None while it is not known; and when nothing fits, however little there is to do, because what a batch
        costs in any case is more than the bound allows: then it is no amount of load that is in the way.
        """
        limit = 0.0 if full_share is None else self.load * full_share
        return limit if limit > 0.0 else None

    @property
    def selectivities(self) -> dict[str, float]:
        """Rows out per row in of each box, as measured while nothing was dropped."""
        return {box: out / entered for box, (entered, out) in self._flows.items() if entered >= _ENOUGH}

    @property
    def latencies(self) -> dict[str, float]:
        """Of each output, the latency of its last batch."""
        return {output: each for latencies in self._latencies.values() for output, each in latencies.items()}

    def learn(self, sample: Sample) -> None:
        if not sample.finished:
            return
        flows = sample.flows or Flows()
        everything = [output.name for output in self.catalog.network.outputs]
        alike = dict.fromkeys(self._outputs.get(sample.query, everything), sample.latency)
        self._latencies[sample.query] = dict(flows.latencies) if self._nominal else alike
        self._queued = flows.queued
        for source, rows in flows.arrived.items():
            seen = self._rates[source]
            if sample.query not in seen:
                seen[sample.query] = self._rate()
            seen[sample.query].observe(rows, sample.gap)
        if flows.thinned:
            return  # drops by value change what filters see; what passes then says little of the whole
        for box, rows in flows.left.items():
            entered = sum(flows.passed.get(name, 0) for name in self.catalog.network.arcs_into(box))
            before = self._flows.get(box, (0.0, 0.0))
            self._flows[box] = (before[0] * _FORGET + entered, before[1] * _FORGET + rows)

    def choose(self, share: float) -> Choice:
        rates = self.rates
        self.decision = self.decide(share, rates)
        row = self.decision.row
        if row is None:
            return Choice()
        load = self.catalog.measured(rates=rates).load
        left = max(0.0, 1.0 - row.saved(rates) / load) if load > 0 else 1.0
        return Choice(self.decision.drops, left)

    def decide(self, share: float, rates: Mapping[str, float]) -> Decision:
        """The policy's answer for a load of which this share fits."""
        load = self.catalog.measured(rates=rates).load
        factor = self.catalog.limit / (max(share, _LEAST) * load) if load > 0 else 1.0
        if self._nominal and share >= 1.0:
            factor = 1.0
        scaled = {name: rate * factor for name, rate in rates.items()}
        if isinstance(self._planner, LatencyPlanner):
            return self._planner.decide(scaled, latencies=self.latencies, queues=self._queued or None)
        return self._planner.decide(scaled)
