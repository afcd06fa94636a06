"""The same models in SimPy: what the simulator is measured against (needs the `bench` extra).

A single queue, and a whole network of filters and unions on one server that takes its boxes in turns. Of the
usual ways to write the single queue this was the fastest (a process for every row with a `Resource` took 1.6
times as long); the network has one process for the arrivals and one for the server as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamshed.extras import need
from streamshed.network.graph import Filter, Output
from streamshed.sim.scenario import Scenario


def latencies(arrivals: Sequence[float], service: float) -> list[float]:
    """Seconds each row spent in an empty-at-start queue with a fixed service time."""
    simpy = need("simpy", "lab")

    environment = simpy.Environment()
    queue = simpy.Store(environment)
    result: list[float] = []

    def source() -> Generator[Any, Any, None]:
        for arrival in arrivals:
            yield environment.timeout(max(0.0, arrival - environment.now))
            queue.put(arrival)

    def server() -> Generator[Any, Any, None]:
        while True:
            arrival = yield queue.get()
            yield environment.timeout(service)
            result.append(environment.now - arrival)

    environment.process(source())
    environment.process(server())
    environment.run()
    return result


@dataclass(eq=False, slots=True)
class Station:
    """A box with its queue; an output is one that has nowhere to send to."""

    cost: float
    answers: Mapping[str, Sequence[bool]]
    """Of a filter, for the rows of each source; nothing: all rows pass."""
    to: list[Station] = field(default_factory=list)
    waiting: deque[tuple[str, int, float]] = field(default_factory=deque)
    """Rows: the source, the number there, when it arrived."""
    latencies: list[float] | None = None
    """Of the rows that came to an output."""


@dataclass(frozen=True, slots=True)
class Model:
    """A network made ready, so that running it measures nothing else."""

    arrivals: Sequence[tuple[float, str, int]]
    starts: Mapping[str, Sequence[Station]]
    outputs: Mapping[str, Station]
    slice: float


def network(scenario: Scenario) -> Model:
    """The model of a scenario whose rows are recorded, of filters and unions only."""
    arrivals = [
        (at, source.name, number)
        for source in scenario.network.sources
        for number, at in enumerate(_times(scenario, source.name))
    ]
    speed = scenario.catalog.capacity
    stations: dict[str, Station] = {}
    for box in scenario.network.order:
        answers = {
            source: box.where.evaluate(columns).tolist()
            for source, columns in scenario.recorded.items()
            if isinstance(box, Filter)
        }
        stations[box.name] = Station(scenario.catalog.costs[box.name] / speed, answers)
    outputs = {output.name: Station(0.0, {}, latencies=[]) for output in scenario.network.outputs}
    stations |= outputs
    for name, station in stations.items():
        if not isinstance(scenario.network.nodes[name], Output):
            station.to = [stations[after] for after in scenario.network.consumers[name]]
    starts = {
        source.name: [stations[after] for after in scenario.network.consumers[source.name]]
        for source in scenario.network.sources
    }
    return Model(sorted(arrivals), starts, outputs, scenario.slice)


def _times(scenario: Scenario, source: str) -> list[float]:
    # A recording draws nothing.
    found: list[float] = scenario.arrivals[source].start(np.random.default_rng(0)).until(scenario.seconds).tolist()
    return found


def run(model: Model) -> int:
    """Let all rows through; the outputs then have their latencies. Returns how many were delivered."""
    simpy = need("simpy", "lab")

    for output in model.outputs.values():
        output.latencies = []
    environment = simpy.Environment()
    turns: deque[Station] = deque()
    visited: Station | None = None
    idle: Any = None

    def send(row: tuple[str, int, float], stations: Sequence[Station]) -> None:
        nonlocal idle
        for station in stations:
            if station.latencies is not None:
                station.latencies.append(environment.now - row[2])
                continue
            if not station.waiting and station is not visited:
                turns.append(station)
                if idle is not None:
                    idle.succeed()
                    idle = None
            station.waiting.append(row)

    def source() -> Generator[Any, Any, None]:
        for at, name, number in model.arrivals:
            yield environment.timeout(max(0.0, at - environment.now))
            send((name, number, at), model.starts[name])

    def server() -> Generator[Any, Any, None]:
        nonlocal idle, visited
        while True:
            if not turns:
                idle = environment.event()
                yield idle
            station = visited = turns.popleft()
            left = model.slice
            while station.waiting and left > 0:
                yield environment.timeout(station.cost)
                left -= station.cost
                row = station.waiting.popleft()
                if not station.answers or station.answers[row[0]][row[1]]:
                    send(row, station.to)
            visited = None
            if station.waiting:
                turns.append(station)

    environment.process(source())
    environment.process(server())
    environment.run()
    return sum(len(output.latencies or ()) for output in model.outputs.values())
