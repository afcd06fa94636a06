"""The overload detector: when it speaks, and what it says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.detect import AffineCost, OverloadDetector
from streamshed.records import Sample

ROW = 1e-3  # seconds
FIXED = 0.2


def batch(started: float, rows: int, gap: float, keep: float = 1.0, **more: float) -> Sample:
    kept = int(rows * keep)
    took = FIXED + ROW * kept
    return Sample(
        at=started + took,
        started=started,
        arrived=rows,
        kept=kept,
        gap=gap,
        waited=gap,
        keep=keep,
        keep_next=keep,
        **more,  # type: ignore[arg-type]
    )


def warm(latency: float = 4.0) -> OverloadDetector:
    """A detector that knows the cost exactly, at a load that fits."""
    detector = OverloadDetector(AffineCost(), latency)
    for second in range(8):
        assert detector.observe(batch(second, 100 + 200 * (second % 3), 1.0)) is None
    return detector


def test_a_load_that_fits_is_no_overload() -> None:
    detector = warm()
    assert detector.observe(batch(8, 350, 1.0)) is None
    assert not detector.shedding


def test_a_burst_is_an_overload_and_what_fits_is_what_the_bound_allows() -> None:
    detector = warm()
    found = detector.observe(batch(8, 3000, 1.0))
    assert found is not None
    assert found.rate == pytest.approx(3000, rel=0.01)
    assert found.predicted > found.allowed
    assert 0 <= found.fitting < found.arriving
    assert found.allowed <= 4.0 / 2


def test_a_running_batch_is_judged_before_it_ends() -> None:
    """Three seconds into a batch whose rows came in one second: they must have been 2,800."""
    detector = warm()
    running = Sample(at=11.0, started=8.0, finished=False)
    found = detector.observe(running)
    assert found is not None
    assert found.rate == pytest.approx(2800, rel=0.1)
    assert found.allowed == pytest.approx(4.0 * 0.92 - 3.0)


def test_a_running_batch_that_is_on_time_is_no_overload() -> None:
    detector = warm()
    assert detector.observe(Sample(at=8.5, started=8.0, finished=False)) is None


def test_a_false_alarm_is_forgotten_when_the_rows_are_counted() -> None:
    detector = warm()
    assert detector.observe(Sample(at=11.0, started=8.0, finished=False)) is not None
    slow = replace(batch(8, 300, 1.0), at=11.0)  # 300 rows after all, in a slow batch
    calm = None
    detector.observe(slow)
    for second in range(12, 22):
        calm = detector.observe(batch(second, 300, 1.0))
    assert calm is None


def test_leaving_takes_a_lower_load_and_its_time() -> None:
    detector = warm()
    detector.observe(batch(8, 5000, 1.0, keep=0.3))
    assert detector.shedding
    detector.observe(batch(9, 300, 1.0))
    assert detector.shedding, "one calm batch is not enough"
    for second in range(10, 14):
        detector.observe(batch(second, 300, 1.0))
    assert not detector.shedding


def test_nothing_known_keeps_everything() -> None:
    detector = OverloadDetector(AffineCost(), 4.0)
    cold = Sample(at=5.0, started=0.0, arrived=100, kept=100)
    assert detector.observe(cold) is None


def test_nothing_known_but_a_batch_that_lasts_and_lasts() -> None:
    """The first batch took 1 s; the second has been running for 6 s with rows of 1 s."""
    detector = OverloadDetector(AffineCost(), 4.0)
    detector.observe(Sample(at=1.0, started=0.0, arrived=100, kept=100))
    found = detector.observe(Sample(at=7.0, started=1.0, finished=False))
    assert found is not None
    assert found.share < 0.2
    # A slow start alone, while code is compiled, is none.
    detector = OverloadDetector(AffineCost(), 4.0)
    detector.observe(Sample(at=5.0, started=0.0, arrived=100, kept=100))
    assert detector.observe(Sample(at=9.0, started=5.0, finished=False)) is None


def test_rows_that_a_source_holds_back_are_waiting_too() -> None:
    detector = warm()
    found = detector.observe(batch(8, 300, 1.0, backlog=3000.0))
    assert found is not None
    assert found.arriving > 3000


def test_a_trigger_interval_leaves_less_of_the_bound() -> None:
    often, seldom = warm(), warm()
    a = often.observe(batch(8, 3000, 1.0, keep=0.5))
    b = seldom.observe(batch(8, 3000, 1.0, keep=0.5, interval=3.4))
    assert a is not None
    assert b is not None
    assert b.allowed < a.allowed
    assert b.arriving > a.arriving


@given(st.integers(1000, 50_000), st.integers(1000, 50_000))
def test_more_arrivals_never_let_a_larger_share_through(one: int, other: int) -> None:
    few, many = sorted((one, other))
    shares = []
    for rows in (few, many):
        found = warm().observe(batch(8, rows, 1.0, keep=0.1))
        shares.append(1.0 if found is None else found.share)
    assert shares[1] <= shares[0] + 1e-9
