"""One operator: the compiled simulator against the plain model, to the last bit, and against theory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import InvalidArgument
from streamshed.las.check import Check, absolute, average
from streamshed.las.settings import LasSettings
from streamshed.sim.operator.kernel import run_known, run_las, run_random
from streamshed.sim.operator.streams import Association, StreamShape, TimedRows, draw_keys, evenly, stream, warm_up
from tests.oracles import check as oracle
from tests.oracles.baselines import BaseLine, Believing
from tests.oracles.load_aware import LoadAware, Operator
from tests.oracles.operator import LearningOperator, run

Pair = tuple[Check, Callable[[], oracle.Check]]
"""A target for the kernel, and a fresh one for the plain model."""


def average_of(threshold: float) -> Pair:
    return average(threshold), lambda: oracle.Average(threshold)


def absolute_of(threshold: float) -> Pair:
    return absolute(threshold), lambda: oracle.Absolute(threshold)


def sliding_of(threshold: float, span: int = 4) -> Pair:
    return average(threshold, over=span), lambda: oracle.SlidingAverage(threshold, span)


CHECKS: dict[str, Pair] = {
    "average": average_of(6.4e6),
    "absolute": absolute_of(9e6),
    "sliding": sliding_of(6.4e6, 50),
}


def drawn(seed: int, **shape: float) -> tuple[StreamShape, Association, np.random.Generator]:
    form = StreamShape(**{"rows": 4_000, "keys": 300, "levels": 20} | shape)  # type: ignore[arg-type]
    return form, Association.draw(form, seed), np.random.default_rng(seed)


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("start", ["warm", "cold"])
@pytest.mark.parametrize("resync", [None, 7])
@pytest.mark.parametrize("floor", [0.0, 0.6])
def test_the_kernel_is_the_state_machines(name: str, start: str, resync: int | None, floor: float) -> None:
    check, plain_check = CHECKS[name]
    for seed in range(3):
        shape, association, rng = drawn(seed, under_provisioning=(0.25, 0.6, -0.1)[seed])
        rows = stream(shape, association, rng)
        settings_ = LasSettings(epsilon=0.1, window=128, tolerance=0.1, resync=resync, floor=floor)
        hashes = settings_.hashes(seed)
        first = warm_up(shape, association, rng, 3_000) if start == "warm" else None
        compiled = run_las(rows, check, hashes, settings_, first)

        shedder = LoadAware(plain_check(), settings_)
        plain = LearningOperator(shedder, Operator(hashes, settings_.window, settings_.tolerance))
        origin = 0.0
        if first is not None:
            origin = plain.learn(first)
            assert compiled.warm is plain.synchronised is True
            shedder.gate = oracle.Gate(plain_check(), floor)  # the warm-up is not part of what is to be held
        waits = plain.run(rows, origin)
        assert shedder.sketch is not None, "this stream teaches nothing: the test would compare nothing"
        assert np.array_equal(compiled.waits, waits)
        assert (waits >= 0).any()
        assert seed == 2 or (waits < 0).any()
        assert (waits >= 0).mean() >= floor


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 1000), st.integers(0, 800)), min_size=1, max_size=120),
    st.sampled_from([average_of, absolute_of, sliding_of]),
    st.integers(0, 99),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_the_kernel_is_the_state_machines_on_any_stream(
    rows: list[tuple[int, int, int]], target: Callable[[float], Pair], seed: int, floor: float
) -> None:
    """Costs that change for a key, bursts, rests: whatever hypothesis thinks of."""
    keys, costs, gaps = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    given_rows = TimedRows(keys, costs, np.cumsum(gaps).astype(np.float64))
    check, plain_check = target(300.0)
    las = LasSettings(epsilon=0.5, window=3, tolerance=0.5, floor=floor)
    hashes = las.hashes(seed)
    plain = LearningOperator(LoadAware(plain_check(), las), Operator(hashes, 3, 0.5))
    assert np.array_equal(run_las(given_rows, check, hashes, las).waits, plain.run(given_rows))
    table = {key: 50.0 * key + 1 for key in range(10)}
    believed = np.array([table[key] for key in keys.tolist()])
    known = Believing(plain_check(), table.__getitem__, floor)
    assert np.array_equal(run_known(given_rows, check, believed, floor), run(given_rows, known))
    straw = Believing(plain_check(), lambda key: 400.0, floor)
    same = np.full(len(keys), 400.0)
    assert np.array_equal(run_known(given_rows, check, same, floor), run(given_rows, straw))
    coins = np.random.default_rng(seed).random(len(keys))
    flips = iter(coins.tolist())
    base = run(given_rows, BaseLine(0.3, lambda: next(flips)))
    assert np.array_equal(run_random(given_rows, coins < 0.3), base)


def test_waits_are_those_of_a_single_queue() -> None:
    """Lindley's recursion, and Little's law for the rows that wait."""
    shape, association, rng = drawn(1, under_provisioning=-0.02)
    rows = stream(shape, association, rng)
    waits = run_random(rows, np.zeros(len(rows), bool))
    expected = 0.0
    for i in range(1, len(rows)):
        expected = max(0.0, expected + rows.costs[i - 1] - (rows.arrivals[i] - rows.arrivals[i - 1]))
        assert waits[i] == pytest.approx(expected, abs=1.0)
    starts = rows.arrivals + waits
    moments = np.sort(np.concatenate([rows.arrivals, starts]))
    waiting = np.searchsorted(rows.arrivals, moments, "right") - np.searchsorted(np.sort(starts), moments, "right")
    in_line = float((waiting[:-1] * np.diff(moments)).sum())
    assert in_line == pytest.approx(float(waits.sum()), rel=1e-9)


def test_full_knowledge_holds_the_average_at_every_row() -> None:
    """Theorem 4.1: its mean wait never exceeds τ, at no point of the stream."""
    for seed in range(3):
        shape, association, rng = drawn(seed, under_provisioning=0.5)
        rows = stream(shape, association, rng)
        waits = run_known(rows, average(6.4e6), rows.costs.astype(np.float64))
        kept = waits[waits >= 0]
        means = np.cumsum(kept) / np.arange(1, len(kept) + 1)
        assert (means <= 6.4e6 * (1 + 1e-12)).all()
        assert means[-1] == pytest.approx(6.4e6, rel=0.01)


def test_completion_is_the_wait_and_the_work() -> None:
    shape, association, rng = drawn(5, under_provisioning=0.5)
    rows = stream(shape, association, rng)
    waits = run_known(rows, average(6.4e6), rows.costs.astype(np.float64))
    kept = waits >= 0
    done = rows.completions(waits)
    assert np.array_equal(done[kept], (waits + rows.costs)[kept])
    assert np.array_equal(done < 0, ~kept)
    # One server: rows are done one after the other.
    assert (np.diff((rows.arrivals + done)[kept]) >= 0).all()


def test_association_gives_each_cost_to_as_many_keys() -> None:
    shape, association, _ = drawn(4)
    assert set(np.unique(association.costs, return_counts=True)[1].tolist()) == {15}
    swapped = association.swapped()
    assert swapped.costs[0] == association.costs.max()
    assert sorted(swapped.costs.tolist()) == sorted(association.costs.tolist())
    assert np.count_nonzero(swapped.costs != association.costs) in (0, 2)
    assert len(shape.values()) == 20


def test_keys_follow_zipf() -> None:
    shape, _, rng = drawn(4, skew=1.0)
    found = np.bincount(draw_keys(shape, rng, 200_000), minlength=300) / 200_000
    assert np.abs(found - shape.probabilities()).max() < 0.005
    even = StreamShape(skew=0.0).probabilities()
    assert even.min() == pytest.approx(even.max())


def test_under_provisioning_sets_the_gap() -> None:
    shape, association, rng = drawn(4, under_provisioning=0.25)
    rows = stream(shape, association, rng)
    assert np.diff(rows.arrivals) == pytest.approx(0.75 * rows.costs.mean())


@pytest.mark.parametrize(
    "shape",
    [
        {"rows": 0},
        {"levels": 0},
        {"levels": 10, "keys": 5},
        {"least_ms": 0.0},
        {"least_ms": 7.0},
        {"under_provisioning": 1.0},
        {"skew": -1.0},
    ],
)
def test_impossible_streams_are_refused(shape: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        StreamShape(**shape)  # type: ignore[arg-type]


def test_impossible_rows_and_settings_are_refused() -> None:
    one = np.ones(1, np.int64)
    with pytest.raises(InvalidArgument, match="for each row"):
        TimedRows(one, one, np.zeros(2))
    with pytest.raises(InvalidArgument, match="cost something"):
        evenly(one, 0 * one, 1.0)
    with pytest.raises(InvalidArgument, match="one after the other"):
        TimedRows(np.ones(2, np.int64), np.ones(2, np.int64), np.array([1.0, 0.0]))
