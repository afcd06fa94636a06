"""What simulated rows carry."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from streamshed.network import Builder
from streamshed.sim.network.values import Values

SOURCE = (
    Builder("n").source("s", "user STRING, x DOUBLE, ok BOOLEAN", values={"x": (0, 100)}).output("o", "s").build()
).sources[0]


def values(texts: dict[str, dict[str, float | None]] | None = None) -> Values:
    return Values(SOURCE, np.random.SeedSequence(5), texts)


def test_columns_that_nothing_is_compared_with_are_drawn_as_ever() -> None:
    drawn = values().draw(np.arange(1000.0))
    text = "".join(map(str, drawn["user"])).encode() + drawn["x"].tobytes()
    assert hashlib.sha256(text).hexdigest()[:16] == "2af90849a876371f"


def test_texts_come_in_their_shares_and_other_words_evenly() -> None:
    drawn = values({"user": {"Oslo": 0.2, "it's a long name": None}}).draw(np.arange(20_000.0))["user"]
    found, counts = np.unique(drawn, return_counts=True)
    shares = dict(zip(found.tolist(), (counts / len(drawn)).tolist(), strict=True))
    assert shares.pop("Oslo") == pytest.approx(0.2, rel=0.1)
    assert shares.pop("it's a long name") == pytest.approx(0.4, rel=0.1)
    assert len(shares) == 100
    assert max(shares.values()) < 2 * 0.4 / 100


def test_texts_that_are_all_rows_leave_no_other_words() -> None:
    drawn = values({"user": {"a": 0.7, "b": 0.7, "c": 0.7}}).draw(np.arange(1000.0))["user"]
    assert set(drawn.tolist()) == {"a", "b", "c"}


def test_how_rows_are_cut_into_batches_makes_no_difference() -> None:
    texts: dict[str, dict[str, float | None]] = {"user": {"Oslo": 0.2}}
    whole, parts = values(texts).draw(np.arange(100.0)), values(texts)
    cut = [parts.draw(np.arange(100.0)[part]) for part in (slice(0, 37), slice(37, 100))]
    for name in ("user", "x", "ok"):
        assert np.array_equal(whole[name], np.concatenate([part[name] for part in cut]))
