"""Algorithm 1 against an exhaustive search, and what weights and minimums change."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.errors import InvalidArgument
from streamshed.policies.fair import Batches, admit

levels = st.lists(st.floats(0, 0.5), min_size=1, max_size=3)


@st.composite
def buffers(draw: st.DrawFn, *, equal: bool) -> tuple[Batches, list[float], int]:
    """Up to nine batches of up to three queries.

    equal: batches of 10 tuples, of any SIC. Else of any size, a query's tuples all counting alike: as they come
    from sources.
    """
    projected = draw(levels)
    size = draw(st.integers(1, 9))
    query = draw(st.lists(st.integers(0, len(projected) - 1), min_size=size, max_size=size))
    if equal:
        tuples = [10] * size
        sic = draw(st.lists(st.floats(0.001, 0.3), min_size=size, max_size=size))
    else:
        tuples = draw(st.lists(st.integers(1, 30), min_size=size, max_size=size))
        per_tuple = draw(st.lists(st.floats(0.001, 0.01), min_size=len(projected), max_size=len(projected)))
        sic = [count * per_tuple[each] for count, each in zip(tuples, query, strict=True)]
    wanted = draw(st.integers(0, sum(tuples)))
    return Batches.of(query, tuples, sic), projected, wanted


def reached(batches: Batches, chosen: np.ndarray, projected: list[float]) -> np.ndarray:
    """q̂_SIC of the queries that have anything waiting; the others cannot be helped."""
    level = np.array(projected) + np.bincount(batches.query, batches.sic * chosen, len(projected))
    return level[np.unique(batches.query)]


def best_least(batches: Batches, projected: list[float], wanted: int) -> float:
    """The largest least q̂_SIC of all choices of at most so many tuples: every one of them is tried."""
    choices = (np.array(choice) for choice in product([False, True], repeat=len(batches.query)))
    return max(
        reached(batches, choice, projected).min() for choice in choices if batches.tuples[choice].sum() <= wanted
    )


@given(buffers(equal=True))
def test_with_equal_batches_no_other_choice_has_a_larger_least_sic(case):
    batches, projected, wanted = case
    chosen = admit(batches, wanted, projected)
    admitted = int(batches.tuples[chosen].sum())
    assert admitted == min(-(-wanted // 10) * 10, batches.tuples.sum())
    assert reached(batches, chosen, projected).min() == pytest.approx(best_least(batches, projected, admitted))


@given(buffers(equal=False))
def test_with_any_batches_it_is_within_one_batch_of_the_most_equal_choice(case):
    batches, projected, wanted = case
    chosen = admit(batches, wanted, projected)
    least = reached(batches, chosen, projected).min()
    assert least >= best_least(batches, projected, wanted) - batches.sic.max() - 1e-12


@given(buffers(equal=False))
def test_it_admits_what_is_asked_for_and_at_most_a_part_of_a_batch_more(case):
    batches, projected, wanted = case
    chosen = admit(batches, wanted, projected)
    admitted = int(batches.tuples[chosen].sum())
    assert admitted >= min(wanted, batches.tuples.sum())
    if chosen.any():
        assert admitted - batches.tuples[chosen].max() < wanted


@given(buffers(equal=False))
def test_a_query_gets_more_only_while_it_is_the_poorest(case):
    """Whoever ends above another that still had batches was not above it before its last one."""
    batches, projected, wanted = case
    chosen = admit(batches, wanted, projected)
    level = np.array(projected) + np.bincount(batches.query, batches.sic * chosen, len(projected))
    starving = [query for query in np.unique(batches.query) if not chosen[batches.query == query].all()]
    for query in np.unique(batches.query[chosen]):
        last = batches.sic[chosen & (batches.query == query)].min()
        for other in starving:
            assert level[query] - last <= level[other] + 1e-12


@given(buffers(equal=True))
def test_of_a_query_the_batches_of_highest_sic_are_kept(case):
    batches, projected, wanted = case
    chosen = admit(batches, wanted, projected)
    for query in np.unique(batches.query):
        kept, shed = (batches.sic[(batches.query == query) & which] for which in (chosen, ~chosen))
        assert not len(kept) or not len(shed) or kept.min() >= shed.max()


def test_a_query_of_weight_2_keeps_twice_the_share():
    batches = Batches.of([0] * 60 + [1] * 60, [1] * 120, [0.01] * 120)
    chosen = admit(batches, 60, [0.0, 0.0], weights=[2.0, 1.0])
    assert np.bincount(batches.query[chosen]).tolist() == [40, 20]


def test_a_minimum_comes_first():
    batches = Batches.of([0] * 50 + [1] * 50, [1] * 100, [0.01] * 100)
    chosen = admit(batches, 40, [0.0, 0.2], minimum=[0.0, 0.5])
    assert np.bincount(batches.query[chosen]).tolist() == [10, 30]


def test_a_query_without_batches_is_left_alone():
    chosen = admit(Batches.of([1, 1], [5, 5], [0.1, 0.1]), 5, [0.0, 0.9, 0.0])
    assert chosen.tolist() == [True, False]
    assert admit(Batches.of([], [], []), 10, [0.5]).tolist() == []


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_weights_that_are_not_positive_are_refused(weight):
    with pytest.raises(InvalidArgument, match="weight must be above 0"):
        admit(Batches.of([0], [1], [0.1]), 1, [0.0], weights=[weight])


@pytest.mark.parametrize("minimum", [-0.1, 1.1])
def test_a_minimum_outside_0_to_1_is_refused(minimum):
    with pytest.raises(InvalidArgument, match="minimum SIC"):
        admit(Batches.of([0], [1], [0.1]), 1, [0.0], minimum=[minimum])
