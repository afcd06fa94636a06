"""The parse of rows in the simulator: it takes its time, and drops before it save it."""

from __future__ import annotations

import numpy as np
import pytest

from streamshed.network import Catalog
from streamshed.policies.registry import network_policy
from streamshed.records import Drop
from streamshed.sim.arrivals import Constant
from streamshed.sim.network.engine import Simulation
from streamshed.sim.promise import carry_out, undropped
from streamshed.sim.scenario import Scenario
from streamshed.sim.simulate import expected, simulate
from tests.policies.test_parse_planner import OVERLOADS, decided, tickets


def scenario(parse: float, overload: float, seconds: float = 60.0) -> Scenario:
    network = tickets(parse)
    catalog = Catalog.of(network)
    factor = overload * catalog.limit / catalog.load
    return Scenario.of(network, overload=factor, seconds=seconds, seed=3, process=Constant)


@pytest.mark.parametrize("overload", OVERLOADS)
def test_by_value_is_never_worse_where_the_parse_costs_most(overload: float) -> None:
    # Some 260 rows/s fit: 2 ms of parse for each against 1.5 ms of everything else.
    here = scenario(2e-3, overload)
    reference = expected(here)
    had = {}
    for policy in ("lsrm-semantic", "lsrm-random", "input-uniform"):
        outcome = simulate(here, network_policy(policy), reference=reference, warm_up=2.0)
        alarms, trend = outcome.outputs["alarms"], outcome.outputs["trend"]
        had[policy] = alarms.value_utility + trend.tuple_utility
        assert trend.latency_p99 is not None
        assert trend.latency_p99 < 2.0, policy  # the queues do not grow: the drops are enough
    # A hundredth for chance: some thousand rows are drawn.
    assert had["lsrm-semantic"] >= had["input-uniform"] - 0.01, had
    assert had["lsrm-semantic"] >= had["lsrm-random"] - 0.01, had


def test_what_is_dropped_at_random_is_not_parsed() -> None:
    here = scenario(2e-3, 0.5, seconds=20.0)
    whole = undropped(here)
    rows = sum(here.arrivals[name].rate for name in here.arrivals)  # type: ignore[attr-defined]
    nothing = carry_out(here, (), whole)
    assert nothing.load == pytest.approx(rows * 3.5e-3, rel=0.02)
    at_random = carry_out(here, [Drop("lines->scored", 0.5), Drop("lines->named", 0.5)], whole)
    assert at_random.load == pytest.approx(rows * 0.5 * 3.5e-3, rel=0.05)
    by_value = carry_out(here, [Drop("lines->scored", 0.0, "v < 50"), Drop("lines->named", 0.5)], whole)
    assert by_value.load == pytest.approx(rows * (2e-3 + 0.5e-3 + 0.25e-3), rel=0.05)


@pytest.mark.parametrize("policy", ["lsrm-semantic", "lsrm-random", "input-uniform", "optimal"])
def test_what_a_plan_promises_comes_true(policy: str) -> None:
    catalog, decision = decided(tickets(2e-3), policy, 2.0)
    here = scenario(2e-3, 2.0)
    done = carry_out(here, decision.drops, undropped(here))
    assert decision.row is not None
    for name, percent in decision.row.delivery.items():
        assert done.percent[name] == pytest.approx(percent, abs=2.0)
    assert done.load == pytest.approx(decision.load - decision.row.saved(catalog.rates), rel=0.03)


def test_rows_and_queues_are_told_by_the_arcs_of_the_network() -> None:
    here = scenario(2e-3, 3.0, seconds=5.0)
    simulation = Simulation(here)
    simulation.use([Drop("lines->scored", 0.0, "v < 50"), Drop("lines->scored", 0.5), Drop("lines->named", 0.5)])
    seen = simulation.advance()
    assert set(seen.queued) == set(here.network.arcs)
    while not simulation.over:
        simulation.advance()
    simulation.drain()
    assert simulation.unbalanced() == []
    assert simulation.balance().missing == 0
    came = simulation.arrived()["lines"]
    passed = simulation.passed()
    assert set(passed) == set(here.network.arcs)
    assert passed["lines->scored"][0] == passed["lines->named"][0] == came
    assert passed["lines->scored"][1] == pytest.approx(came / 4, rel=0.2)
    assert np.isclose(passed["lines->named"][1], came / 2, rtol=0.1)
    assert simulation.passed_by_origin()["lines", "lines->scored"] == passed["lines->scored"]
