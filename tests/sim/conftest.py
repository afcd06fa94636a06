"""Small networks that the tests of the simulator share."""

from __future__ import annotations

import pytest

from streamshed.network.builder import Builder
from streamshed.network.graph import Network


@pytest.fixture
def everything() -> Network:
    """Every kind of box that needs no function of the user's, with a split and a join of its branches."""
    return (
        Builder("everything", capacity=1.0)
        .source("s", "x DOUBLE, k INT", rate=400)
        .source("r", "x DOUBLE, k INT", rate=400)
        .filter("f", "s", "x > 50", cost=5e-4, selectivity=0.5)
        .filter("g", "f", "x > 75", cost=5e-4, selectivity=0.5)
        .map("m", "f", {"y": "x * 2", "k": "k"}, cost=5e-4)
        .filter("h", "r", "x < 50", cost=5e-4, selectivity=0.5)
        .union("u", ["g", "h"], cost=5e-4)
        .join("j", ["m", "u"], ["k"], 0.2, cost=1e-5)
        .aggregate("a", "u", "1 second", {"c": "count(x)", "top": "max(x)"}, by=["k"], cost=1e-5)
        .output("mapped", "m", value=("y", [[100, 150, 0.2], [150, 200, 1.0]]))
        .output("merged", "u")
        .output("paired", "j")
        .output("counted", "a")
        .build()
    )
