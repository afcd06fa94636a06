"""Which texts a network asks its sources for."""

from __future__ import annotations

import pytest

from streamshed.network import Builder
from streamshed.network.texts import share_rest, texts


def test_texts_are_followed_through_maps_unions_joins_and_groups() -> None:
    network = (
        Builder("n")
        .source("a", "city STRING, k INT, at TIMESTAMP", arrived="at")
        .source("b", "city STRING, k INT, at TIMESTAMP", arrived="at")
        .source("c", "k INT, kind STRING, at2 TIMESTAMP", arrived="at2")
        .union("both", ["a", "b"])
        .map("renamed", "both", {"place": "city", "k": "k", "at": "at"})
        .filter("far", "renamed", "place = 'Oslo'", selectivity=0.3)
        .join("pairs", ["far", "c"], "k", 10)
        .filter("red", "pairs", "'red' < kind AND k > 3")
        .aggregate("groups", "red", 60, {"n": "count(*)"}, by="place")
        .filter("not_rome", "groups", "NOT place = 'Rome'", selectivity=0.9)
        .output("o", "not_rome")
        .build()
    )
    asked = {"city": {"Oslo": 0.3, "Rome": None}}
    assert texts(network) == {"a": asked, "b": asked, "c": {"kind": {"red": None}}}


def test_a_column_that_is_computed_anew_has_no_texts_of_the_old_one() -> None:
    network = (
        Builder("n")
        .source("s", "city STRING, x DOUBLE")
        .map("m", "s", {"city": "x * 2"})
        .filter("f", "m", "city > 3")
        .output("o", "f")
        .build()
    )
    assert texts(network) == {"s": {}}


def test_shares_come_from_filters_that_say_nothing_else() -> None:
    network = (
        Builder("n")
        .source("s", "city STRING, level STRING", protect="level = 'high'", protected=0.1)
        .filter("two", "s", "city IN ('Oslo', 'Rome')", selectivity=0.4)
        .filter("again", "two", "city = 'Oslo'", selectivity=0.5)
        .filter("silent", "s", "city = 'Bern'")
        .filter("mixed", "s", "city = 'Paris' OR level = 'low'", selectivity=0.5)
        .output("o", "again")
        .output("p", "silent")
        .output("q", "mixed")
        .build()
    )
    assert texts(network) == {
        "s": {
            "city": {"Oslo": 0.2, "Rome": 0.2, "Bern": None, "Paris": None},
            "level": {"high": 0.1, "low": None},
        }
    }


def test_what_nobody_says_is_shared_with_all_other_words() -> None:
    assert share_rest({"a": None}) == {"a": 0.5}
    assert share_rest({"a": 0.4, "b": None}) == pytest.approx({"a": 0.4, "b": 0.3})
    assert share_rest({"a": 0.9, "b": 0.9, "c": None}) == pytest.approx({"a": 0.5, "b": 0.5, "c": 0.0})
    assert share_rest({"a": 0.0}) == {"a": 0.0}
