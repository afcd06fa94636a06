"""A policy for networks, in the loop: what it is told of the network while it runs, and what it is asked.

A planner compares load with the limit of its catalog. The loop says which share of the work is to be kept; scaling
the rates so that the limit is that share of the load gives the wanted answer, without building its tables
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from streamshed.network.catalog import Catalog
from streamshed.network.graph import ends
from streamshed.policies.contract import Decision, NetworkPolicy
from streamshed.policies.fair_network import FairPlanner
from streamshed.policies.latency import LatencyPlanner
from streamshed.quality.recent_information import RecentInformation
from streamshed.quality.sic import information
from streamshed.records import Choice, Flows, Sample

_FORGET = 0.8  # weight of what was counted before against what the newest batch counted
_ENOUGH = 100  # rows that must have entered a box before its selectivity is believed
_SILENT = 5.0  # a query is silent after so many times the length of its last batch and of the wait before it
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
        self._queued: dict[str, Mapping[str, float]] = {}
        self._heard: dict[str, tuple[float, float]] = {}
        """Of each query, when it last had rows in a batch, and how long that took with the wait before it."""
        self._now = 0.0
        self._flows: dict[str, tuple[float, float]] = {}
        self._latencies: dict[str, dict[str, float]] = {}
        self._information = RecentInformation()
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
    def steady(self) -> bool:
        """`fair` goes by what outputs had: by Algorithm 1 it decides in every interval, which is a batch here."""
        return not isinstance(self._planner, FairPlanner)

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

    @property
    def sic(self) -> dict[str, float]:
        """Of each output, over the last source time window; those that no row was on its way to are left out."""
        return self._information.sic(self._now)

    @property
    def sic_too_late(self) -> float | None:
        """The longest delay of an output, if the source time window is not longer: its SIC says little then."""
        longest = max(self.latencies.values(), default=0.0)
        return longest if longest >= self._information.seconds else None

    @property
    def needs(self) -> dict[str, tuple[bool, float]]:
        """With `fair`, what outputs are served by, least first: who comes last is cut when time is used up.

        As in Algorithm 1: those below their minimum, then by SIC over weight. Other policies have no order.
        """
        if self.steady:
            return {}
        sic = self.sic
        return {
            output.name: (share >= output.minimum_sic, share / output.weight)
            for output in self.catalog.network.outputs
            if (share := sic.get(output.name)) is not None
        }

    @property
    def queues(self) -> dict[str, float]:
        """Rows that wait in front of arcs, where that is known."""
        found: dict[str, float] = {}
        for queued in self._queued.values():
            for name, rows in queued.items():
                found[name] = max(found.get(name, 0), rows)
        return found

    @property
    def inactive(self) -> frozenset[str]:
        """Outputs that no row is on its way to: drops above them would save nothing now, and hurt later."""
        network = self.catalog.network
        idle = {
            source
            for source, seen in self._rates.items()
            if seen and not any(rate.value > 0 for rate in seen.values())
        }
        found = {
            output.name
            for output in network.outputs
            if all(source.name in idle for source in network.above(output.name)[0])
        }
        for query, (at, pace) in self._heard.items():
            if self._now - at > _SILENT * pace:
                found.update(self._outputs.get(query, ()))
        return frozenset() if len(found) == len(network.outputs) else frozenset(found)

    def _held_back(self, sample: Sample) -> Mapping[str, float]:
        """What a query's source holds back waits in front of all of its arcs; with several, nobody knows whose."""
        arrived = sample.flows.arrived if sample.flows is not None else {}
        if sample.backlog <= 0 or len(arrived) != 1:
            return {}
        return dict.fromkeys(self.catalog.network.arcs_out_of(next(iter(arrived))), sample.backlog)

    def learn(self, sample: Sample) -> None:
        pace = self._heard.get(sample.query, (0.0, 0.0))[1]
        self._heard[sample.query] = (sample.at, sample.gap + sample.duration if sample.finished else pace)
        self._now = max(self._now, sample.at)
        if not sample.finished:
            return
        flows = sample.flows or Flows()
        everything = [output.name for output in self.catalog.network.outputs]
        alike = dict.fromkeys(self._outputs.get(sample.query, everything), sample.latency)
        self._latencies[sample.query] = dict(flows.latencies) if self._nominal else alike
        self._queued[sample.query] = flows.queued or self._held_back(sample)
        for source, rows in flows.arrived.items():
            seen = self._rates[source]
            if sample.query not in seen:
                seen[sample.query] = self._rate()
            seen[sample.query].observe(rows, sample.gap)
        if flows.passed:
            came = {**flows.left, **flows.arrived}
            passed = {on: (max(came.get(ends(on)[0], 0), rows), rows) for on, rows in flows.passed.items()}
            for output in self._outputs.get(sample.query, everything):
                brought = information(self.catalog.network, output, flows.arrived, passed)
                self._information.add(output, sample.at, brought)
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
            # The queues on the scale of the rates; a simulated node knows its capacity, and has no other scale.
            queues = {name: rows if self._nominal else rows * factor for name, rows in self.queues.items()}
            inactive = () if self._nominal else self.inactive
            return self._planner.decide(scaled, latencies=self.latencies, queues=queues or None, inactive=inactive)
        if isinstance(self._planner, FairPlanner):
            return self._planner.decide(scaled, sic=self.sic)
        return self._planner.decide(scaled)
