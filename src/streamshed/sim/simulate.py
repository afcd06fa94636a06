"""Simulate a policy on a scenario, and measure what it cost against the same rows with nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamshed.loop import Controller, Limits, Steps
from streamshed.loop.load_level import LoadLevel
from streamshed.loop.network_shedding import NetworkShedding
from streamshed.loop.steady_rate import SteadyRate
from streamshed.network.catalog import Catalog
from streamshed.network.values import loss_graphs
from streamshed.policies.contract import Decision, NetworkPolicy
from streamshed.policies.latency import Latency
from streamshed.records import Drop, Flows, Sample
from streamshed.sim.engine import Observation, Simulation
from streamshed.sim.kernel import Floats, Ints
from streamshed.sim.quality import jain, sic, tuple_utility
from streamshed.sim.scenario import Scenario

Decide = Callable[[Observation], Decision]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the outputs would get if nothing were lost; the same for every policy on a scenario."""

    delivered: Ints
    """[output, interval of arrival]"""
    value: Floats


@dataclass(frozen=True, slots=True)
class OutputQuality:
    expected: int
    delivered: int
    tuple_utility: float
    value_utility: float
    sic: float
    latency_mean: float | None
    """Seconds; None when nothing was delivered."""
    latency_p99: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    policy: str
    seed: int
    load: float
    """Core-seconds per second that the arrivals asked for, by the catalog."""
    limit: float
    dropped: int
    arrived: int
    outputs: Mapping[str, OutputQuality]
    jain: float

    @property
    def tuple_loss(self) -> float:
        """Percent of the tuple utility that all outputs lost together."""
        return 100 * (1 - float(np.mean([output.tuple_utility for output in self.outputs.values()])))

    @property
    def value_loss(self) -> float:
        """Percent of the value utility that all outputs lost together."""
        return 100 * (1 - float(np.mean([output.value_utility for output in self.outputs.values()])))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def expected(scenario: Scenario) -> Expected:
    """Run the scenario on a node that takes no time for anything."""
    simulation = Simulation(scenario, unlimited=True)
    while not simulation.over:
        simulation.advance()
    simulation.drain()
    return Expected(simulation.delivered, simulation.value)


def simulate(
    scenario: Scenario,
    policy: NetworkPolicy,
    *,
    reference: Expected | None = None,
    warm_up: float = 0.0,
    watch: Callable[[Observation], None] | None = None,
) -> Outcome:
    """Run a scenario under a policy.

    reference: what `expected` gave for the scenario, if it is known already
    warm_up: rows that arrived in the first so many seconds do not count for the utilities; the monitor needs
        an interval to see its first rates
    watch: is shown every observation
    """
    reference = reference or expected(scenario)
    simulation = Simulation(scenario)
    controller = controller_of(policy, scenario.catalog)
    drops: tuple[Drop, ...] = ()
    epochs = [0]
    while not simulation.over:
        seen = simulation.advance()
        if watch:
            watch(seen)
        wanted = controller.observe(sample_of(seen, thinned=bool(drops))).drops
        epochs.append(epochs[-1] + (wanted != drops))
        drops = wanted
        simulation.use(drops)
    simulation.drain()
    return _outcome(simulation, policy.name, reference, epochs, warm_up)


def controller_of(policy: NetworkPolicy, catalog: Catalog) -> Controller:
    """The one controller, by load against capacity. As in LSRM, drops come and go with the load, by any step."""
    by_latency = isinstance(policy, Latency)
    return Controller(
        NetworkShedding(policy, catalog, rate=SteadyRate, nominal=True),
        latency=None,
        limits=Limits(floor=0.0),
        steps=Steps(rise=float("inf"), dead_band=None),
        load=lambda query, bound: LoadLevel(catalog, by_latency=by_latency),
    )


def sample_of(seen: Observation, *, thinned: bool) -> Sample:
    """An interval of the simulation, as the controller is told of it."""
    arrived = sum(seen.arrived.values())
    flows = Flows(arrived=seen.arrived, queued=seen.queued, latencies=seen.latency, thinned=thinned)
    return Sample(
        at=seen.at, started=seen.at - seen.seconds, arrived=arrived, kept=arrived, gap=seen.seconds, flows=flows
    )


def _outcome(
    simulation: Simulation, policy: str, reference: Expected, epochs: list[int], warm_up: float
) -> Outcome:
    scenario = simulation.scenario
    first = round(warm_up / scenario.interval)
    width = simulation.delivered.shape[1]
    epochs = (epochs + [epochs[-1]] * width)[first:width]
    graphs = loss_graphs(scenario.catalog)
    shares = sic(scenario.network, simulation.passed_by_origin())
    outputs = {}
    for index, output in enumerate(scenario.network.outputs):
        latencies = simulation.latencies(output.name)
        wanted, got = reference.delivered[index, first:], simulation.delivered[index, first:]
        worth, kept = reference.value[index, first:].sum(), simulation.value[index, first:].sum()
        outputs[output.name] = OutputQuality(
            expected=int(wanted.sum()),
            delivered=int(got.sum()),
            tuple_utility=tuple_utility(graphs[output.name], wanted, got, epochs),
            value_utility=float(kept / worth) if worth > 0 else 1.0,
            sic=shares[output.name],
            latency_mean=float(latencies.mean()) if len(latencies) else None,
            latency_p99=float(np.percentile(latencies, 99)) if len(latencies) else None,
        )
    arrived = simulation.arrived()
    rates = {name: count / scenario.seconds for name, count in arrived.items()}
    return Outcome(
        policy=policy,
        seed=scenario.seed,
        load=scenario.catalog.measured(rates=rates).load,
        limit=scenario.catalog.limit,
        dropped=simulation.balance().shed,
        arrived=sum(arrived.values()),
        outputs=outputs,
        jain=jain(shares.values()),
    )
