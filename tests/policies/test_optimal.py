import itertools

import numpy as np
import pytest

from streamshed.network import Builder, Catalog
from streamshed.network.generate import NetworkShape, generate
from streamshed.policies.optimal import Optimal
from streamshed.policies.road_map.random import RandomRoadMap
from tests.networks import random_network


def utility(row):
    return sum(row.utility.values())


def decisions(catalog):
    planner = RandomRoadMap().planner(catalog)
    return planner.decide(), Optimal().planner(catalog).decide()


def before(decision):
    """Utility of the row before the chosen one: what one step less would leave."""
    if decision.chosen:
        return utility(decision.rows[decision.chosen - 1])
    return len(decision.row.utility)


def test_the_optimum_agrees_with_brute_force():
    network = (
        Builder("n", capacity=1.0)
        .source("s", "x INT", rate=100)
        .filter("h", "s", "x > 0", cost=0.004)
        .filter("f", "h", "x > 1", cost=0.01)
        .filter("g", "h", "x > 2", cost=0.006)
        .output("o", "f", loss=[(0, 0), (60, 0.9), (100, 1)])
        .output("p", "g", loss=[(0, 0), (20, 0.5), (100, 1)])
        .build()
    )
    catalog = Catalog.of(network)
    found = Optimal().planner(catalog).decide()
    grid = np.linspace(0, 1, 101)
    best = 0.0
    for left, right in itertools.product(grid, grid):
        head = max(left, right)
        if 100 * (0.004 * head + 0.01 * left + 0.006 * right) <= catalog.limit + 1e-12:
            graphs = [output.qos.loss for output in network.outputs]
            best = max(best, graphs[0](100 * left) + graphs[1](100 * right))
    assert utility(found.row) == pytest.approx(best, abs=0.02)
    assert utility(found.row) >= best - 1e-9


@pytest.mark.parametrize("block", range(10))
def test_without_sharing_the_road_map_is_within_one_step_of_the_optimum(block):
    """250 networks in all: what the LP delivers lies between the chosen row and the row before it."""
    for seed in range(block * 25, block * 25 + 25):
        excess = float(np.random.default_rng(seed).uniform(0.22, 3.07))
        network = (
            random_network(seed, sharing=False) if seed % 2 else generate(NetworkShape(excess=excess), seed=seed)
        )
        chosen, best = decisions(Catalog.of(network).overloaded(excess))
        assert utility(chosen.row) - 1e-7 <= utility(best.row) <= before(chosen) + 1e-7


@pytest.mark.parametrize("block", range(5))
def test_with_sharing_where_no_streams_meet_again_it_is_so_too(block):
    """100 networks: the greedy path is the parametric optimum on trees."""
    for seed in range(block * 20, block * 20 + 20):
        excess = float(np.random.default_rng(seed).uniform(0.22, 3.07))
        catalog = Catalog.of(random_network(seed, sharing=True, mixing=False)).overloaded(excess)
        chosen, best = decisions(catalog)
        assert utility(chosen.row) - 1e-7 <= utility(best.row) <= before(chosen) + 1e-7


@pytest.mark.parametrize("block", range(10))
def test_the_optimum_never_loses_to_the_road_map(block):
    """250 networks with sharing and unions."""
    for seed in range(block * 25, block * 25 + 25):
        excess = float(np.random.default_rng(seed).uniform(0.22, 3.07))
        network = (
            random_network(seed, sharing=True)
            if seed % 2
            else generate(NetworkShape(queries=3, boxes=14, shared=2), seed=seed)
        )
        chosen, best = decisions(Catalog.of(network).overloaded(excess))
        assert utility(best.row) >= utility(chosen.row) - 1e-7


@pytest.mark.parametrize("seed", range(10))
def test_what_the_optimum_promises_is_what_its_drops_do(seed):
    catalog = Catalog.of(random_network(seed, sharing=True)).overloaded(1.0)
    decision = Optimal().planner(catalog).decide()
    keeps = {drop.at: drop.keep for drop in decision.drops}
    assert decision.row.delivery == pytest.approx(catalog.delivery(keeps), abs=1e-6)
    assert decision.row.saved(catalog.rates) == pytest.approx(catalog.load - catalog.load_with(keeps))


def test_drop_costs_are_paid_for():
    catalog = Catalog.of(random_network(3, sharing=True), drop_cost=2e-4).overloaded(0.5)
    decision = Optimal().planner(catalog).decide()
    assert decision.feasible
    assert catalog.load_with({drop.at: drop.keep for drop in decision.drops}) <= catalog.limit * (1 + 1e-8)
