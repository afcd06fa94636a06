"""Rows that are parsed late: drops at random before the parse, by value behind it, and which of both."""

from __future__ import annotations

import pytest

from streamshed.network import Builder, Catalog, Network
from streamshed.network.parse_step import lifted, lowered, with_parse_boxes
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.contract import Decision
from streamshed.policies.registry import NETWORK_POLICIES, network_policy
from streamshed.policies.road_map.semantic import Worth
from streamshed.records import Drop

OVERLOADS = (1.5, 2.0, 3.0, 5.0)


def tickets(parse: float, *, readers: int = 2, protect: str | None = None) -> Network:
    """One output that wants high values above all, and if there are two readers one that wants most rows."""
    builder = Builder("tickets", capacity=1.0).source(
        "lines",
        "id LONG, v DOUBLE, kind STRING",
        rate=100,
        parse={"format": "json", "cost": parse},
        values={"v": (0, 100)},
        protect=protect,
        protected=0.1 if protect else 0.0,
    )
    builder.map("scored", "lines", {"id": "id", "v": "v"}, cost=1e-3)
    builder.output("alarms", "scored", value=("v", [[0, 50, 0.1], [50, 80, 0.6], [80, 100, 1.0]]))
    if readers > 1:
        builder.map("named", "lines", {"id": "id", "kind": "kind"}, cost=5e-4)
        builder.output("trend", "named", loss=[(100, 1.0), (40, 0.9), (0, 0.0)])
    return builder.build()


def decided(network: Network, policy: str, overload: float) -> tuple[Catalog, Decision]:
    catalog = Catalog.of(network)
    catalog = catalog.measured(
        rates={name: rate * overload * catalog.limit / catalog.load for name, rate in catalog.rates.items()}
    )
    return catalog, network_policy(policy, seed=1).planner(catalog).decide()


def truly(catalog: Catalog, decision: Decision) -> tuple[float, float]:
    """The utility that drops leave by what rows are worth, and the load."""
    inner = with_parse_boxes(catalog)
    model = FlowModel(inner, 0.02)
    state = model.state(model.keeps(lifted(decision.drops, catalog)))
    return sum(Worth(model, loss_graphs(inner)).utility(state).values()), state.load


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("parse", [0.0, 5e-4, 2e-3, 2e-2])
def test_by_value_is_never_worse_than_at_random_whatever_the_parse_costs(parse: float, readers: int) -> None:
    network = tickets(parse, readers=readers)
    for overload in OVERLOADS:
        utility = {}
        for policy in ("lsrm-semantic", "lsrm-random", "input-uniform"):
            catalog, decision = decided(network, policy, overload)
            utility[policy], load = truly(catalog, decision)
            assert load <= catalog.limit * 1.001, (policy, overload)
        assert utility["lsrm-semantic"] >= utility["input-uniform"] - 1e-6, (overload, utility)
        assert utility["lsrm-semantic"] >= utility["lsrm-random"] - 1e-6, (overload, utility)


def test_a_dear_parse_is_thinned_before_and_dropped_by_value_behind() -> None:
    catalog, decision = decided(tickets(2e-3), "lsrm-semantic", 2.0)
    inside = {(drop.at, drop.where is None): drop for drop in lifted(decision.drops, catalog)}
    assert 0.4 < inside["lines->lines parse", True].keep < 0.8
    assert inside["lines parse->scored", False].where == "v < 50"
    _, uniform = decided(tickets(2e-3), "input-uniform", 2.0)
    assert truly(catalog, decision)[0] > truly(catalog, uniform)[0] + 0.02


def test_a_parse_that_is_nearly_all_of_the_work_leaves_only_thinning() -> None:
    catalog, decision = decided(tickets(1.0), "lsrm-semantic", 3.0)
    (before,) = [drop for drop in lifted(decision.drops, catalog) if drop.at == "lines->lines parse"]
    assert before.keep == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("policy", NETWORK_POLICIES)
def test_every_policy_says_its_drops_in_the_arcs_of_the_network(policy: str) -> None:
    network = tickets(2e-3)
    for overload in OVERLOADS:
        catalog, decision = decided(network, policy, overload)
        assert decision.load == pytest.approx(overload * catalog.limit)
        assert {drop.at for drop in decision.drops} <= set(network.arcs)
        assert all({drop.at for drop in row.drops} <= set(network.arcs) for row in decision.rows[:3])
        if policy != "none":
            left = decision.load - (0.0 if decision.row is None else decision.row.saved(catalog.rates))
            assert truly(catalog, decision)[1] == pytest.approx(left, rel=1e-6)


def test_a_parse_that_costs_nothing_changes_nothing() -> None:
    with_cost, without = tickets(0.0), tickets(0.0)
    assert Catalog.of(with_cost).parses == {}
    assert with_parse_boxes(Catalog.of(without)) == Catalog.of(without)


def test_where_rows_are_protected_all_are_parsed() -> None:
    """Only a parsed row says that it is protected; so no drop saves the parse."""
    network = tickets(2e-3, protect="kind = 'k0'")
    catalog = Catalog.of(network)
    assert catalog.parses == {}
    assert with_parse_boxes(catalog) == catalog


def test_what_all_arcs_keep_at_random_is_kept_before_the_parse() -> None:
    catalog = Catalog.of(tickets(2e-3))
    drops = (Drop("lines->named", 0.3), Drop("lines->scored", 0.0, "v < 20"), Drop("lines->scored", 0.6))
    inside = lifted(drops, catalog)
    assert [(drop.at, drop.keep, drop.where) for drop in inside] == [
        ("lines->lines parse", 0.6, None),
        ("lines parse->scored", 0.0, "v < 20"),
        ("lines parse->named", 0.5, None),
    ]
    assert sorted(lowered(inside, catalog), key=str) == sorted(drops, key=str)
    one_keeps_all = lifted(drops[:1], catalog)
    assert [(drop.at, drop.keep) for drop in one_keeps_all] == [("lines parse->named", 0.3)]
    nothing = lifted([Drop("lines->named", 0.0), Drop("lines->scored", 0.0)], catalog)
    assert [(drop.at, drop.keep) for drop in nothing] == [("lines->lines parse", 0.0)]


def test_the_catalog_tells_rows_read_from_rows_parsed() -> None:
    catalog = Catalog.of(tickets(2e-3))
    assert catalog.load == pytest.approx(100 * (2e-3 + 1e-3 + 5e-4))
    assert catalog.source_coefficients["lines"] == pytest.approx(3.5e-3)
    one = {"lines->scored": 0.5}
    both = {"lines->scored": 0.5, "lines->named": 0.25}
    assert catalog.load_with(one) == pytest.approx(100 * (2e-3 + 0.5e-3 + 5e-4))
    assert catalog.load_with(both) == pytest.approx(100 * (0.5 * 2e-3 + 0.5e-3 + 0.25 * 5e-4))
    for keeps in (one, both):
        drops = [Drop(on, keep) for on, keep in keeps.items()]
        model = FlowModel(with_parse_boxes(catalog))
        assert model.state(model.keeps(lifted(drops, catalog))).load == pytest.approx(catalog.load_with(keeps))
