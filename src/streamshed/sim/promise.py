"""Promise against truth: what a plan says that its drops do, and what they do to simulated rows.

The drops are in force from the first row on, so that nothing is compared but the plan: no monitor, no warm-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamshed.network.graph import WINDOWS
from streamshed.policies.contract import Decision
from streamshed.records import Drop
from streamshed.sim.network.engine import Simulation
from streamshed.sim.scenario import Scenario

CLOSE = 2.0
"""Points of percent that a promise may be off."""
_BESIDE = 0.05
"""A selectivity that is further off than this, relatively, is worth a word."""
_FEW = 2000
"""With fewer rows than these, chance alone can make more than a point."""


@dataclass(frozen=True, slots=True)
class Undropped:
    """What outputs get of a scenario when nothing is lost, and what its boxes pass."""

    delivered: Mapping[str, int]
    value: Mapping[str, float]
    selectivities: Mapping[str, float]
    entered: Mapping[str, int]
    """Rows that came to each box."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What drops did to the rows of a scenario."""

    percent: Mapping[str, float]
    """Of its rows that each output got; below an aggregate, of the rows that its results are made of."""
    value: Mapping[str, float]
    """Share of the value utility."""
    load: float
    """Core-seconds of work per second."""


def undropped(scenario: Scenario) -> Undropped:
    """Run a scenario on a node that takes no time for anything."""
    simulation = _run(scenario, (), unlimited=True)
    network, passed = scenario.network, simulation.passed()
    entered = _entered(simulation)
    selectivities = {
        name: passed[network.arcs_out_of(name)[0]][0] / rows
        for name, rows in entered.items()
        if rows and network.arcs_out_of(name)
    }
    rows, value = simulation.delivered.sum(axis=1), simulation.value.sum(axis=1)
    names = [output.name for output in network.outputs]
    return Undropped(
        dict(zip(names, map(int, rows), strict=True)),
        dict(zip(names, map(float, value), strict=True)),
        selectivities,
        entered,
    )


def _entered(simulation: Simulation) -> dict[str, int]:
    passed, network = simulation.passed(), simulation.scenario.network
    return {box.name: sum(passed[on][1] for on in network.arcs_into(box.name)) for box in network.order}


def carry_out(scenario: Scenario, drops: Sequence[Drop], whole: Undropped) -> Delivered:
    """Run a scenario under drops."""
    simulation = _run(scenario, drops, unlimited=False)
    network = scenario.network
    entered = _entered(simulation)
    percent, value = {}, {}
    for index, output in enumerate(network.outputs):
        name, got = output.name, int(simulation.delivered[index].sum())
        aggregates = [box.name for box in network.above(name)[1] if isinstance(box, WINDOWS)]
        came, of = got, whole.delivered[name]
        if aggregates:
            came, of = entered[aggregates[-1]], whole.entered[aggregates[-1]]
        percent[name] = 100.0 * came / of if of else 100.0
        worth = whole.value[name]
        value[name] = float(simulation.value[index].sum()) / worth if worth > 0 else 1.0
    return Delivered(percent, value, simulation.work() / scenario.seconds)


def _run(scenario: Scenario, drops: Sequence[Drop], *, unlimited: bool) -> Simulation:
    # Only rows are counted, not how long they take.
    simulation = Simulation(scenario, unlimited=unlimited, steps_with_state=2)
    simulation.use(drops)
    while not simulation.over:
        simulation.advance()
    simulation.drain()
    return simulation


def cause(scenario: Scenario, decision: Decision, whole: Undropped, output: str) -> str:
    """Why an output may get something else than was promised: the likeliest reason, or nothing."""
    for box in scenario.network.above(output)[1]:
        said, seen = scenario.catalog.selectivities[box.name], whole.selectivities.get(box.name)
        if seen is not None and not isinstance(box, WINDOWS) and abs(seen - said) > _BESIDE * max(said, seen):
            return f"{box.name} passes {seen:.3g} rows for each, the spec says {said:.3g}"
    if output in decision.certainty and decision.certainty[output].why:
        return decision.certainty[output].why
    if whole.delivered[output] < _FEW:
        return f"chance: {whole.delivered[output]} rows in all"
    return ""
