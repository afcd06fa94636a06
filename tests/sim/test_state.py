"""Count windows, top-k and distinct counts in the simulator, against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamshed.network import Builder
from streamshed.network.expressions.expression import parse
from streamshed.network.graph import Aggregate, CountWindow, TopK
from streamshed.sim.network.engine import Simulation
from streamshed.sim.network.rows import Rows
from streamshed.sim.network.state import state_of
from streamshed.sim.scenario import Scenario

batches = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 10), st.integers(0, 4)), max_size=12),
    min_size=1,
    max_size=6,
)


def as_rows(batch: list[tuple[int, float, int]], first: int) -> Rows:
    count = len(batch)
    return Rows(
        {
            "k": np.array([row[0] for row in batch]),
            "x": np.array([row[1] for row in batch], np.float64),
            "y": np.array([row[2] for row in batch]),
        },
        np.arange(first, first + count) * 0.1,
        np.arange(first, first + count, dtype=np.uint64),
    )


@given(batches, st.integers(1, 5))
def test_a_count_window_is_every_so_many_rows_of_a_group_however_they_are_cut_into_batches(given_batches, rows):
    box = CountWindow(name="w", inputs=("s",), rows=rows, by=("k",), compute={"x": parse("sum(x)")})
    state, found, serial = state_of(box), [], 0
    for batch in given_batches:
        made = state.take([as_rows(batch, serial)], 0.0, 0.0)
        serial += len(batch)
        if len(made):
            found += zip(made.columns["k"].tolist(), np.round(made.columns["x"], 9).tolist(), strict=True)
    everything = [row for batch in given_batches for row in batch]
    expected = []
    for key in range(3):
        mine = [x for k, x, _ in everything if k == key]
        whole = [mine[i : i + rows] for i in range(0, len(mine) - rows + 1, rows)]
        expected += [(key, round(sum(part), 9)) for part in whole]
    assert sorted(found) == sorted(expected)
    assert len(state) == sum(len([1 for k, _, _ in everything if k == key]) % rows for key in range(3))


@given(batches, st.integers(1, 4))
def test_top_k_are_the_largest_of_each_window_and_group(given_batches, k):
    state, serial = state_of(TopK(name="t", inputs=("s",), k=k, field="x", window=1.0, by=("k",))), 0
    for batch in given_batches:
        assert len(state.take([as_rows(batch, serial)], 0.0, 0.0)) == 0  # no window is over yet
        serial += len(batch)
    made = state.take([as_rows([], serial)], np.inf, 1e9)
    found = (
        sorted(zip(*(made.columns[name].tolist() for name in ("window_start", "k", "x")), strict=True))
        if len(made)
        else []
    )
    groups: dict[tuple[float, int], list[float]] = {}
    for number, (key, x, _) in enumerate(row for batch in given_batches for row in batch):
        groups.setdefault((float(np.floor(number * 0.1 / 1.0)), key), []).append(x)
    expected = [(*group, x) for group, xs in groups.items() for x in sorted(xs, reverse=True)[:k]]
    assert found == sorted(expected)


@given(batches)
def test_distinct_counts(given_batches):
    box = Aggregate(name="d", inputs=("s",), window=1e6, compute={"n": parse("count(DISTINCT y)")})
    state = state_of(box)
    everything = [row for batch in given_batches for row in batch]
    made = state.take([as_rows(everything, 0)], np.inf, 1e9)
    assert (made.columns["n"].tolist() if len(made) else []) == (
        [len({y for _, _, y in everything})] if everything else []
    )


def test_all_of_them_in_a_network() -> None:
    network = (
        Builder("new", capacity=1.0).source("s", "k INT, x DOUBLE", rate=400, values={"k": (0, 3), "x": (0, 1)})
        .count_window("every100", "s", 100, {"n": "count(*)", "u": "count(distinct k)"})
        .top_k("best", "s", 3, "x", 1.0)
        .output("windows", "every100").output("top", "best").build()
    )  # fmt: skip
    simulation = Simulation(Scenario.of(network, overload=0.5, seconds=10.0, seed=4))
    while not simulation.over:
        simulation.advance()
    simulation.drain()
    arrived = sum(simulation.arrived().values())
    windows, top = (int(count.sum()) for count in simulation.delivered)
    assert windows == arrived // 100
    assert 27 <= top <= 33
    assert simulation.balance().missing == 0
    assert simulation.unbalanced() == []
