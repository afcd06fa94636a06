"""Latencies add up in any order, survive being saved, and percentiles are right to within a bin."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.quality.latency_histogram import LEAST, RATIO, LatencyHistogram

seconds = st.lists(st.floats(0.0, 1e5), max_size=60).map(np.array)
histograms = seconds.map(LatencyHistogram.of)


def near(one: LatencyHistogram, other: LatencyHistogram) -> bool:
    """The same, but for the last digit of a sum."""
    same = (one.rows, one.worst, dict(one.bins)) == (other.rows, other.worst, dict(other.bins))
    return same and math.isclose(one.total, other.total, rel_tol=1e-12)


@given(histograms, histograms, histograms)
def test_adding_up_goes_in_any_order(a: LatencyHistogram, b: LatencyHistogram, c: LatencyHistogram) -> None:
    assert near(a.plus(b), b.plus(a))
    assert near(a.plus(b).plus(c), a.plus(b.plus(c)))
    assert a.plus(LatencyHistogram()) == a


@given(seconds, seconds)
def test_two_histograms_are_that_of_all_rows(some: np.ndarray, others: np.ndarray) -> None:
    both = LatencyHistogram.of(np.concatenate([some, others]))
    assert near(LatencyHistogram.of(some).plus(LatencyHistogram.of(others)), both)


@given(st.lists(st.floats(0.0, 1e5), min_size=1, max_size=200).map(np.array), st.floats(0.0, 100.0))
def test_a_percentile_is_right_to_within_a_bin(rows: np.ndarray, percent: float) -> None:
    exact = float(np.percentile(rows, percent, method="inverted_cdf"))
    found = LatencyHistogram.of(rows).percentile(percent)
    assert abs(found - exact) <= max(LEAST, (RATIO - 1.0) * exact) * (1 + 1e-9)


@given(st.floats(0.0, 1e4), st.floats(0.0, 1e4), st.integers(1, 10**6), st.floats(1.0, 100.0))
def test_an_even_spread(shortest: float, length: float, rows: int, percent: float) -> None:
    histogram = LatencyHistogram.uniform(shortest, shortest + length, rows)
    assert histogram.rows == rows
    assert math.isclose(math.fsum(histogram.bins.values()), rows, rel_tol=1e-6)
    assert math.isclose(histogram.mean, shortest + length / 2, rel_tol=1e-9, abs_tol=1e-300)
    assert histogram.worst == shortest + length
    exact = shortest + percent / 100 * length
    assert abs(histogram.percentile(percent) - exact) <= max(LEAST, (RATIO - 1.0) * exact) * (1 + 1e-6)


@given(histograms)
def test_it_survives_being_saved(histogram: LatencyHistogram) -> None:
    assert LatencyHistogram.from_saved(json.loads(json.dumps(histogram.as_saved()))) == histogram


def test_nothing_is_no_latency() -> None:
    assert LatencyHistogram.uniform(1.0, 2.0, 0) == LatencyHistogram.of(np.array([])) == LatencyHistogram()
    assert LatencyHistogram().mean == LatencyHistogram().percentile(99) == 0.0


def test_without_bins_percentiles_are_those_of_an_even_spread() -> None:
    whole = LatencyHistogram.uniform(1.0, 3.0, 10)
    assert whole.without_bins().mean == 2.0
    assert whole.without_bins().percentile(50) == 2.0
    assert whole.without_bins().percentile(100) == 3.0


@pytest.mark.parametrize(
    "broken", [{"bins": [1]}, {"bins": {"x": 1}}, {"rows": "many"}, {"worst": math.inf}, None]
)
def test_what_is_no_histogram_is_known_as_such(broken: object) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        LatencyHistogram.from_saved(broken)  # type: ignore[arg-type]
