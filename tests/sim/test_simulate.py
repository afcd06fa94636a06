"""Policies in the simulator: what they promise is what happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from streamshed.loop import Limits
from streamshed.loop.steady_rate import SteadyRate
from streamshed.network.builder import Builder
from streamshed.network.catalog import Catalog
from streamshed.network.generate import NetworkShape, generate, generate_sharing
from streamshed.network.graph import Network
from streamshed.policies.keep_all import KeepAll
from streamshed.policies.registry import NETWORK_POLICIES, network_policy
from streamshed.quality import Report
from streamshed.quality.sic import jain, sic_by_output
from streamshed.records import Drop
from streamshed.sim.arrivals import Bursty, Constant
from streamshed.sim.network.engine import Observation, Simulation
from streamshed.sim.scenario import Scenario
from streamshed.sim.simulate import controller_of, expected, sample_of, simulate

POLICIES = [name for name in NETWORK_POLICIES if name != "none"]
SMALL = NetworkShape(queries=3, boxes=14, mix={"filter": 9.0, "union": 5.0})


def work(scenario: Scenario, drops: tuple[Drop, ...] = ()) -> tuple[float, Mapping[str, int]]:
    """Core-seconds that the scenario's rows take under drops, and how many rows arrived."""
    simulation = Simulation(scenario)
    simulation.use(drops)
    while not simulation.over:
        simulation.advance()
    simulation.drain()
    return simulation.work(), simulation.arrived()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("load", [0.6, 0.85])
def test_below_capacity_nothing_is_ever_shed(policy: str, load: float) -> None:
    network = generate(replace(SMALL, excess=load / SMALL.headroom - 1), seed=4)
    outcome = simulate(Scenario.of(network, seconds=6.0), network_policy(policy, 1))
    assert outcome.dropped == 0
    assert outcome.tuple_loss == 0.0
    assert all(output.sic == 1.0 for output in outcome.outputs.values())


@pytest.mark.parametrize("policy", POLICIES)
def test_overload_is_shed_and_queues_stay_short(policy: str) -> None:
    network = generate(replace(SMALL, excess=1.0, independent=True), seed=4)
    scenario = Scenario.of(network, seconds=20.0)
    seen: list[Observation] = []
    outcome = simulate(scenario, network_policy(policy, 1), watch=seen.append)
    assert outcome.load == pytest.approx(2 * outcome.limit, rel=0.02)
    assert outcome.dropped > 0
    catalog = scenario.catalog
    backlog = sum(count * catalog.coefficients[name] for name, count in seen[-1].queued.items())
    assert backlog < catalog.capacity * scenario.interval


def test_without_shedding_latency_grows_and_nothing_is_lost() -> None:
    network = generate(replace(SMALL, excess=1.0), seed=4)
    outcome = simulate(Scenario.of(network, seconds=10.0), KeepAll())
    assert outcome.dropped == 0
    assert outcome.value_loss == 0.0
    assert max(output.latency_mean or 0.0 for output in outcome.outputs.values()) > 2.0


@pytest.mark.parametrize(
    ("shape", "seed", "share"),
    [
        (replace(SMALL, independent=True), 1, 0.05),
        (replace(SMALL, independent=True), 2, 0.05),
        (replace(SMALL, independent=True, shared=3), 1, 0.05),
        (replace(SMALL, independent=True, shared=3), 2, 0.05),
        (SMALL, 1, 0.05),
        (NetworkShape(queries=2, boxes=5, mix={"filter": 3.0, "union": 2.0}, shared=1, independent=True), 3, 1.0),
    ],
)
@pytest.mark.parametrize("policy", [name for name in POLICIES if name.startswith("lsrm")])
def test_rows_of_a_road_map_save_what_they_say(policy: str, shape: NetworkShape, seed: int, share: float) -> None:
    """`share` of the rows are tried, from the first to the last; on the smallest network all of them."""
    network = generate(shape, seed=seed)
    catalog = Catalog.of(network)
    scenario = replace(
        Scenario.of(network, seconds=20.0, seed=seed), interval=20.0, catalog=replace(catalog, capacity=10.0)
    )
    before, arrived = work(scenario)
    table = network_policy(policy).planner(catalog).decide(catalog.overloaded(1.0).rates).rows
    tries = max(2, round(share * len(table)))
    for index in sorted({round(number * (len(table) - 1) / (tries - 1)) for number in range(tries)}):
        row = table[index]
        saved = before - work(scenario, row.drops)[0]
        promised = sum(coefficient * arrived[source] for source, coefficient in row.savings.items())
        # Sampling: some 10,000 rows, each kept or not; four standard deviations of the work they bring.
        assert saved == pytest.approx(promised, rel=0.02, abs=0.01 * before), (index, row)


@pytest.mark.parametrize("policy", [name for name in POLICIES if name.startswith("lsrm")])
def test_the_outputs_get_what_the_cursors_say(policy: str) -> None:
    network = generate_sharing(6, seed=3, skew=1.0)
    catalog = Catalog.of(network)
    scenario = replace(Scenario.of(network, seconds=60.0), interval=60.0, catalog=replace(catalog, capacity=10.0))
    full = expected(scenario).delivered.sum(axis=1)
    table = network_policy(policy).planner(catalog).decide(catalog.overloaded(1.0).rates).rows
    for index in (len(table) // 4, len(table) // 2, 3 * len(table) // 4):
        simulation = Simulation(scenario)
        simulation.use(table[index].drops)
        simulation.advance()
        simulation.drain()
        for number, output in enumerate(network.outputs):
            got = 100 * simulation.delivered[number].sum() / full[number]
            assert got == pytest.approx(table[index].delivery[output.name], abs=2.5)


def test_load_comes_and_goes_and_so_do_drops() -> None:
    network = (
        Builder("n", capacity=1.0)
        .source("s", "x DOUBLE", rate=600)
        .filter("f", "s", "x >= 0", cost=1e-3)
        .output("o", "f")
        .build()
    )
    scenario = replace(Scenario.of(network, seconds=40.0), arrivals={"s": Bursty(600.0, 3.0, 20.0, 0.25)})
    seen: list[Observation] = []
    outcome = simulate(scenario, network_policy("lsrm-random"), watch=seen.append)
    shed = [b.balance.shed - a.balance.shed for a, b in pairwise(seen)]
    assert max(shed[0:5]) > 500
    assert sum(shed[9:18]) == 0
    assert max(shed[19:25]) > 500
    latency = outcome.outputs["o"].latency_p99
    assert latency is not None
    assert latency < 2.0


def test_the_same_seed_gives_the_same_outcome() -> None:
    network = generate(replace(SMALL, excess=1.5), seed=2)
    scenario = Scenario.of(network, seconds=5.0, seed=9)
    first, second = (simulate(scenario, network_policy("lsrm-random")).as_json() for _ in range(2))
    assert first == second


def test_wrong_costs_do_not_let_queues_grow() -> None:
    """The controller believes that a row costs half of what it does; the backlog tells it otherwise."""
    network = (
        Builder("n", capacity=1.0)
        .source("s", "x DOUBLE", rate=900)
        .filter("f", "s", "x >= 0", cost=2e-3)
        .output("o", "f")
        .build()
    )
    scenario = replace(Scenario.of(network, seconds=60.0), arrivals={"s": Constant(900.0)})
    believed = scenario.catalog.measured(costs={"f": 1e-3})
    simulation, controller = (
        Simulation(scenario),
        controller_of(network_policy("lsrm-random"), believed, Limits(floor=0.0)),
    )
    waiting = []
    while not simulation.over:
        seen = simulation.advance()
        waiting.append(seen.balance.queued)
        simulation.use(controller.observe(sample_of(seen, thinned=False)).drops)
    assert max(waiting[30:]) < 1.5 * max(waiting[:30])


def test_sic_is_what_the_sources_still_contribute(everything: Network) -> None:
    simulation = Simulation(Scenario.of(everything, overload=0.5, seconds=10.0))
    simulation.use([Drop("s->f", 0.5)])
    while not simulation.over:
        simulation.advance()
    shares = sic_by_output(everything, simulation.passed_by_origin())
    # `mapped` has one source, half shed; `merged` two, of which one is half shed.
    assert shares["mapped"] == pytest.approx(0.5, abs=0.03)
    assert shares["merged"] == pytest.approx(0.75, abs=0.03)
    assert shares["counted"] == pytest.approx(0.75, abs=0.03)
    assert jain(shares.values()) < 1.0


def test_a_rate_estimate_is_steady_until_the_rate_jumps() -> None:
    estimate = SteadyRate()
    for count in (50, 52, 48, 55, 45):
        estimate.observe(count, 0.5)
    assert estimate.value == pytest.approx(100.0)
    estimate.observe(150, 0.5)
    assert estimate.value == 300.0
    estimate.observe(10, 0.5)
    assert estimate.value == 20.0


def test_a_simulation_reports_as_a_handle_does() -> None:
    network = generate(replace(SMALL, excess=1.0), seed=4)
    outcome = simulate(Scenario.of(network, seconds=8.0), network_policy("lsrm-random"))
    report = outcome.report()
    assert report.arrived == outcome.arrived == report.kept + report.shed
    assert 0 < report.shed <= outcome.dropped == sum(rows.shed for rows in report.by_arc.values())
    assert {name: out.utility for name, out in report.by_output.items()} == {
        name: quality.tuple_utility for name, quality in outcome.outputs.items()
    }
    means = [quality.latency_mean for quality in outcome.outputs.values() if quality.latency_mean is not None]
    assert min(means) <= report.latency_mean <= max(means)
    assert 0 < report.latency_p50 <= report.latency_p99 <= report.latency_worst
    assert report.as_dict().keys() == Report().as_dict().keys()
    assert "counted" not in outcome.as_json()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("abs(x)", [[0, 50, 0.1], [50, 100, 1.0]]),
        ("floor(x / 10)", [[-10, 3, 0.1], [3, 10, 1.0]]),
    ],
)
def test_drops_by_value_keep_their_promise_above_a_map_without_an_inverse(
    text: str, values: list[list[float]]
) -> None:
    network = (
        Builder("tried", capacity=1.0)
        .source("s", "x DOUBLE", rate=150, values={"x": (-100, 100)})
        .map("m", "s", {"v": text}, cost=0.01)
        .output("o", "m", value=("v", values))
        .build()
    )
    scenario = Scenario.of(network, seconds=20.0)
    found = {
        policy: simulate(scenario, network_policy(policy), warm_up=2.0).outputs["o"].value_utility
        for policy in ("lsrm-semantic", "lsrm-random")
    }
    assert found["lsrm-semantic"] > 0.85
    assert found["lsrm-semantic"] > found["lsrm-random"] + 0.2
