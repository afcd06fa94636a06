"""Properties of networks, graphs, expressions and ranges that hold for whatever hypothesis thinks of."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from streamshed.network import Catalog
from streamshed.network.expressions.analysis import invert, passing
from streamshed.network.expressions.expression import Binary, Call, Field, Literal, Unary, parse
from streamshed.network.expressions.ranges import Ranges, above
from streamshed.network.qos import Graph, Histogram, LossGraph, ValueGraph, total
from streamshed.network.spec import yaml as spec
from streamshed.policies.road_map.random import build
from tests.networks import random_network

numbers = st.floats(-1000, 1000).map(lambda x: round(x, 2))
names = st.sampled_from(["a", "b", "c"])
arithmetic = st.recursive(
    st.one_of(numbers.map(lambda x: Literal(float(x))), names.map(Field)),
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), inner, inner),
        st.builds(lambda x: Unary("NEG", x), inner.filter(lambda x: not isinstance(x, Literal))),
        st.builds(lambda x: Call("abs", (x,)), inner),
    ),
    max_leaves=8,
)
predicates = st.recursive(
    st.builds(Binary, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), arithmetic, arithmetic),
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from(["AND", "OR"]), inner, inner),
        st.builds(lambda x: Unary("NOT", x), inner),
    ),
    max_leaves=6,
)
intervals = st.lists(st.tuples(numbers, numbers).map(sorted).map(tuple), max_size=5)
ranges = intervals.map(Ranges.of)


@given(st.one_of(arithmetic, predicates))
def test_rendering_and_parsing_are_inverse(tree):
    assert parse(tree.sql()) == tree


@given(predicates, st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=20))
@example(parse("0 = 0 AND a = -(1 / 0)"), [(0.0, 0.0, 0.0)])
def test_a_row_that_passes_lies_in_the_ranges_and_exactly_if_exact(predicate, rows):
    columns = {name: np.array(values) for name, values in zip("abc", zip(*rows, strict=True), strict=True)}
    with np.errstate(all="ignore"):
        passes = np.broadcast_to(predicate.evaluate(columns), len(rows))
    found = passing(predicate)
    for index in range(len(rows)):
        near = any(
            abs(columns[name][index] - end) <= 1e-9 * max(1.0, abs(end))
            for name, where in found.ranges.items()
            for span in where
            for end in span
            if math.isfinite(end)
        )
        inside = all(columns[name][index] in where for name, where in found.ranges.items())
        if not near:  # at an end, rounding in the inverse may go either way
            assert inside or not passes[index]
            assert not found.exact or inside == passes[index]


@given(ranges, ranges, numbers)
def test_ranges_are_sets(one, other, value):
    assert (value in (one | other)) == (value in one or value in other)
    assert (value in (one & other)) == (value in one and value in other)
    assert (value in ~one) == (value not in one)
    assert (value in (one - other)) == (value in one and value not in other)
    assert ~~one == one
    assert (one & other) <= one <= (one | other)


@given(ranges, numbers)
def test_a_rendered_range_means_the_same(where, value):
    text = where.render("a")
    assert bool(parse(text).evaluate({"a": np.array(value)})) == (value in where)


@given(st.sampled_from(["a * 4 + 8", "16 - a", "-a / 2", "2 * a - 32"]), ranges, st.integers(-500, 500))
def test_a_preimage_holds_what_the_map_takes_into_the_range(text, where, value):
    inverse = invert(parse(text))
    image = float(parse(text).evaluate({"a": np.array(float(value))}))
    assume(all(abs(image - end) > 1e-6 for span in where for end in span))
    assert (float(value) in inverse.preimage(where)) == (image in where)


graphs = st.builds(
    lambda cuts, slopes: _concave(sorted({0, 100, *cuts}), slopes),
    st.lists(st.integers(1, 99), max_size=4),
    st.lists(st.floats(0, 1), min_size=5, max_size=5),
)


def _concave(cuts, slopes):
    slopes = sorted(slopes[: len(cuts) - 1], reverse=True)
    heights = [0.0]
    for low, high, slope in zip(cuts, cuts[1:], slopes, strict=False):
        heights.append(heights[-1] + slope * (high - low))
    top = heights[-1] or 1.0
    return LossGraph.of([(x, min(1.0, y / top)) for x, y in zip(cuts, heights, strict=True)])


@given(st.lists(graphs, min_size=1, max_size=4), st.floats(0, 100))
def test_a_sum_of_graphs_is_the_sum_everywhere_and_concave(parts, x):
    whole = total(parts)
    assert whole(x) == pytest.approx(sum(part(x) for part in parts))
    Graph.of(whole.points)


value_graphs = st.lists(st.floats(0, 1), min_size=1, max_size=5).map(
    lambda utilities: ValueGraph.of("v", [[20 * i, 20 * i + 20, u] for i, u in enumerate(utilities)])
)
histograms = (
    st.lists(st.integers(0, 20), min_size=4, max_size=10)
    .filter(sum)
    .map(lambda counts: Histogram.of([10 * i for i in range(len(counts) + 1)], counts))
)


@given(value_graphs, histograms, st.floats(0, 100), st.floats(0, 100))
def test_dropping_by_value_drops_as_much_as_asked_and_more_only_adds(graph, histogram, first, second):
    order = graph.order(histogram)
    less, more = sorted((first, second))
    assert histogram.share(order.dropped(less)) == pytest.approx(less / 100, abs=1e-6)
    assert histogram.share(order.dropped(less) - order.dropped(more)) <= 1e-6


@given(value_graphs, histograms, st.floats(0, 100))
def test_the_derived_loss_graph_is_the_value_utility_that_is_left(graph, histogram, percent):
    """Against an integral over many small bins."""
    order = graph.order(histogram)
    edges = np.linspace(0, 100, 1001)
    middles = (edges[:-1] + edges[1:]) / 2
    mass = np.array([histogram.share(Ranges.between(a, b)) for a, b in pairwise(edges)])
    worth = graph.many(middles) * mass
    assume(worth.sum() > 0.01)
    gone = order.dropped(percent)
    left = sum(w for w, middle in zip(worth, middles, strict=True) if middle not in gone)
    assert order.loss_graph()(100 - percent) == pytest.approx(left / worth.sum(), abs=0.01 / worth.sum())


@given(st.integers(0, 10_000), st.booleans(), st.data())
@settings(max_examples=40)
def test_load_is_linear_in_the_rates_and_additive_over_sources(seed, sharing, data):
    catalog = Catalog.of(random_network(seed, sharing=sharing, boxes=8))
    rates = {name: data.draw(st.floats(0, 1000)) for name in catalog.rates}
    alone = [
        catalog.measured(rates={**dict.fromkeys(rates, 0.0), name: rate}).load_with({})
        for name, rate in rates.items()
    ]
    assert catalog.measured(rates=rates).load == pytest.approx(sum(alone))
    assert catalog.measured(rates=rates).scaled(3.0).load == pytest.approx(3 * sum(alone))


@given(st.integers(0, 10_000), st.booleans(), st.floats(0, 0.5))
@settings(max_examples=25)
def test_every_row_of_every_road_map_holds_exactly(seed, sharing, protected):
    network = random_network(seed, sharing=sharing, boxes=8, protect=protected, mixing=protected == 0)
    catalog = Catalog.of(network)
    for row in build(catalog, step=0.25):
        # With the same share protected everywhere, rows that may be dropped are a network of their own.
        keeps = {drop.at: drop.keep for drop in row.drops}
        free = catalog.delivery(keeps)
        expected = {name: 100 * protected + (1 - protected) * percent for name, percent in free.items()}
        assert row.delivery == pytest.approx(expected, abs=1e-6)
        saved = (1 - protected) * (catalog.load - catalog.load_with(keeps))
        assert row.saved(catalog.rates) == pytest.approx(saved)


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=30)
def test_specs_round_trip(seed, sharing):
    network = random_network(seed, sharing=sharing)
    assert spec.parse(spec.dump(network)) == network


def test_above_is_the_next_number():
    assert above(5.0) > 5.0
    assert math.nextafter(above(5.0), -math.inf) == 5.0
