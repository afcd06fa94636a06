"""What the policy `latency` is told where queries run in batches: latencies, queues, and who gets no rows."""

from __future__ import annotations

import pytest

from streamshed.loop.arrival_rate import ArrivalRate
from streamshed.loop.network_shedding import NetworkShedding
from streamshed.network import Builder, Catalog
from streamshed.policies.latency import Latency
from streamshed.records import Flows, Sample


def shedding() -> NetworkShedding:
    """Two queries, one for each output; the catalog's costs are only proportions."""
    network = (
        Builder("n", capacity=1.0)
        .source("a", "x INT", rate=50)
        .source("b", "x INT", rate=50)
        .filter("f", "a", "x > 0", cost=0.01)
        .filter("h", "b", "x > 0", cost=0.01)
        .output("fast", "f", latency=[(0, 1), (1, 1), (5, 0)])
        .output("slow", "h", latency=[(0, 1), (60, 1), (90, 0)])
        .build()
    )
    return NetworkShedding(
        Latency(),
        Catalog.of(network),
        rate=lambda: ArrivalRate(window=2.0),
        outputs={"first": ["fast"], "second": ["slow"]},
    )


def batch(query: str, end: float, rows: int, *, backlog: float = 0.0, length: float = 1.0) -> Sample:
    source = {"first": "a", "second": "b"}[query]
    return Sample(
        at=end,
        started=end - length,
        arrived=rows,
        kept=rows,
        gap=1.0,
        waited=1.0,
        backlog=backlog,
        query=query,
        flows=Flows(arrived={source: rows}),
    )


def test_each_output_has_the_latency_of_its_query_and_the_late_one_gives() -> None:
    policy = shedding()
    policy.learn(batch("first", 10.0, 100, length=1.5))
    policy.learn(batch("second", 10.0, 100))
    assert policy.latencies == {"fast": 2.5, "slow": 2.0}
    assert {drop.at for drop in policy.choose(0.8).drops} == {"a->f"}


def test_what_a_source_holds_back_waits_in_front_of_its_arcs() -> None:
    policy = shedding()
    policy.learn(batch("first", 10.0, 100, length=1.5, backlog=30.0))
    policy.learn(batch("second", 10.0, 100))
    assert policy.queues == {"a->f": 30.0}
    few = policy.choose(0.8).share
    policy.learn(batch("first", 12.0, 100, length=1.5, backlog=300.0))
    assert policy.queues == {"a->f": 300.0}
    assert policy.choose(0.8).share < few < 0.8
    policy.learn(batch("first", 14.0, 100, length=1.5))
    assert not policy.queues


def test_a_queue_counts_the_same_whatever_the_scale_of_the_costs() -> None:
    """Rates and rows ten times as high at the same share: the same drops."""
    keeps = []
    for times in (1, 10):
        policy = shedding()
        policy.learn(batch("first", 10.0, 100 * times, length=1.5, backlog=40.0 * times))
        policy.learn(batch("second", 10.0, 100 * times))
        keeps.append([(drop.at, pytest.approx(drop.keep)) for drop in policy.choose(0.8).drops])
    assert keeps[0] == keeps[1]


def test_whose_source_is_it_if_there_are_several() -> None:
    policy = shedding()
    both = Sample(at=1.0, started=0.0, gap=1.0, backlog=50.0, query="first", flows=Flows(arrived={"a": 1, "b": 1}))
    policy.learn(both)
    assert not policy.queues


def test_an_output_that_gets_no_rows_is_left_alone() -> None:
    policy = shedding()
    for second in range(1, 6):
        policy.learn(batch("first", float(second), 100))
        policy.learn(batch("second", float(second), 100))
    assert policy.inactive == frozenset()
    for second in range(6, 10):
        policy.learn(batch("second", float(second), 0))
        policy.learn(batch("first", float(second), 100))
    assert policy.inactive == {"slow"}
    assert {drop.at for drop in policy.choose(0.5).drops} == {"a->f"}


def test_a_query_that_is_not_heard_of_has_inactive_outputs_until_it_is() -> None:
    policy = shedding()
    policy.learn(batch("second", 1.0, 100))
    for second in range(1, 20):
        policy.learn(batch("first", float(second), 100))
    assert policy.inactive == {"slow"}
    # A batch that runs for long is a sign of life.
    policy.learn(Sample(at=20.0, started=2.0, finished=False, query="second"))
    assert policy.inactive == frozenset()


def test_when_nobody_gets_rows_nobody_is_left_alone() -> None:
    policy = shedding()
    for query in ("first", "second"):
        for second in range(1, 5):
            policy.learn(batch(query, float(second), 0))
    assert policy.inactive == frozenset()
