import dataclasses

import pytest

from streamshed.network import Builder
from streamshed.network.graph import InvalidNetwork, schema_of


def split():
    return (
        Builder("split")
        .source("s", "k INT, x DOUBLE, at TIMESTAMP", arrived="at", rate=10)
        .filter("head", "s", "x > 0")
        .filter("left", "head", "x > 1")
        .aggregate("right", "head", "1 minute", {"n": "count(*)", "top": "max(x)"}, by=["k"])
        .output("l", "left")
        .output("r", "right")
    )


def problems(builder):
    with pytest.raises(InvalidNetwork) as caught:
        builder.build()
    return {problem.path: problem for problem in caught.value.problems}


def test_arcs_order_and_split_points():
    network = split().build()
    assert network.arcs == ("s->head", "head->left", "head->right", "left->l", "right->r")
    assert network.split_points == ("head",)
    assert network.consumers["head"] == ("left", "right")


def test_boxes_given_in_any_order_are_put_in_order():
    builder = (
        Builder("n").filter("b", "a", "x > 1").filter("a", "s", "x > 0").source("s", "x INT").output("o", "b")
    )
    assert [box.name for box in builder.build().order] == ["a", "b"]


def test_schemas_and_time_columns():
    network = split().build()
    columns = [(column.name, column.type) for column in network.schemas["right"]]
    assert columns == [
        ("window_start", "TIMESTAMP"),
        ("window_end", "TIMESTAMP"),
        ("k", "INT"),
        ("n", "LONG"),
        ("top", "DOUBLE"),
    ]
    assert network.times == {
        "s": "at",
        "head": "at",
        "left": "at",
        "right": "window_end",
        "l": "at",
        "r": "window_end",
    }


def test_a_join_has_the_columns_of_both_sides():
    network = (
        Builder("j")
        .source("a", "k INT, x DOUBLE")
        .source("b", "k INT, y DOUBLE")
        .join("j", ["a", "b"], ["k"], "10 seconds")
        .output("o", "j")
        .build()
    )
    assert [column.name for column in network.schemas["o"]] == ["k", "x", "y"]


def test_networks_are_frozen_and_equal_by_value():
    assert split().build() == split().build()
    with pytest.raises(dataclasses.FrozenInstanceError):
        split().build().name = "other"


def test_a_cycle_is_named():
    builder = (
        Builder("c").source("s", "x INT").filter("a", "b", "x > 1").filter("b", "a", "x > 1").output("o", "b")
    )
    problem = problems(builder)["boxes.a"]
    assert "cycle" in problem.problem
    assert set(str(problem.got).split(" -> ")) == {"a", "b"}


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        (lambda b: b.filter("f", "nowhere", "x > 1"), "boxes.f.input", "no such source or box"),
        (lambda b: b.output("p", "o"), "outputs.p.input", "no such source or box"),
        (lambda b: b.filter("s", "s", "x > 1"), "boxes.s", "the name is taken"),
        (lambda b: b.filter("f", "s", "y > 1"), "boxes.f.where", "unknown field 'y'"),
        (lambda b: b.filter("f", "s", "avg(x) > 1"), "boxes.f.where", "an aggregate outside"),
        (lambda b: b.filter("f", "s", "x > 1", cost=-1.0), "boxes.f.cost", "out of bounds"),
        (
            lambda b: b.filter("f", "s", "x > 1", selectivity=float("nan")),
            "boxes.f.selectivity",
            "out of bounds",
        ),
        (lambda b: b.union("u", ["s"]), "boxes.u.inputs", "two inputs or more"),
        (lambda b: b.union("u", ["s", "s"]), "boxes.u.inputs", "the same input twice"),
        (lambda b: b.join("j", ["s"], ["x"], 1), "boxes.j.inputs", "a join has two inputs"),
        (lambda b: b.source("t", "y INT").union("u", ["s", "t"]), "boxes.u.inputs", "other columns"),
        (lambda b: b.aggregate("g", "s", 1, {"m": "x + 1"}), "boxes.g.compute.m", "not an aggregate"),
        (lambda b: b.aggregate("g", "s", 1, {"m": "avg(x)"}, by=["y"]), "boxes.g.by", "no such column"),
        (lambda b: b.udf("f", "s", "m:f", ["y"], "z DOUBLE"), "boxes.f.reads", "no such column"),
        (lambda b: b.udf("f", "s", "m:f", ["x"], "x DOUBLE"), "boxes.f.adds", "there already"),
        (
            lambda b: b.output("p", "s", value=("y", [[0, 1, 1]])),
            "outputs.p.qos.value.field",
            "not a numeric",
        ),
        (lambda b: b.source("t", "y INT", arrived="z"), "sources.t.arrived", "no such column"),
        (lambda b: b.source("t", "y INT", protected=0.5), "sources.t.protected", "a share of what"),
    ],
)
def test_what_is_wrong_is_named(change, path, says):
    builder = Builder("n").source("s", "x INT").output("o", "s")
    assert says in problems(change(builder))[path].problem


def test_all_problems_are_told_at_once():
    builder = Builder("n", headroom=3.0).source("s", "x INT", rate=-1).filter("f", "s", "y > 1", cost=-1.0)
    assert problems(builder).keys() == {
        "outputs",
        "headroom",
        "sources.s.rate",
        "boxes.f.cost",
        "boxes.f.where",
    }


@pytest.mark.parametrize("text", ["", "x", "x INT y", "x NUMBER", "x INT, x INT", "1x INT"])
def test_bad_schemas_are_refused(text):
    with pytest.raises(ValueError, match="column"):
        schema_of(text)


def test_drawings_name_every_node():
    network = split().build()
    for style in ("text", "mermaid"):
        drawing = network.draw(style)
        assert all(name in drawing for name in network.nodes)
    assert network.draw("mermaid").count("-->") == len(network.arcs)
    assert network._repr_html_().startswith("<pre>split")
    assert "x &gt; 0" in network._repr_html_()
