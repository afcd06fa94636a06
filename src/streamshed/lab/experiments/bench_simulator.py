"""How fast the simulator is: rows per second of the paper's 47-box network, against SimPy.

Two models, each in the simulator and in SimPy, on the same arrivals: the simplest there is, one queue with one
server and a fixed service time; and the 47 boxes with queues of their own, where a row is served several
times. The four are taken in turns, after one round that is not measured, and the medians compared. (SimPy gets
the first quarter of the arrivals through the 47 boxes, which is enough to wait for.) Time is that of the
processor, so that neighbours on the machine count little; all use one core.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamshed.lab.experiments import simpy_models
from streamshed.lab.experiments.registry import Progress
from streamshed.network.builder import Builder
from streamshed.network.catalog import Catalog
from streamshed.network.generate import NetworkShape, generate
from streamshed.network.graph import Network
from streamshed.sim.arrivals import Poisson, Times, Trace
from streamshed.sim.network.engine import Simulation
from streamshed.sim.network.values import Values
from streamshed.sim.scenario import Scenario

SECONDS = 4.0
LOAD = 0.8
REPEATS = 5
_COSTS = {"filter": 1e-6, "union": 0.5e-6}


def run(progress: Progress, *, seconds: float = SECONDS, repeats: int = REPEATS, seed: int = 1) -> dict[str, Any]:
    """Rows per second of each, and the ratios; `repeats` interleaved rounds."""
    network = generate(NetworkShape(excess=LOAD / NetworkShape.headroom - 1, costs=_COSTS), seed=seed)
    many, merged = _recorded(network, seconds, seed)
    service = LOAD * seconds / len(merged)
    one = _single(merged, service, seconds, seed)
    arrivals = merged.tolist()
    model = simpy_models.network(replace(many, seconds=seconds / 4))
    few = int(np.searchsorted(merged, seconds / 4))
    rounds: dict[str, list[float]] = {}
    served: dict[str, int] = {}
    for number in range(repeats + 1):
        progress(number, repeats + 1, "warming up" if number == 0 else f"round {number}")
        timed: Mapping[str, tuple[int, Callable[[], int]]] = {
            "network": (len(merged), lambda: _simulate(many)),
            "simpy_network": (few, lambda: simpy_models.run(model)),
            "single": (len(merged), lambda: _simulate(one)),
            "simpy_single": (len(merged), lambda: len(simpy_models.latencies(arrivals, service))),
        }
        for name, (rows, work) in timed.items():
            start = time.process_time()
            served[name] = work()
            if number:
                rounds.setdefault(name, []).append(rows / (time.process_time() - start))
    progress(repeats + 1, repeats + 1, "done")
    median = {name: statistics.median(speeds) for name, speeds in rounds.items()}
    return {
        "name": "simulator",
        "rows": len(merged),
        "boxes": len(network.boxes),
        "load": LOAD,
        "repeats": repeats,
        "rows_per_second": median,
        "rows_per_second_range": {name: [min(s), max(s)] for name, s in rounds.items()},
        "services_per_row": served["network"] / len(merged),
        "ratio_network_to_simpy_single": median["network"] / median["simpy_single"],
        "ratio_network_to_simpy_network": median["network"] / median["simpy_network"],
        "ratio_single_to_simpy_single": median["single"] / median["simpy_single"],
    }


def _recorded(network: Network, seconds: float, seed: int) -> tuple[Scenario, Times]:
    """Arrivals and values drawn beforehand, so that no model pays for it; and all arrivals merged."""
    seeds = np.random.SeedSequence(seed).spawn(2 * len(network.sources))
    arrivals: dict[str, Trace] = {}
    columns: dict[str, dict[str, NDArray[Any]]] = {}
    for source, gaps, values in zip(network.sources, seeds[::2], seeds[1::2], strict=True):
        times = Poisson(source.rate).start(np.random.default_rng(gaps)).until(seconds)
        arrivals[source.name] = Trace(times)
        columns[source.name] = Values(source, values).draw(times)
    scenario = Scenario(
        catalog=Catalog.of(network), arrivals=arrivals, seconds=seconds, seed=seed, recorded=columns
    )
    return scenario, np.sort(np.concatenate([np.asarray(trace.times) for trace in arrivals.values()]))


def _single(arrivals: Times, service: float, seconds: float, seed: int) -> Scenario:
    """The single queue that SimPy runs, as a network of one box."""
    builder = Builder("single", capacity=1.0).source("s", "x DOUBLE", rate=len(arrivals) / seconds)
    network = builder.union("u", ["s", "never"], cost=service).source("never", "x DOUBLE").output("o", "u").build()
    scenario = Scenario.of(network, seconds=seconds, seed=seed)
    return replace(
        scenario,
        arrivals={"s": Trace(arrivals), "never": Trace(())},
        recorded={"s": {"x": np.zeros(len(arrivals))}, "never": {"x": np.zeros(0)}},
    )


def _simulate(scenario: Scenario) -> int:
    simulation = Simulation(scenario)
    while not simulation.over:
        simulation.advance()
    simulation.drain()
    return sum(passed for name, (_, passed) in simulation.passed().items() if not _leads_out(scenario, name))


def _leads_out(scenario: Scenario, arc: str) -> bool:
    outputs: Sequence[str] = [output.name for output in scenario.network.outputs]
    return arc.partition("->")[2] in outputs
