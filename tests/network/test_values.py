import pytest

from streamshed.network import Builder, Catalog
from streamshed.network.expressions.ranges import Ranges
from streamshed.network.qos import Histogram
from streamshed.network.value_flow.cells import loss_graphs, output_histogram, traces
from streamshed.network.value_flow.trace import reaching, trace


def network(**value):
    return (
        Builder("n")
        .source("s", "x DOUBLE, k INT", rate=100, values={"x": (0, 100)})
        .source("t", "x DOUBLE, k INT", rate=300, values={"x": (0, 50)})
        .filter("f", "s", "x >= 20", selectivity=0.8)
        .union("u", ["f", "t"])
        .map("m", "u", {"y": "200 - x * 2", "k": "k"})
        .filter("g", "m", "y > 20", selectivity=0.95)
        .output("o", "g", value=("y", [[0, 100, 0.1], [100, 200, 1.0]]))
        .output("p", "m")
        .build()
    )


def test_a_value_is_followed_through_maps_filters_and_unions():
    way = trace(network(), "o", "y")
    assert set(way) == {"g->o", "m->g", "u->m", "f->u", "t->u", "s->f"}
    assert way["s->f"].field == "x"
    assert not way["s->f"].increasing
    assert way["s->f"].preimage(Ranges.between(100, 150)).render("x") == "x > 25 AND x <= 50"


def test_values_that_reach_an_output():
    found = reaching(network(), "o", trace(network(), "o", "y"))
    assert found["m->g"].render("y") == "y > 20"
    assert found["t->u"].render("x") == "x < 90"
    assert found["s->f"].render("x") == "x >= 20 AND x < 90"


def test_what_stops_a_trace():
    stopped = (
        Builder("n")
        .source("s", "x DOUBLE, k INT")
        .source("t", "k INT, z DOUBLE")
        .join("j", ["s", "t"], ["k"], 1)
        .map("m", "j", {"y": "x * x", "z": "z", "k": "k"})
        .aggregate("g", "m", 1, {"y": "avg(y)"}, by=["k"])
        .output("o", "m")
        .output("a", "g")
        .build()
    )
    assert set(trace(stopped, "o", "y", trials=False)) == {"m->o"}
    assert set(trace(stopped, "o", "y")) == {"m->o", "j->m", "s->j"}
    assert set(trace(stopped, "o", "z")) == {"m->o", "j->m", "t->j"}
    assert set(trace(stopped, "a", "y")) == {"g->a"}
    assert set(trace(stopped, "a", "k")) == {"g->a", "m->g", "j->m", "s->j", "t->j"}


def test_two_different_ways_from_one_arc_are_not_followed():
    twice = (
        Builder("n")
        .source("s", "x DOUBLE")
        .filter("f", "s", "x > 0")
        .map("a", "f", {"x": "x"})
        .map("b", "f", {"x": "x * 2"})
        .union("u", ["a", "b"])
        .output("o", "u")
        .build()
    )
    assert "f->a" in trace(twice, "o", "x")
    assert "s->f" not in trace(twice, "o", "x")


def test_a_declared_inverse_is_used():
    declared = (
        Builder("n")
        .source("s", "x DOUBLE")
        .map("m", "s", {"y": "x * x"}, inverse={"y": "x = sqrt(y)"})
        .output("o", "m")
        .build()
    )
    assert trace(declared, "o", "y")["s->m"].preimage(Ranges.between(4, 9)).render("x") == "x >= 2 AND x < 3"


def test_the_spread_of_an_output_follows_from_its_sources():
    made = network()
    catalog = Catalog.of(made)
    histogram = output_histogram(catalog, made.outputs[0], traces(made))
    assert histogram is not None
    # s gives 80 rows of x in [20, 100), of which g passes 95 %, those below 90 (y above 20): 76 rows.
    # t gives 300 rows of x in [0, 50), all with y above 100, of which g passes 95 %: 285 rows.
    high = (285 + 76 * 30 / 70) / (285 + 76)
    assert histogram.share(Ranges.between(100, 201)) == pytest.approx(high, rel=1e-6)
    assert loss_graphs(catalog)["o"](100 * high) == pytest.approx(high / (high + 0.1 * (1 - high)), rel=1e-6)


def test_a_histogram_seen_at_the_output_serves_where_sources_say_nothing():
    made = (
        Builder("n")
        .source("s", "x DOUBLE")
        .map("m", "s", {"y": "0 - x"})
        .output("o", "m", value=("y", [[-10, 0, 1.0]]), histogram=Histogram.of([-10, -5, 0], [1, 3]))
        .build()
    )
    histogram = output_histogram(Catalog.of(made), made.outputs[0], traces(made))
    assert histogram == Histogram.of([-10, -5, 0], [1, 3])
