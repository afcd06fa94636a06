"""LAS IV: what a cell of W over that of F is expected to hold (Theorem 4.2), and the example after it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import CarterWegman


def theorem(costs: Sequence[float], t: int, columns: int) -> float:
    """E[W/F] of a row's cell for item t, all items being equally frequent."""
    n, k, total, own = len(costs), columns, sum(costs), costs[t]
    return (total - own) / (n - 1) - k * (total - n * own) / (n * (n - 1)) * (1 - (1 - 1 / k) ** n)


def by_enumeration(costs: Sequence[float], t: int, columns: int) -> float:
    """The same over every way in which independent hashes can place the others in t's cell or elsewhere."""
    others = [cost for i, cost in enumerate(costs) if i != t]
    expected = 0.0
    for inside in itertools.product((False, True), repeat=len(others)):
        together = [costs[t], *(cost for cost, here in zip(others, inside, strict=True) if here)]
        chance = np.prod([1 / columns if here else 1 - 1 / columns for here in inside])
        expected += float(chance) * sum(together) / len(together)
    return expected


@settings(max_examples=40)
@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=8), st.integers(1, 60), st.data())
def test_theorem_4_2_by_enumeration(costs: list[float], columns: int, data: st.DataObject) -> None:
    t = data.draw(st.integers(0, len(costs) - 1))
    assert theorem(costs, t, columns) == pytest.approx(by_enumeration(costs, t, columns))


COSTS = [cost for cost in range(1, 65) for _ in range(64)]
"""k = 55, n = 4,096: the costs 1 … 64, 64 items each."""


def test_the_numerical_example() -> None:
    """The paper says [32.08, 32.92], and with r = 10, Markov: Pr{min W/F ≥ 48} ≤ (11/16)¹⁰ ≤ 0.024."""
    expected = [theorem(COSTS, t, 55) for t in range(0, len(COSTS), 64)]
    assert (round(min(expected), 2), round(max(expected), 2)) == (32.08, 32.92)
    a, r = 3 / 4, 10
    assert max(expected) <= 33
    assert (33 / (64 * a)) ** r <= 0.024


@pytest.mark.parametrize("t", [0, 4095])
def test_the_sketch_does_as_the_theorem_says(t: int) -> None:
    """4,000 independent rows; Carter and Wegman's functions are pairwise independent, not fully: 1 % of room."""
    keys, costs = np.arange(4096), np.array(COSTS)
    sketch = CostSketch(CarterWegman.draw(4_000, 55, seed=2))
    sketch.add_many(keys, costs)
    rows = np.arange(4_000)
    cells = sketch.hashes.cells(np.array([t]))[0]
    found = sketch.durations[rows, cells] / sketch.frequencies[rows, cells]
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - theorem(COSTS, t, 55)) < 4 * error + 0.01 * 32
    assert found.min() >= 1
    assert found.max() <= 64
    # And the example's bound, on tens of rows: none comes near it.
    worst = found.reshape(-1, 10).min(axis=1)
    assert np.mean(worst >= 48) <= 0.024
