"""The random networks: the paper's sizes, sound figures, and the same ones for the same seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.generate import NetworkShape, generate, generate_sharing, loaded
from streamshed.sim.network.engine import Simulation
from streamshed.sim.scenario import Scenario


@pytest.mark.parametrize("seed", range(5))
def test_the_papers_network(seed: int) -> None:
    network = generate(seed=seed)
    assert Counter(box.op for box in network.boxes) == {"filter": 34, "union": 13}
    assert len(network.sources) == 18
    assert len(network.outputs) == 5
    assert network.split_points == ()
    catalog = Catalog.of(network)
    assert catalog.load == pytest.approx(catalog.limit)


@pytest.mark.parametrize("shared", [1, 4, 8])
def test_sharing_replaces_sources(shared: int) -> None:
    network = generate(NetworkShape(shared=shared), seed=3)
    assert len(network.sources) == 18 - shared
    assert len(network.boxes) == 47
    assert network.split_points
    copies = sum(len(network.consumers[name]) - 1 for name in network.split_points)
    assert copies == shared


def test_the_same_seed_gives_the_same_network() -> None:
    shape = NetworkShape(shared=3, skew=1.0)
    assert generate(shape, seed=5) == generate(shape, seed=5)
    assert generate(shape, seed=5) != generate(shape, seed=6)


def test_only_utilities_change_with_skew() -> None:
    even, skewed = (generate(NetworkShape(skew=skew), seed=2) for skew in (0.0, 2.0))
    assert even.boxes == skewed.boxes
    low, high = (
        [output.qos.value.intervals[0].utility for output in network.outputs if output.qos.value]
        for network in (skewed, even)
    )
    assert all(a <= b for a, b in zip(low, high, strict=True))
    assert low != high


def test_ranked_utilities_are_alike_without_skew() -> None:
    for skew, wanted in ((0.0, [1.0] * 4), (1.0, [1 / 4, 1 / 3, 1 / 2, 1.0])):
        network = generate_sharing(4, seed=1, skew=skew)
        found = [output.qos.value.intervals[0].utility for output in network.outputs if output.qos.value]
        assert sorted(found) == pytest.approx(wanted)


def test_excess_scales_the_rates() -> None:
    catalog = Catalog.of(generate(NetworkShape(excess=3.07), seed=1))
    assert catalog.load == pytest.approx(4.07 * catalog.limit)
    catalog = Catalog.of(loaded(catalog.network, 0.22))
    assert catalog.load == pytest.approx(1.22 * catalog.limit)


def test_joins_take_their_share_of_the_boxes() -> None:
    network = generate(NetworkShape(queries=3, boxes=20, mix={"filter": 2.0, "union": 1.0, "join": 1.0}), seed=5)
    assert Counter(box.op for box in network.boxes) == {"filter": 10, "union": 5, "join": 5, "map": 5}
    assert sum(box.cost == 0 for box in network.boxes) == 5
    assert len(network.sources) == 3 + 5 + 5


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("joins", [0.0, 3.0])
def test_selectivities_are_what_the_rows_do(independent: bool, joins: float) -> None:
    mix = {"filter": 10.0, "union": 4.0, "map": 2.0, "join": joins}
    shape = NetworkShape(queries=3, boxes=16 + round(joins), mix=mix, shared=2)
    network = generate(replace(shape, independent=independent, excess=2.0), seed=4)
    simulation = Simulation(Scenario.of(network, seconds=10.0), unlimited=True)
    while not simulation.over:
        simulation.advance()
    passed = simulation.passed()
    for name, rate in Catalog.of(network).arc_rates.items():
        assert passed[name][0] / 10.0 == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NetworkShape(queries=0),
        lambda: NetworkShape(boxes=3),
        lambda: NetworkShape(mix={"sort": 1.0}),
        lambda: NetworkShape(selectivity=(0.0, 1.0)),
        lambda: NetworkShape(shared=40),
        lambda: NetworkShape(skew=-1.0),
        lambda: NetworkShape(mix={"filter": 1.0, "union": -1.0}),
        lambda: NetworkShape(mix={"filter": 0.0}),
        lambda: NetworkShape(costs={"filter": -1.0, "union": 1.0}),
    ],
)
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(InvalidArgument):
        make()  # type: ignore[operator]
