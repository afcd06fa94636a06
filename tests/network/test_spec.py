from pathlib import Path

import pytest

from streamshed.errors import InvalidArgument
from streamshed.network import Builder, LoadAware
from streamshed.network.generate import NetworkShape, generate
from streamshed.network.graph import InvalidNetwork
from streamshed.network.qos import Histogram
from streamshed.network.spec import yaml as spec
from tests.networks import random_network

EXAMPLE = Path(__file__).parents[2] / "examples" / "triage.yaml"

EVERYTHING = """
network: everything
sources:
  a: {schema: "k INT, x DOUBLE, at TIMESTAMP", arrived: at, rate: 1200, values: {x: [0, 100]},
      protect: "x > 90", protected: 0.1, read: {format: json, options: {path: in/}}}
  b: {schema: "k INT, y DOUBLE", values: {y: {edges: [0, 1, 5], shares: [1, 3]}}}
boxes:
  f: {op: filter, input: a, where: "x > 10", cost: 2e-6, selectivity: 0.9}
  j: {op: join, inputs: [f, b], on: [k], within: "10 seconds", cost: 5.0e-6, selectivity: 0.4}
  u: {op: udf, input: j, function: "mine.models:score", reads: [x, y], adds: "score DOUBLE"}
  m: {op: map, input: u, select: {k: k, x: "power(x, 2)", at: at}, inverse: {x: "x = power(x, 0.5)"}}
  g: {op: aggregate, input: m, window: "1 minute", slide: 10 s, by: [k], compute: {x: "avg(x)"}}
  h: {op: aggregate, input: m, window: 60, compute: {n: "count(*)"}}
outputs:
  p: {input: g, write: {format: console},
      qos: {loss: [[100, 1.0], [50, 0.7], [0, 0.0]], latency: [[0, 1.0], [2, 1.0], [10, 0.0]],
            value: {field: x, intervals: [[0, 50, 0.2], [50, 100, 0.4, 1.0]]}, histogram: [0, 100]}}
  q: {input: h}
capacity: 2
headroom: 0.8
"""


@pytest.mark.parametrize(
    ("many", "single"),
    [("on: [k]", "on: k"), ("by: [k]", "by: k"), ("reads: [x, y]", "reads: x")],
)
def test_one_column_needs_no_list(many, single):
    assert many in EVERYTHING
    listed = EVERYTHING.replace(many, single.replace(": ", ": [") + "]")
    assert spec.parse(EVERYTHING.replace(many, single)) == spec.parse(listed)


def test_one_column_needs_no_list_in_python_either():
    def joined(on):
        builder = Builder("n").source("a", "user INT, x DOUBLE").source("b", "user INT, y DOUBLE")
        return builder.join("j", ["a", "b"], on, 10).output("o", "j").build()

    assert joined("user") == joined(["user"])


@pytest.mark.parametrize("wrong", ["''", "3", "{k: k}", "[1]"])
def test_what_a_join_is_on_must_be_names(wrong):
    with pytest.raises(InvalidNetwork, match=r"boxes\.j\.on: not "):
        spec.parse(EVERYTHING.replace("on: [k]", f"on: {wrong}"))


def built():
    return (
        Builder("everything", capacity=2.0, headroom=0.8)
        .source(
            "a",
            "k INT, x DOUBLE, at TIMESTAMP",
            arrived="at",
            rate=1200,
            values={"x": (0, 100)},
            protect="x > 90",
            protected=0.1,
            read={"format": "json", "options": {"path": "in/"}},
        )
        .source("b", "k INT, y DOUBLE", values={"y": Histogram.of([0, 1, 5], [1, 3])})
        .filter("f", "a", "x > 10", cost=2e-6, selectivity=0.9)
        .join("j", ["f", "b"], ["k"], 10, cost=5e-6, selectivity=0.4)
        .udf("u", "j", "mine.models:score", ["x", "y"], "score DOUBLE")
        .map("m", "u", {"k": "k", "x": "power(x, 2)", "at": "at"}, inverse={"x": "x = power(x, 0.5)"})
        .aggregate("g", "m", "1 minute", {"x": "avg(x)"}, by=["k"], slide=10)
        .aggregate("h", "m", "60 s", {"n": "count(*)"})
        .output(
            "p",
            "g",
            write={"format": "console"},
            loss=[(100, 1.0), (50, 0.7), (0, 0.0)],
            latency=[(0, 1.0), (2, 1.0), (10, 0.0)],
            value=("x", [[0, 50, 0.2], [50, 100, 0.4, 1.0]]),
            histogram=Histogram.uniform(0, 100),
        )
        .output("q", "h")
        .build()
    )


def test_yaml_and_builder_give_equal_networks():
    assert spec.parse(EVERYTHING) == built()


@pytest.mark.parametrize(
    "network",
    [
        built(),
        spec.load(EXAMPLE),
        random_network(3, sharing=True, protect=0.1),
        generate(NetworkShape(shared=2, skew=1.0), seed=4),
    ],
)
def test_what_is_written_reads_back_equal(network):
    assert spec.parse(spec.dump(network)) == network


def roots(**settings):
    how = LoadAware(latency="avg 2 seconds over 1000 rows", key=("k",), **settings)
    return (
        Builder("roots")
        .source("s", "k INT, x DOUBLE")
        .udf("root", "s", "math:sqrt", ["x"], "root DOUBLE", load_aware=how)
        .output("out", "root")
        .build()
    )


def test_the_settings_of_a_load_aware_box_read_back_equal():
    settings = {"window": 256, "tolerance": 0.1, "epsilon": 1.0, "delta": 0.25, "floor": 0.05, "on_error": "skip"}
    for asked in ({}, settings):
        assert spec.parse(spec.dump(roots(**asked))) == roots(**asked)
    text = """
network: roots
sources: {s: {schema: "k INT, x DOUBLE"}}
boxes:
  root: {op: udf, input: s, function: "math:sqrt", reads: x, adds: "root DOUBLE",
    load_aware: {latency: avg 2 seconds over 1000 rows, key: k, window: 256, tolerance: 0.1, epsilon: 1,
                 delta: 0.25, floor: 0.05, on_error: skip}}
outputs: {out: {input: root}}
"""
    assert spec.parse(text) == roots(**settings)
    for name, wrong in (
        ("window: 256", "window: 0"), ("window: 256", "window: 2.5"), ("window: 256", "window: many"),
        ("tolerance: 0.1", "tolerance: 1"), ("epsilon: 1", "epsilon: 1.5"), ("delta: 0.25", "delta: 0"),
        ("floor: 0.05", "floor: 2"), ("floor: 0.05", "flor: 0.05"),
    ):  # fmt: skip
        with pytest.raises(InvalidNetwork, match=rf"boxes\.root\.load_aware\.{wrong.split(':')[0]}"):
            spec.parse(text.replace(name, wrong))


@pytest.mark.parametrize(("name", "wrong"), [("window", 1.5), ("window", True), ("epsilon", "0.1"), ("floor", -1)])
def test_settings_that_no_shedder_can_work_with(name, wrong):
    with pytest.raises(InvalidNetwork, match=rf"load_aware\.{name}: out of bounds"):
        roots(**{name: wrong})


def with_(old, new):
    assert EVERYTHING.count(old) == 1, old
    return EVERYTHING.replace(old, new)


@pytest.mark.parametrize(
    ("text", "path", "got", "allowed"),
    [
        (
            with_("op: filter", "op: filtre"),
            "boxes.f.op",
            "'filtre'",
            "filter, map, union, join, aggregate, count_window, top_k, udf",
        ),
        (
            with_("{op: filter, input: a,", "{op: filter, colour: red, input: a,"),
            "boxes.f.colour",
            "'red'",
            "where",
        ),
        (with_("network: everything", "network: everything\ncolour: red"), "colour", "'red'", "sources"),
        (with_("input: a", "input: h"), "boxes.f", "f -> j -> u -> m -> h", None),
        (with_("q: {input: h}", "q: {}"), "outputs.q.input", None, None),
        (with_("[50, 0.7]", "[50, 0.2]"), "outputs.p.qos.loss", "slope", "utility must fall"),
        (
            with_("[50, 100, 0.4, 1.0]", "[40, 100, 0.4]"),
            "outputs.p.qos.value.intervals",
            "[0, 50] and [40",
            None,
        ),
        (with_("cost: 2e-6", "cost: -2"), "boxes.f.cost", "-2.0", "0 or more"),
        (with_("cost: 2e-6", "cost: cheap"), "boxes.f.cost", "'cheap'", "a finite number"),
        (with_("cost: 2e-6", "cost: .inf"), "boxes.f.cost", "inf", "a finite number"),
        (with_('"x > 10"', '"x >"'), "boxes.f.where", "'x >' at column 4", "fields, numbers"),
        (with_('"x > 10"', '"z > 10"'), "boxes.f.where", "'z > 10'", "k, x, at"),
        (with_("inputs: [f, b]", "inputs: [f, c]"), "boxes.j.inputs", "'c'", "a, b, f"),
        (with_("inputs: [f, b]", "inputs: f"), "boxes.j.inputs", "'f'", "[name"),
        (with_('"10 seconds"', '"10 parsecs"'), "boxes.j.within", "'10 parsecs'", "4 seconds"),
        (
            with_('"k INT, y DOUBLE"', '"k INT, y NUMBER"'),
            "sources.b.schema",
            "'y NUMBER'",
            "a name and one of",
        ),
        (with_('"mine.models:score"', '"rm -rf"'), "boxes.u.function", "'rm -rf'", "package.module:name"),
        (with_('"x = power(x, 0.5)"', '"power(x, 0.5)"'), "boxes.m.inverse.x", "power", "such as"),
        (with_("shares: [1, 3]", "shares: [1]"), "sources.b.values.y", "[0.0, 1.0, 5.0], [1.0]", None),
        (with_("headroom: 0.8", "headroom: 0"), "headroom", "0.0", "above 0, at most 1"),
        ("network: n\nsources: []\noutputs: {o: {input: s}}", "sources", "[]", "name: {…}"),
        ("[]", "(top level)", "[]", "keys network, sources"),
    ],
)
def test_a_bad_spec_names_file_path_what_was_got_and_what_is_allowed(text, path, got, allowed, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InvalidNetwork) as caught:
        spec.load(file)
    assert str(caught.value).startswith(f"{file} has ")
    problem = next(problem for problem in caught.value.problems if problem.path == path)
    assert got is None or got in str(problem.got)
    assert allowed is None or allowed in str(problem.allowed)
    assert f"\n  {path}: {problem.problem}" in str(caught.value)


def test_all_problems_of_a_file_are_told_at_once_and_only_once():
    text = with_('"x > 10"', '"x >"').replace("[50, 0.7]", "[50, 0.2]").replace("cost: 5.0e-6", "cost: -1")
    with pytest.raises(InvalidNetwork) as caught:
        spec.parse(text)
    assert [problem.path for problem in caught.value.problems] == [
        "boxes.f.where",
        "outputs.p.qos.loss",
        "boxes.j.cost",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &x [1]\nb: *x", "aliases are not allowed"),
        ("a: &a [1]\nb: &b [*a, *a]\nc: [*b, *b]", "aliases are not allowed"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("a: 1\na: 2", "'a' is given twice"),
        ("? [1, 2]\n: 3", "a key must be text"),
        ("[" * 3000, "nested too deeply"),
        ("a: [1", "line"),
        ("a: \x00", "not allowed"),
    ],
)
def test_hostile_yaml_is_refused(text, says):
    with pytest.raises(InvalidArgument, match=says):
        spec.parse(text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InvalidArgument, match="no such file"):
        spec.load(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        spec.load(tmp_path / "binary.yaml")
    (tmp_path / "huge.yaml").write_text("#" * 4_000_001)
    with pytest.raises(InvalidArgument, match="larger than a spec may be"):
        spec.load(tmp_path / "huge.yaml")


def test_words_that_yaml_1_1_would_change_are_words():
    network = spec.parse(
        'network: n\nsources: {on: {schema: "no INT, yes INT"}, off: {schema: "no INT, y INT"}}\n'
        "boxes: {j: {op: join, inputs: [on, off], on: [no], within: 1 s}}\noutputs: {o: {input: j}}"
    )
    assert [column.name for column in network.schemas["o"]] == ["no", "yes", "y"]


WINDOWS = """
network: windows
sources:
  s: {schema: "k INT, x DOUBLE, at TIMESTAMP", arrived: at}
boxes:
  w: {op: count_window, input: s, rows: 100, by: [k], compute: {n: "count(distinct x)"}}
  t: {op: top_k, input: s, k: 5, field: x, window: "10 seconds", by: k}
outputs: {o: {input: w}, p: {input: t}}
"""


def test_count_windows_top_k_and_distinct_counts_in_a_spec():
    network = spec.parse(WINDOWS)
    assert network == (
        Builder("windows").source("s", "k INT, x DOUBLE, at TIMESTAMP", arrived="at")
        .count_window("w", "s", 100, {"n": "count_distinct(x)"}, by="k").top_k("t", "s", 5, "x", 10, by="k")
        .output("o", "w").output("p", "t").build()
    )  # fmt: skip
    assert network.nodes["w"].selectivity == 0.01
    assert spec.parse(spec.dump(network)) == network
    assert [column.name for column in network.schemas["t"]] == ["window_start", "window_end", "k", "x", "at"]
    assert network.times["p"] == network.times["o"] == "window_end"
    assert "5 by x over 10 s by k" in network.draw()
    assert "over 100 rows by k" in network.draw()


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("rows: 100", "rows: 0", "boxes.w.rows"),
        ("rows: 100", "rows: 1.5", "boxes.w.rows"),
        ("k: 5", "k: -1", "boxes.t.k"),
        ("field: x", "field: at", "boxes.t.field"),
        ("field: x", "field: zz", "boxes.t.field"),
        ("by: k", "by: zz", "boxes.t.by"),
        ("by: [k]", "by: [zz]", "boxes.w.by"),
        ("count(distinct x)", "x + 1", "boxes.w.compute.n"),
        ('window: "10 seconds"', "window: soon", "boxes.t.window"),
    ],
)
def test_problems_of_count_windows_and_top_k_are_named(old, new, path):
    assert old in WINDOWS
    with pytest.raises(InvalidNetwork) as caught:
        spec.parse(WINDOWS.replace(old, new))
    assert path in [problem.path for problem in caught.value.problems]
