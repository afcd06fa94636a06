"""Count-Min and the cost sketch: never too little, seldom too much, merged exactly, always the same size."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from datasketches import count_min_sketch
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import InvalidArgument
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.count_min import CountMin, Size
from streamshed.sketch.hashing import PRIME, CarterWegman

KEYS = st.lists(st.integers(0, 300), max_size=200)
UPDATES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2**40)), max_size=100)


def zipf(count: int, distinct: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, distinct + 1)
    return rng.choice(distinct, count, p=weights / weights.sum()).astype(np.int64)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rows", "columns"),
    [(0.05, 0.1, 4, 55), (0.70, 0.25, 2, 4), (0.001, 0.01, 7, 2719), (0.5, 0.9, 1, 6)],
)
def test_sizes_of_the_paper(epsilon: float, delta: float, rows: int, columns: int) -> None:
    assert Size.of(epsilon, delta) == Size(rows, columns)


@pytest.mark.parametrize("value", [0, -0.1, 1.5, float("nan"), True, None])
@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_precision_and_certainty_are_between_0_and_1(name: str, value: float) -> None:
    arguments = {"epsilon": 0.05, "delta": 0.1} | {name: value}
    with pytest.raises(InvalidArgument, match=f"{name} must be above 0 and (below|at most) 1") as error:
        CountMin.sized(**arguments, seed=1)
    assert "hint" in str(error.value)


@given(UPDATES, st.integers(0, 1000))
def test_it_never_under_counts(updates: list[tuple[int, int]], seed: int) -> None:
    sketch = CountMin.sized(0.2, 0.2, seed)
    truth: Counter[int] = Counter()
    for key, weight in updates:
        sketch.add(key, weight)
        truth[key] += weight
    assert sketch.total == truth.total()
    assert all(sketch.estimate(key) >= truth[key] for key in range(51))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 0.1), (0.02, 0.3), (0.2, 0.05)])
def test_within_epsilon_m_with_probability_1_minus_delta(epsilon: float, delta: float) -> None:
    """Over the draw of the hashes: of 2,000 sketches, the share that errs on a key is at most δ."""
    keys = zipf(4_000, 400, seed=5)
    truth = np.bincount(keys, minlength=400)
    asked = np.array([0, 1, 17, 399])
    wrong = np.zeros(len(asked))
    sketches = 2_000
    for seed in range(sketches):
        sketch = CountMin.sized(epsilon, delta, seed)
        sketch.add_many(keys)
        wrong += sketch.estimate_many(asked) - truth[asked] > epsilon * (len(keys) - truth[asked])
    assert (wrong / sketches <= delta).all()


@given(UPDATES, st.integers(0, 1000))
def test_arrays_do_what_single_updates_do(updates: list[tuple[int, int]], seed: int) -> None:
    keys = np.array([key for key, _ in updates], np.int64)
    weights = np.array([weight for _, weight in updates], np.int64)
    hashes = CarterWegman.draw(3, 7, seed)
    one, many = CountMin(hashes), CountMin(hashes)
    cost, costs = CostSketch(hashes), CostSketch(hashes)
    for key, weight in updates:
        one.add(key, weight)
        cost.add(key, weight)
    many.add_many(keys, weights)
    costs.add_many(keys, weights)
    asked = np.arange(51)
    assert np.array_equal(one.counts, many.counts)
    assert many.estimate_many(asked).tolist() == [one.estimate(key) for key in range(51)]
    assert np.array_equal(cost.frequencies, costs.frequencies)
    assert np.array_equal(cost.durations, costs.durations)
    assert costs.estimate_many(asked).tolist() == [cost.estimate(key) for key in range(51)]


@given(UPDATES, st.lists(st.integers(0, 3), min_size=100, max_size=100), st.permutations(range(4)))
def test_merging_partitions_is_one_pass_exactly(
    updates: list[tuple[int, int]], places: list[int], order: list[int]
) -> None:
    hashes = CarterWegman.draw(4, 9, 1)
    whole, parts = CostSketch(hashes), [CostSketch(hashes) for _ in range(4)]
    count, counts = CountMin(hashes), [CountMin(hashes) for _ in range(4)]
    for (key, weight), place in zip(updates, places, strict=False):
        whole.add(key, weight)
        parts[place].add(key, weight)
        count.add(key, weight)
        counts[place].add(key, weight)
    merged, total = CostSketch(hashes), CountMin(hashes)
    for place in order:
        merged.merge(parts[place])
        total.merge(counts[place])
    assert merged.to_bytes() == whole.to_bytes()
    assert total.to_bytes() == count.to_bytes()


@given(UPDATES, st.integers(1, 5), st.integers(1, 40))
def test_bytes_and_back(updates: list[tuple[int, int]], rows: int, columns: int) -> None:
    sketch = CostSketch(CarterWegman.draw(rows, columns, 2))
    for key, weight in updates:
        sketch.add(key, weight)
    back = CostSketch.from_bytes(sketch.to_bytes())
    assert back.hashes.same_as(sketch.hashes)
    assert np.array_equal(back.frequencies, sketch.frequencies)
    assert np.array_equal(back.durations, sketch.durations)


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_memory_does_not_depend_on_the_keys(seed: int) -> None:
    sketch = CostSketch.sized(0.05, 0.1, seed=1)
    size = len(sketch.to_bytes())
    keys = np.random.default_rng(seed).integers(0, PRIME, 20_000)
    sketch.add_many(keys, np.ones(len(keys), np.int64))
    assert len(sketch.to_bytes()) == size
    # Two matrices and two pairs of factors, and nothing that could hold a key.
    assert set(CostSketch.__slots__) == {"hashes", "frequencies", "durations"}
    assert not hasattr(sketch, "__dict__")
    assert sketch.frequencies.nbytes + sketch.durations.nbytes == 2 * 8 * 4 * 55


def test_the_cost_of_a_key_is_read_where_it_collides_least() -> None:
    hashes = CarterWegman(np.array([1, 1]), np.array([0, 0]), 3)
    sketch = CostSketch(hashes, np.array([[9, 1, 1], [3, 1, 1]]), np.array([[90, 7, 7], [60, 8, 8]]))
    assert sketch.estimate(0) == 20.0  # the second row's F is less
    assert sketch.estimate(1) == 7.0  # equal: the first row's
    assert sketch.ratios().tolist() == [[10.0, 7.0, 7.0], [20.0, 8.0, 8.0]]


def test_a_cell_never_reached_answers_the_mean_and_an_empty_sketch_nothing() -> None:
    sketch = CostSketch(CarterWegman(np.array([1]), np.array([0]), 10))
    assert (sketch.estimate(3), sketch.mean, sketch.seen) == (0.0, 0.0, 0)
    sketch.add(1, 10)
    sketch.add(2, 40)
    assert sketch.estimate(3) == 25.0
    assert sketch.estimate_many(np.array([3, 1])).tolist() == [25.0, 10.0]
    copy = sketch.copy()
    sketch.clear()
    assert (sketch.seen, copy.seen) == (0, 2)


def test_agrees_with_datasketches_within_both_bounds() -> None:
    keys = zipf(30_000, 3_000, seed=8)
    truth = np.bincount(keys, minlength=3_000)
    ours = CountMin.sized(0.01, 0.01, seed=1)
    ours.add_many(keys)
    buckets = count_min_sketch.suggest_num_buckets(0.01)
    theirs = count_min_sketch(count_min_sketch.suggest_num_hashes(0.99), buckets, 7)
    for key in keys.tolist():
        theirs.update(key)
    assert ours.total == theirs.total_weight == len(keys)
    wrong = 0
    for key in range(3_000):
        mine, other = ours.estimate(key), theirs.get_estimate(key)
        assert mine >= truth[key]
        assert truth[key] <= other <= theirs.get_upper_bound(key)
        wrong += abs(mine - other) > max(0.01 * len(keys), theirs.get_upper_bound(key) - other)
    assert wrong <= 2 * 0.01 * 3_000


def test_bad_weights_merges_and_bytes_are_refused() -> None:
    sketch, other = CountMin.sized(0.1, 0.1, seed=1), CountMin.sized(0.1, 0.1, seed=2)
    with pytest.raises(InvalidArgument, match="weight must not be negative"):
        sketch.add(1, -1)
    with pytest.raises(InvalidArgument, match="weight must not be negative"):
        sketch.add_many(np.array([1]), np.array([-1]))
    with pytest.raises(InvalidArgument, match="one whole number"):
        sketch.add_many(np.array([1]), np.array([1, 2]))
    with pytest.raises(InvalidArgument, match="one whole number"):
        sketch.add_many(np.array([1]), np.array([1.5]))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="digests must be"):
        sketch.add_many(np.array([-1]))
    with pytest.raises(InvalidArgument, match="same hashes"):
        sketch.merge(other)
    with pytest.raises(InvalidArgument, match="no Count-Min sketch"):
        CountMin.from_bytes(b"hello")
    with pytest.raises(InvalidArgument, match="another version or length"):
        CountMin.from_bytes(sketch.to_bytes()[:-8])
    with pytest.raises(InvalidArgument, match="do not fit"):
        CountMin(sketch.hashes, np.zeros((1, 2), np.int64))
    with pytest.raises(InvalidArgument, match="duration must not be negative"):
        CostSketch(sketch.hashes).add(1, -5)
    with pytest.raises(InvalidArgument, match="same hashes"):
        CostSketch.from_bytes(sketch.to_bytes() + other.to_bytes())
