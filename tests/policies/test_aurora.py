"""What Aurora's own ways are compared with, and its greedy by slopes alone."""

from itertools import pairwise

import pytest

from streamshed.network import Builder, Catalog
from streamshed.policies.aurora_greedy import AuroraGreedy
from streamshed.policies.random_points import RandomPoints
from streamshed.policies.road_map.random import RandomRoadMap
from tests.networks import random_network

SEEDS = range(8)


def utility(policy, catalog):
    return sum(policy.planner(catalog).decide().row.utility.values())


def split(cost_a, cost_b, *, shared=0.001):
    """Two outputs below one split; `a` has the smaller slope for the first half of its rows."""
    return Catalog.of(
        Builder("split", capacity=1.0, headroom=1.0)
        .source("s", "x INT", rate=100)
        .filter("h", "s", "x > 0", cost=shared)
        .filter("f", "h", "x > 1", cost=cost_a)
        .filter("g", "h", "x > 2", cost=cost_b)
        .output("a", "f", loss=[(100, 1.0), (50, 0.9), (0, 0.0)])
        .output("b", "g", loss=[(100, 1.0), (50, 0.8), (0, 0.0)])
        .build()
    )


def test_random_drops_fall_anywhere_as_the_seed_has_it():
    catalog = split(0.01, 0.01, shared=0.01)
    plans = {seed: RandomPoints(seed).planner(catalog).decide() for seed in SEEDS}
    keeps = [tuple((drop.at, drop.keep) for drop in plan.drops) for plan in plans.values()]
    assert len(set(keeps)) > 4
    assert {at for plan in keeps for at, _ in plan} == {"s->h", "h->f", "h->g"}
    for plan in plans.values():
        assert plan.row.saved(catalog.rates) == pytest.approx(catalog.excess)


def test_random_drops_cost_more_than_chosen_ones():
    for seed in SEEDS:
        catalog = Catalog.of(random_network(seed, sharing=True, boxes=12)).overloaded(0.7)
        best = utility(RandomRoadMap(), catalog)
        assert all(utility(RandomPoints(draw), catalog) < best for draw in SEEDS)


def test_the_output_of_least_slope_gives_first_and_only_until_another_is_less_steep():
    # 'a' falls by 0.002 a percent down to 50 and by 0.018 below it, 'b' by 0.004 and then by 0.016.
    planner = AuroraGreedy().planner(split(0.01, 0.01))
    delivery = [planner.decide({"s": rate}).row.delivery for rate in (60, 75, 85, 95, 400)]
    assert delivery[0]["b"] == 100
    assert delivery[0]["a"] > 50
    assert delivery[2]["a"] == pytest.approx(50)
    assert 50 < delivery[2]["b"] < 100
    assert delivery[3]["a"] == pytest.approx(50)
    assert delivery[3]["b"] < 50
    assert all(after[name] <= before[name] for before, after in pairwise(delivery) for name in after)


def test_drops_go_up_to_the_split_and_no_further_while_an_output_has_rows():
    planner = AuroraGreedy().planner(split(0.01, 0.01))
    assert {drop.at for drop in planner.decide({"s": 200}).drops} == {"h->f", "h->g"}
    # Here the shared step alone is too much, and nothing is left to lose.
    everything = planner.decide({"s": 2000})
    assert [drop.at for drop in everything.drops if drop.keep > 0] == ["s->h"]
    assert everything.row.delivery == {"a": 0.0, "b": 0.0}


def test_slopes_alone_do_not_see_what_a_row_costs():
    cheap = split(0.001, 0.02)  # 'a' has the smaller slope, and next to nothing to give
    assert utility(AuroraGreedy(), cheap) < utility(RandomRoadMap(), cheap) - 0.05
    alike = split(0.01, 0.01, shared=1e-6)
    assert utility(AuroraGreedy(), alike) == pytest.approx(utility(RandomRoadMap(step=0.001), alike), abs=0.005)
