"""Simulate a policy on a scenario, and measure what it cost against the same rows with nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from streamshed.loop import Controller, Limits, Steps
from streamshed.loop.load_level import LoadLevel
from streamshed.loop.network_shedding import NetworkShedding
from streamshed.loop.steady_rate import SteadyRate
from streamshed.network.catalog import Catalog
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.policies.contract import Decision, NetworkPolicy
from streamshed.policies.latency import Latency
from streamshed.quality import Report
from streamshed.quality.latency_histogram import LatencyHistogram
from streamshed.quality.report import OutputCounts
from streamshed.quality.row_counts import RowCounts
from streamshed.quality.sic import below_a_window, information, jain, sic_by_output
from streamshed.records import Drop, Flows, Mode, Sample
from streamshed.sim.network.aware import BoxLatency
from streamshed.sim.network.engine import Observation, Simulation
from streamshed.sim.network.kernel import Floats, Ints
from streamshed.sim.quality import tuple_utility
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
    load_aware: Mapping[str, BoxLatency] = field(default_factory=dict)
    """Queuing and completion latencies at the boxes that shed by themselves. What they shed is in `dropped`."""
    counted: Report = field(default_factory=Report, repr=False)

    def report(self) -> Report:
        """The same as what handles on Spark report.

        Latencies are those of all rows delivered. An output's utility is its tuple utility; its rows and its
        utility are those after the warm-up.
        """
        return self.counted

    @property
    def tuple_loss(self) -> float:
        """Percent of the tuple utility that all outputs lost together."""
        return 100 * (1 - float(np.mean([output.tuple_utility for output in self.outputs.values()])))

    @property
    def value_loss(self) -> float:
        """Percent of the value utility that all outputs lost together."""
        return 100 * (1 - float(np.mean([output.value_utility for output in self.outputs.values()])))

    def as_json(self) -> dict[str, Any]:
        told = {name: value for name, value in asdict(self).items() if name != "counted"}
        if not self.load_aware:
            del told["load_aware"]
        return told


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
    mode: Mode = Mode.ENFORCE,
    floor: float = 0.0,
    pin: tuple[Drop, ...] | None = None,
) -> Outcome:
    """Run a scenario under a policy.

    reference: what `expected` gave for the scenario, if it is known already
    warm_up: rows that arrived in the first so many seconds do not count for the utilities; the monitor needs
        an interval to see its first rates
    watch: is shown every observation
    mode, floor, pin: as on Spark; pinned drops are in force whatever the load is, unless the mode forbids it
    """
    reference = reference or expected(scenario)
    simulation = Simulation(scenario)
    controller = controller_of(policy, scenario.catalog, Limits(mode, floor))
    drops: tuple[Drop, ...] = ()
    if pin is not None:
        drops = pin if mode is Mode.ENFORCE else ()
        simulation.use(drops)
    epochs = [0]
    while not simulation.over:
        seen = simulation.advance()
        if watch:
            watch(seen)
        wanted = controller.observe(sample_of(seen, thinned=bool(drops or simulation.load_aware))).drops
        if pin is not None:
            wanted = drops
        epochs.append(epochs[-1] + (wanted != drops))
        drops = wanted
        simulation.use(drops)
    simulation.drain()
    return _outcome(simulation, policy.name, reference, epochs, warm_up)


def controller_of(policy: NetworkPolicy, catalog: Catalog, limits: Limits) -> Controller:
    """The one controller, by load against capacity. As in LSRM, drops come and go with the load, by any step."""
    by_latency = isinstance(policy, Latency)
    return Controller(
        NetworkShedding(policy, catalog, rate=SteadyRate, nominal=True),
        latency=None,
        limits=limits,
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
    intervals = len(epochs) - 1
    first = round(warm_up / scenario.interval)
    width = simulation.delivered.shape[1]
    epochs = (epochs + [epochs[-1]] * width)[first:width]
    graphs = loss_graphs(scenario.catalog)
    passed = simulation.passed_by_origin()
    shares = sic_by_output(scenario.network, passed)
    windowed = {name: below_a_window(scenario.network, name) for name in shares}
    outputs = {}
    histograms = []
    for index, output in enumerate(scenario.network.outputs):
        latencies = simulation.latencies(output.name)
        histograms.append(LatencyHistogram.of(latencies))
        wanted, got = reference.delivered[index, first:], simulation.delivered[index, first:]
        worth, kept = reference.value[index, first:].sum(), simulation.value[index, first:].sum()
        outputs[output.name] = OutputQuality(
            expected=int(wanted.sum()),
            delivered=int(got.sum()),
            tuple_utility=graphs[output.name](100.0 * shares[output.name])
            if windowed[output.name]
            else tuple_utility(graphs[output.name], wanted, got, epochs),
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
        load_aware=simulation.box_latencies(),
        counted=Report.of_network(
            arrived,
            {name: RowCounts(rows, rows - kept) for name, (rows, kept) in simulation.passed().items()},
            batches=intervals,
            latencies=reduce(LatencyHistogram.plus, histograms, LatencyHistogram()),
            by_output={
                name: OutputCounts(
                    quality.delivered,
                    float(quality.expected),
                    quality.tuple_utility,
                    information=information(scenario.network, name, arrived, passed),
                    windowed=windowed[name],
                )
                for name, quality in outputs.items()
            },
        ),
    )
