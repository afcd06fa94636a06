"""Keys of sources: where they are known, what is said of bad ones, and what drops by key do."""

import pytest

from streamshed.network import Builder, Catalog
from streamshed.network.graph import InvalidNetwork
from streamshed.network.spec import yaml as spec
from streamshed.network.value_flow.certainty import certainties
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.network.value_flow.shared_keys import key_places, key_shares, keys_of, sharing_joins
from streamshed.records import Drop
from tests.oracles.network_truth import truth


def both(key=("k",), **more):
    return (
        Builder("both", capacity=1.0)
        .source("a", "k INT, x DOUBLE", rate=200, values={"x": (0, 100)}, key=key, **more)
        .source("b", "id INT", rate=100, key=["id"] if key else ())
        .filter("warm", "a", "x > 40", cost=1e-3, selectivity=0.6)
        .map("named", "b", {"k": "id"}, cost=1e-3)
        .join("pair", ["warm", "named"], ["k"], 1.0, cost=1e-3, selectivity=0.5)
        .output("o", "pair", loss=[(100, 1.0), (0, 0.0)])
        .output("p", "warm", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )


def delivered(network, *drops):
    model = FlowModel(Catalog.of(network))
    found = model.delivery(model.state(model.keeps(drops)))
    assert found == pytest.approx(truth(Catalog.of(network), drops).percent, abs=0.1)
    return found


def test_a_key_is_followed_through_filters_and_renaming():
    network = both()
    assert keys_of(network) == {"a": ("k",), "b": ("id",), "warm": ("k",), "named": ("k",), "pair": ("k",)}
    assert sharing_joins(network) == {"pair"}
    assert key_places(network) == {"a->warm": ("k",), "b->named": ("id",), "warm->pair": ("k",), "warm->p": ("k",)}


def test_a_key_is_not_followed_through_aggregates_computed_columns_and_other_joins():
    network = (
        Builder("lost")
        .source("a", "k INT, x INT", key="k")
        .source("b", "k INT", key="k")
        .source("c", "k LONG", key="k")
        .source("d", "x INT", key="x")
        .map("next", "a", {"k": "k + 1"})
        .join("typed", ["b", "c"], ["k"], 1.0)
        .join("other", ["a", "d"], ["x"], 1.0)
        .aggregate("count", "b", 1.0, {"n": "count(*)"}, by=["k"])
        .output("o", "next")
        .output("p", "typed")
        .output("q", "other")
        .output("r", "count")
        .build()
    )
    assert set(keys_of(network)) == {"a", "b", "c", "d"}
    assert not sharing_joins(network)
    assert not key_places(network)


def test_parts_without_such_a_join_are_left_alone():
    network = (
        Builder("parts", capacity=1.0)
        .source("a", "k INT", rate=100, key="k")
        .source("b", "k INT, y INT", rate=100, key="k")
        .source("c", "k INT", rate=100, key="k")
        .source("d", "k INT", rate=300, key="k")
        .join("pair", ["a", "b"], ["k"], 1.0, cost=1e-3, selectivity=1.0)
        .union("u", ["c", "d"], cost=1e-3)
        .output("o", "pair")
        .output("p", "u")
        .output("q", "u")
        .build()
    )
    assert set(key_places(network)) == {"a->pair", "b->pair"}
    drops = (Drop("a->pair", 0.5), Drop("c->u", 0.2), Drop("d->u", 0.8), Drop("u->p", 0.5))
    assert delivered(network, *drops)["p"] == pytest.approx(50 * (0.25 * 0.2 + 0.75 * 0.8))


def test_a_join_loses_the_share_and_not_its_square():
    drops = (Drop("a->warm", 0.5), Drop("b->named", 0.5))
    assert delivered(both(), *drops)["o"] == pytest.approx(50.0)
    assert delivered(both(key=()), *drops)["o"] == pytest.approx(25.0)
    assert delivered(both(), Drop("a->warm", 0.8), Drop("b->named", 0.3))["o"] == pytest.approx(30.0)


def test_drops_in_a_row_take_keys_of_what_is_left():
    drops = (Drop("a->warm", 0.5), Drop("warm->pair", 0.5), Drop("b->named", 0.4))
    assert key_shares(both(), drops)["warm->pair"] == 0.5
    assert delivered(both(), *drops) == pytest.approx({"o": 25.0, "p": 50.0})


def test_rows_that_are_protected_or_spared_by_value_keep_all_of_their_keys():
    network = both(protect="x > 90")
    drops = (Drop("a->warm", 0.5, "NOT x > 90"), Drop("b->named", 0.8))
    # Of the rows that are warm, a sixth is protected.
    assert delivered(network, *drops)["o"] == pytest.approx(100 * (0.8 + 5 * 0.5) / 6)
    drops = (Drop("a->warm", 0.0, "x < 70"), Drop("b->named", 0.8))
    assert delivered(both(), *drops)["o"] == pytest.approx(50 * 0.8)


def test_streams_of_which_different_shares_are_left_meet():
    network = (
        Builder("meet", capacity=1.0)
        .source("a", "k INT", rate=100, key="k")
        .source("b", "k INT", rate=300, key="k")
        .source("c", "k INT, y INT", rate=100, key="k")
        .union("u", ["a", "b"], cost=1e-3)
        .join("pair", ["u", "c"], ["k"], 1.0, cost=1e-3, selectivity=1.0)
        .output("o", "pair")
        .output("p", "u")
        .build()
    )
    drops = (Drop("a->u", 0.2), Drop("b->u", 0.8), Drop("u->pair", 0.5), Drop("c->pair", 0.9))
    # b has 0.8 of its keys left and then the half of that, which takes nothing from a.
    assert delivered(network, *drops)["o"] == pytest.approx(100 * (0.25 * 0.2 + 0.75 * 0.4))


def test_the_spec_has_it_and_says_how_far_it_can_be_believed():
    text = spec.dump(both())
    assert spec.parse(text) == both()
    assert spec.parse(text.replace("key:\n    - k\n", "key: k\n")) == both()
    known = certainties(Catalog.of(both()))
    assert (known["o"].kind, known["p"].kind) == ("estimated", "exact")
    assert "the same keys" in known["o"].why


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("[kk]", "sources.a.key: no such column"),
        ("[k, k]", "sources.a.key: a column is named twice"),
        ("3", "sources.a.key: not a list of names"),
        ("{k: 1}", "sources.a.key: not a list of names"),
        ("k, parse: json", "sources.a.key: rows that are parsed late are dropped before their key is known"),
    ],
)
def test_a_bad_key_is_named(key, says):
    text = f"""
network: bad
sources:
  a: {{schema: "k INT", key: {key}}}
outputs:
  o: {{input: a}}
"""
    with pytest.raises(InvalidNetwork) as caught:
        spec.parse(text)
    assert says in str(caught.value)
