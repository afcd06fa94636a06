"""Queueing theory as an independent oracle: single queues have known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamshed.experiments import simpy_queue
from streamshed.network.build import Builder
from streamshed.sim.arrivals import Poisson, Trace
from streamshed.sim.engine import Simulation
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
        simulation.latencies("o"), simpy_queue.latencies(arrivals.tolist(), SERVICE), rtol=1e-9, atol=1e-12
    )
