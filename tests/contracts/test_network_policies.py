"""The five promises of `policies.contract`, for every registered policy for networks."""

from dataclasses import replace
from itertools import pairwise

import pytest

from streamshed.network import Builder, Catalog, Network
from streamshed.network.generate import NetworkShape, generate, generate_sharing
from streamshed.network.spec import yaml as spec
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.registry import NETWORK_POLICIES, network_policy
from tests.network.test_spec import EXAMPLE
from tests.networks import random_network


def parsed_late(network: Network) -> Network:
    """The same with rows that cost as much to parse as all boxes together."""
    each = Catalog.of(network).source_coefficients
    sources = [
        replace(source, parse={"format": "json", "column": "value", "options": {}, "cost": each[source.name]})
        for source in network.sources
    ]
    return replace(network, sources=tuple(sources))


NETWORKS = {
    "tree": random_network(1, sharing=True, boxes=10, mixing=False),
    "shared": random_network(2, sharing=True, boxes=10),
    "unshared": random_network(4, sharing=False, boxes=10),
    "protected": random_network(5, sharing=True, boxes=10, protect=0.2),
    "values": generate(NetworkShape(queries=2, boxes=14), seed=1),
    "shared values": generate(NetworkShape(queries=3, boxes=15, shared=2), seed=2),
    "one source": generate_sharing(3, seed=1, skew=1.0),
    "triage": spec.load(EXAMPLE),
    "parsed late": parsed_late(generate_sharing(3, seed=1, skew=1.0)),
    "values parsed late": parsed_late(generate(NetworkShape(queries=3, boxes=15, shared=2), seed=2)),
}
EXCESSES = (0.01, 0.22, 0.7, 1.5, 3.07)

SHEDDING = [name for name in NETWORK_POLICIES if name != "none"]
"""`none` promises nothing."""

everywhere = pytest.mark.parametrize(
    ("policy", "network"), [(policy, network) for policy in SHEDDING for network in NETWORKS]
)


@pytest.fixture(scope="module")
def planner():
    made = {}

    def make(policy, network):
        if (policy, network) not in made:
            catalog = Catalog.of(NETWORKS[network])
            made[policy, network] = (network_policy(policy, seed=7).planner(catalog), catalog)
        return made[policy, network]

    return make


@everywhere
def test_the_planned_load_fits_whenever_that_is_feasible(policy, network, planner):
    made, catalog = planner(policy, network)
    for excess in EXCESSES:
        now = catalog.overloaded(excess)
        decision = made.decide(now.rates)
        assert decision.chosen is not None
        left = now.load - decision.row.saved(now.rates)
        least = FlowModel(now).least
        assert left <= max(now.limit, least) * (1 + 1e-6)
        assert decision.feasible == (least <= now.limit * (1 + 1e-9))
        assert decision.remaining == pytest.approx(max(0.0, least - now.limit), abs=1e-6 * now.limit)


@everywhere
def test_a_larger_excess_never_leaves_a_larger_utility(policy, network, planner):
    made, catalog = planner(policy, network)
    utilities = [sum(made.decide(catalog.overloaded(e).rates).row.utility.values()) for e in EXCESSES]
    assert all(after <= before + 1e-7 for before, after in pairwise(utilities))


@everywhere
def test_protected_rows_are_never_dropped(policy, network, planner):
    made, catalog = planner(policy, network)
    spared = {f"NOT {source.protect}" for source in catalog.network.sources if source.protect is not None}
    drops = made.decide(catalog.overloaded(3.07).rates).drops
    assert drops
    if spared:
        (predicate,) = spared
        assert all(drop.where is not None and drop.where.endswith(predicate) for drop in drops)


@everywhere
def test_no_overload_no_drop(policy, network, planner):
    made, catalog = planner(policy, network)
    for excess in (-0.9, -0.1, 0.0):
        decision = made.decide(catalog.overloaded(excess).rates)
        assert decision.chosen is None
        assert decision.drops == ()
        assert decision.remaining == 0
        assert decision.plan().reason.endswith("nothing is shed")


@everywhere
def test_the_same_inputs_and_seed_give_the_same_decision(policy, network, planner):
    made, catalog = planner(policy, network)
    rates = catalog.overloaded(0.7).rates
    first = made.decide(rates)
    made.decide(catalog.overloaded(3.0).rates)
    again = network_policy(policy, seed=7).planner(catalog).decide(rates)
    assert made.decide(rates).row == first.row == again.row
    assert first.chosen == again.chosen


@everywhere
def test_drops_and_reports_make_sense(policy, network, planner):
    made, catalog = planner(policy, network)
    decision = made.decide(catalog.overloaded(1.5).rates)
    assert {drop.at for drop in decision.drops} <= set(catalog.network.arcs)
    assert all(0 <= drop.keep < 1 for drop in decision.drops)
    names = {output.name for output in catalog.network.outputs}
    assert decision.row.delivery.keys() == decision.row.utility.keys() == names
    assert all(0 <= percent <= 100 for percent in decision.row.delivery.values())
    assert set(decision.row.savings) <= set(catalog.rates)


@pytest.mark.parametrize("policy", SHEDDING)
def test_what_cannot_fit_is_said_and_everything_not_protected_goes(policy):
    network = (
        Builder("hopeless", capacity=1.0)
        .source("s", "x INT", rate=1000, protect="x = 1", protected=0.5)
        .filter("f", "s", "x > 0", cost=0.01)
        .output("o", "f")
        .build()
    )
    decision = network_policy(policy).planner(Catalog.of(network)).decide()
    assert not decision.feasible
    assert [(drop.at, drop.keep, drop.where) for drop in decision.drops] == [("s->f", 0.0, "NOT x = 1")]
    assert decision.remaining == pytest.approx(10 * 0.5 - 0.9)
    assert "cannot be made to fit" in decision.reason
    assert decision.row.delivery["o"] == pytest.approx(50)
