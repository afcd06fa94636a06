"""`fair` for networks: equal shares of information, where boxes are shared, by weight, and by what was before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.network import Builder, Catalog, Network
from streamshed.network.generate import NetworkShape, generate
from streamshed.policies.fair_network import Fair
from streamshed.quality.sic import jain, sic_by_output
from tests.networks import random_network


def sic_of(network: Network, decision) -> dict[str, float]:
    """What outputs keep if the drops do what they say."""
    return sic_by_output(network, {drop.at: (1.0, drop.keep) for drop in decision.drops})


@given(st.integers(0, 500), st.booleans(), st.floats(0.05, 4.0))
def test_every_output_keeps_the_same_share_and_the_load_just_fits(seed, sharing, excess):
    network = random_network(seed, sharing=sharing, boxes=10)
    catalog = Catalog.of(network).overloaded(excess)
    decision = Fair().planner(catalog).decide()
    shares = sic_of(network, decision)
    assert jain(shares.values()) == pytest.approx(1.0)
    assert catalog.load - decision.row.saved(catalog.rates) == pytest.approx(catalog.limit, rel=1e-3)
    assert min(shares.values()) == pytest.approx(1 / (1 + excess), rel=1e-3)


def split(**outputs: dict[str, float]) -> Network:
    builder = (
        Builder("split", capacity=1.0).source("s", "x INT", rate=100).source("t", "x INT", rate=50)
        .filter("h", "s", "x > 0", cost=0.01).filter("a", "h", "x > 1", cost=0.01)
        .filter("b", "h", "x > 2", cost=0.01).union("u", ["b", "t"], cost=0.01)
    )  # fmt: skip
    return builder.output("o", "a", **outputs.get("o", {})).output("p", "u", **outputs.get("p", {})).build()


def test_a_weight_of_2_is_twice_the_share_and_the_shared_box_is_fed_for_it():
    network = split(o={"weight": 2.0})
    decision = Fair().planner(Catalog.of(network).overloaded(2.0)).decide()
    shares = sic_of(network, decision)
    assert shares["o"] == pytest.approx(2 * shares["p"])
    keeps = {drop.at: drop.keep for drop in decision.drops}
    assert keeps["s->h"] == pytest.approx(shares["o"])
    assert keeps["h->b"] == pytest.approx(0.5)
    assert keeps["t->u"] == pytest.approx(shares["p"])


def test_a_minimum_is_given_first_and_shrinks_only_when_nothing_else_is_left():
    network = split(p={"minimum_sic": 0.6})
    planner = Fair().planner(Catalog.of(network))
    for excess in (0.2, 1.0):
        shares = sic_of(network, planner.decide(Catalog.of(network).overloaded(excess).rates))
        assert shares["p"] >= 0.6 - 1e-6
        assert shares["o"] <= shares["p"] + 1e-6
    hopeless = planner.decide(Catalog.of(network).overloaded(9.0).rates)
    assert hopeless.feasible
    assert sic_of(network, hopeless)["p"] < 0.6


def test_who_had_less_gets_more():
    network = split()
    rates = Catalog.of(network).overloaded(1.0).rates
    even = sic_of(network, Fair().planner(Catalog.of(network)).decide(rates))
    now = sic_of(network, Fair().planner(Catalog.of(network)).decide(rates, sic={"o": 0.3, "p": 0.7}))
    assert now["o"] > even["o"] > now["p"]
    same = sic_of(network, Fair().planner(Catalog.of(network)).decide(rates, sic={"o": 0.5, "p": 0.5}))
    assert same == pytest.approx(even)


def test_the_past_is_made_up_for_and_then_forgotten():
    """A closed loop: one output starts with far less, and both end equal."""
    network = split()
    planner, rates = Fair().planner(Catalog.of(network)), Catalog.of(network).overloaded(1.0).rates
    sic = {"o": 0.1, "p": 0.9}
    for _ in range(40):  # each step is a fifth of the window
        kept = sic_of(network, planner.decide(rates, sic=sic))
        sic = {name: 0.8 * sic[name] + 0.2 * kept[name] for name in sic}
    assert sic["o"] == pytest.approx(sic["p"], abs=0.01)
    assert sic["o"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_joins_and_unions_keep_the_same_of_all_their_sources(seed):
    network = generate(
        NetworkShape(queries=3, boxes=14, mix={"filter": 6.0, "union": 2.0, "join": 2.0}), seed=seed
    )
    decision = Fair().planner(Catalog.of(network).overloaded(1.0)).decide()
    assert jain(sic_of(network, decision).values()) == pytest.approx(1.0)
