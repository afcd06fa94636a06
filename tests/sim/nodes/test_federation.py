"""Several nodes: what queries keep of their information, and what happens when nodes and queries come and go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamshed.errors import InvalidArgument
from streamshed.lab.experiments.sic_queries import KINDS, mixed, query
from streamshed.network import Builder
from streamshed.quality.sic import jain
from streamshed.quality.source_time_window import SourceTimeWindow
from streamshed.sim.nodes.deployment import FederatedQuery, FederationSettings, Incident
from streamshed.sim.nodes.federation import Federation


def run(nodes: list[str], queries: list[FederatedQuery], seconds: float = 25.0, **settings: object) -> Federation:
    incidents = settings.pop("incidents", ())
    federation = Federation(dict.fromkeys(nodes, 1.0), queries, FederationSettings(**settings), incidents)
    federation.run(seconds)
    return federation


def settled(federation: Federation, since: float) -> np.ndarray:
    """[moment, query]"""
    return np.array([list(moment.sic.values()) for moment in federation.history if moment.at >= since])


@pytest.mark.parametrize("shedder", ["fair", "random", "input-uniform"])
def test_without_overload_nothing_is_shed_and_every_query_has_all(shedder):
    federation = run(["a", "b"], mixed(10, ["a", "b"], 0.7, seed=3, spread=(1, 2)), shedder=shedder)
    assert all(node.shedder.shed == 0 for node in federation.nodes.values())
    assert settled(federation, 0).min() == pytest.approx(1.0)
    assert federation.warnings() == []


def test_fair_is_fair_where_random_and_uniform_are_not():
    found = {}
    for name in ("fair", "random", "input-uniform"):
        federation = run(["a"], mixed(20, ["a"], 3.0, seed=1), 30.0, shedder=name)
        sic = settled(federation, 18.0)
        found[name] = np.mean([jain(row) for row in sic]), sic.mean()
    assert found["fair"][0] > 0.99
    assert found["random"][0] < 0.98
    assert found["input-uniform"][0] < 0.8
    assert found["fair"][1] == pytest.approx(1 / 3, abs=0.03)  # a third of all fits, and everybody has a third


def test_queries_over_several_nodes_end_up_equal():
    queries = mixed(24, ["a", "b", "c"], 2.0, seed=2, spread=(1, 3))
    sic = settled(run(["a", "b", "c"], queries, 45.0), 30.0)
    assert np.mean([jain(row) for row in sic]) > 0.97


def test_a_query_of_weight_2_keeps_twice_as_much():
    queries = [
        FederatedQuery(
            query("count", f"q{n}", 100, 2e-3),
            dict.fromkeys(("near", "shape", "best"), "a"),
            weight=1 + (n == 0),
            batches=8,
        )
        for n in range(5)
    ]
    sic = settled(run(["a"], queries, 30.0), 18.0).mean(axis=0)
    assert sic[0] / sic[1:].mean() == pytest.approx(2.0, rel=0.08)


def test_a_minimum_is_kept():
    queries = [
        FederatedQuery(
            query("count", f"q{n}", 100, 2e-3),
            dict.fromkeys(("near", "shape", "best"), "a"),
            minimum=0.8 * (n == 0),
            batches=8,
        )
        for n in range(5)
    ]
    sic = settled(run(["a"], queries, 30.0), 18.0)
    assert sic[:, 0].min() > 0.74
    assert sic[:, 1:].max() < 0.6


def test_a_node_that_fails_lowers_the_sic_of_its_queries_as_shedding_does():
    queries = mixed(6, ["a"], 0.5, seed=1) + [
        replace(each, network=replace(each.network, name=f"on b {n}"), nodes=dict.fromkeys(each.nodes, "b"))
        for n, each in enumerate(mixed(3, ["a"], 0.25, seed=2))
    ]
    federation = run(["a", "b"], queries, 40.0, incidents=[Incident(15.0, "b")])
    last = federation.history[-1].sic
    assert [last[each.name] for each in queries[:6]] == pytest.approx([1.0] * 6)
    assert [last[each.name] for each in queries[6:]] == [0.0] * 3
    halfway = next(moment for moment in federation.history if moment.at >= 21.0).sic
    assert 0.1 < halfway["on b 0"] < 0.9  # as the window slides over the failure


def test_queries_come_and_go_and_the_others_share_what_is_left():
    steady = [replace(each, batches=8.0) for each in mixed(5, ["a"], 1.6, seed=5)]
    guests = [
        replace(each, network=replace(each.network, name=f"guest {n}"), starts=20.0, ends=45.0, batches=8.0)
        for n, each in enumerate(mixed(5, ["a"], 1.6, seed=6))
    ]
    federation = run(["a"], steady + guests, 75.0)
    by_time = {moment.at: moment.sic for moment in federation.history}
    assert set(by_time[10.0]) == {each.name for each in steady}
    assert np.mean(list(by_time[19.0].values())) == pytest.approx(1 / 1.6, abs=0.06)
    both = list(by_time[44.0].values())
    assert len(both) == 10
    assert np.mean(both) == pytest.approx(1 / 3.2, abs=0.05)
    assert jain(both) > 0.97
    assert set(by_time[60.0]) == {each.name for each in steady}
    assert np.mean(list(by_time[74.0].values())) == pytest.approx(1 / 1.6, abs=0.06)


def test_a_node_that_slows_down_is_noticed():
    queries = [replace(each, batches=8.0) for each in mixed(6, ["a"], 0.8, seed=5)]
    federation = run(["a"], queries, 60.0, incidents=[Incident(20.0, "a", capacity=0.4)])
    by_time = {moment.at: moment.sic for moment in federation.history}
    assert min(by_time[19.0].values()) == pytest.approx(1.0)
    assert np.mean(list(by_time[60.0].values())) == pytest.approx(0.5, abs=0.06)
    assert jain(by_time[60.0].values()) > 0.98


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_query_without_loss_gives_what_a_single_pass_gives(kind):
    """The results over batches, on two nodes, are those of the rows all at once; and none is counted twice."""
    network = query(kind, "q", 40, 1e-5)
    names = [box.name for box in network.order]
    places = {name: "a" if number == 0 else "b" for number, name in enumerate(names)}
    federation = run(["a", "b"], [FederatedQuery(network, places)], 20.0, results=True)
    alone = run(["c"], [FederatedQuery(network, dict.fromkeys(names, "c"))], 20.0, results=True)

    def rows(found: Federation) -> set[tuple[float, ...]]:
        return {
            tuple(float(each.columns[name][i]) for name in sorted(each.columns))
            for each in found.results["q"]
            for i in range(len(each))
            if each.arrived[i] < 15.0
        }

    assert len(rows(federation)) >= 12
    assert rows(federation) == rows(alone)


def test_what_comes_out_is_all_that_was_sent_or_waits():
    network = (
        Builder("w").source("s", "x DOUBLE, at TIMESTAMP", arrived="at", rate=50, values={"x": (0, 1)})
        .filter("f", "s", "x > 0.97").aggregate("g", "f", 4.0, {"n": "count(*)"}, slide=1.0)
        .count_window("c", "s", 30, {"n": "count(*)"}).map("m", "g", {"n": "n"}).map("o", "c", {"n": "n"})
        .union("u", ["m", "o"]).output("r", "u").build()
    )  # fmt: skip
    federation = run(["a"], [FederatedQuery(network, dict.fromkeys(("f", "g", "c", "m", "o", "u"), "a"))], 30.0)
    assert settled(federation, 10.0).min() > 0.99  # a count window may hold its last rows for a while


def test_statistics_of_every_node_once_a_minute():
    queries = mixed(8, ["a", "b"], 1.5, seed=4, spread=(1, 2))
    federation = run(["a", "b"], queries, 125.0, incidents=[Incident(65.0, "b")])
    told = list(federation.ledger.nodes)
    assert [(each.node, round(each.at)) for each in told] == [("a", 60), ("b", 60), ("a", 120), ("b", 120)]
    first, last = told[0], told[2]
    assert first.running == first.connected == sum("a" in each.places for each in queries)
    assert last.connected == sum(each.places == ("a",) for each in queries) < last.running
    assert 0.4 < first.sic_mean < 0.95
    assert first.shed > 0
    assert first.throughput > 0
    assert 0 < first.latency < 1.0
    assert told[3].running == 0
    report = federation.report()
    assert report.by_node["a"] == last
    assert report.as_dict()["by_node"]["a"]["connected"] == last.connected
    for each in queries:  # since the beginning, and not over the window
        assert 0.1 < report.by_output[each.name].sic < 1.0


def test_a_window_shorter_than_the_delay_is_told():
    federation = run(["a"], mixed(3, ["a"], 0.5, seed=1), 12.0, window=SourceTimeWindow(1.5, 0.25))
    (first, *_) = federation.warnings()
    assert "source time window of 1.5 s is not longer than the query's delay of 2." in first


def test_the_same_seed_gives_the_same_run():
    queries = mixed(10, ["a"], 2.0, seed=1)
    assert run(["a"], queries, 15.0, seed=7).history == run(["a"], queries, 15.0, seed=7).history


def test_bad_input_is_refused():
    good = mixed(2, ["a"], 1.0, seed=1)
    for nodes, queries, settings, incidents, message in (
        ({}, good, {}, [], "needs a node and a query"),
        ({"a": 1.0}, [], {}, [], "needs a node and a query"),
        ({"a": 0.0}, good, {}, [], "capacity must be above 0"),
        ({"b": 1.0}, good, {}, [], "is on no node"),
        ({"a": 1.0}, [replace(good[0], weight=0.0)], {}, [], "weight must be above 0"),
        ({"a": 1.0}, [replace(good[0], minimum=2.0)], {}, [], "minimum SIC"),
        ({"a": 1.0}, [replace(good[0], batches=0.0)], {}, [], "more than 0 batches"),
        ({"a": 1.0}, [good[0], good[0]], {}, [], "two queries of one name"),
        ({"a": 1.0}, good, {"shedder": "best"}, [], "no such shedder"),
        ({"a": 1.0}, good, {"interval": 0.0}, [], "interval must be above 0"),
        ({"a": 1.0}, good, {}, [Incident(1.0, "z")], "no such node"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            Federation(nodes, queries, FederationSettings(**settings), incidents)
