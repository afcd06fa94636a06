"""Queueing theory as an independent oracle: single queues have known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamshed.lab.experiments import simpy_models
from streamshed.network.builder import Builder
from streamshed.network.generate import NetworkShape, generate
from streamshed.sim.arrivals import Poisson, Trace
from streamshed.sim.network.engine import Simulation
from streamshed.sim.scenario import Scenario

SERVICE = 0.001


def single(load: float, *, exponential: bool = False, seconds: float = 400.0, seed: int = 1) -> Simulation:
    network = (
        Builder("single", capacity=1.0)
        .source("s", "x DOUBLE", rate=load / SERVICE)
        .filter("f", "s", "x >= 0", cost=SERVICE)
        .output("o", "f")
        .build()
    )
    scenario = replace(
        Scenario.of(network, seconds=seconds, seed=seed), exponential=exponential, interval=seconds / 4
    )
    simulation = Simulation(scenario)
    while not simulation.over:
        simulation.advance()
    return simulation


@pytest.mark.parametrize("exponential", [False, True], ids=["M/D/1", "M/M/1"])
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_littles_law_and_the_known_mean(load: float, exponential: bool) -> None:
    simulation = single(load, exponential=exponential)
    latencies = simulation.latencies("o")
    seen = simulation.arrived()["s"] / simulation.now
    # L = λW: L is integrated over time by the event loop, W is the mean over rows.
    assert simulation.mean_inside() == pytest.approx(seen * latencies.mean(), rel=1e-3)
    # Pollaczek and Khinchine: wait = ρ(1 + c²)/(2(1 − ρ)) services, c the variation of service times.
    variation = 1.0 if exponential else 0.0
    theory = SERVICE * (1 + load * (1 + variation) / (2 * (1 - load)))
    assert latencies.mean() == pytest.approx(theory, rel=0.05)


def test_mm1_latencies_are_exponential() -> None:
    latencies = single(0.5, exponential=True).latencies("o")
    # In an M/M/1 queue time in system is exponential with mean 1/(μ − λ).
    mean = SERVICE / 0.5
    for quantile in (0.5, 0.9, 0.99):
        assert np.quantile(latencies, quantile) == pytest.approx(-np.log(1 - quantile) * mean, rel=0.06)


def test_every_latency_is_the_one_simpy_gives() -> None:
    arrivals = Poisson(800.0).start(np.random.default_rng(4)).until(5.0)
    network = (
        Builder("single", capacity=2.0)
        .source("s", "x DOUBLE", rate=800)
        .filter("f", "s", "x >= 0", cost=2 * SERVICE)
        .output("o", "f")
        .build()
    )
    simulation = Simulation(replace(Scenario.of(network, seconds=5.0), arrivals={"s": Trace(arrivals)}))
    while not simulation.over:
        simulation.advance()
    simulation.drain()
    np.testing.assert_allclose(
        simulation.latencies("o"), simpy_models.latencies(arrivals.tolist(), SERVICE), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(("shared", "load", "slice"), [(0, -0.3, 0.01), (0, 0.4, 0.002), (3, 0.1, 0.0005)])
def test_a_whole_network_gives_every_latency_that_simpy_gives(shared: int, load: float, slice: float) -> None:
    """Boxes in turns, each with its queue, with and without split points, below and above capacity."""
    network = generate(NetworkShape(shared=shared, excess=load, rates=(0.5, 2.0)), seed=6)
    drawn = Scenario.of(network, seconds=0.5, seed=2)
    rng = np.random.default_rng(2)
    times = {name: process.start(rng).until(0.5) for name, process in drawn.arrivals.items()}
    scenario = replace(
        drawn,
        slice=slice,
        interval=0.2,
        arrivals={name: Trace(found) for name, found in times.items()},
        recorded={name: {"value": 100 * rng.random(len(found))} for name, found in times.items()},
    )
    simulation = Simulation(scenario)
    while not simulation.over:
        simulation.advance()
    simulation.drain()
    model = simpy_models.network(scenario)
    assert simpy_models.run(model) == simulation.delivered.sum() > 1000
    for name, output in model.outputs.items():
        np.testing.assert_allclose(simulation.latencies(name), output.latencies, rtol=1e-6, atol=1e-9)
