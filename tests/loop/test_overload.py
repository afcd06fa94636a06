"""The overload detector: when it speaks, and what it says."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.loop import AffineCost, MeanCost, OverloadDetector
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


def test_a_trigger_interval_longer_than_the_bound_is_nothing_that_dropping_helps() -> None:
    for detector in (warm(), OverloadDetector(AffineCost(), 4.0)):
        detector.observe(batch(10, 3000, 10.0, interval=10.0))
        found = detector.observe(batch(20, 3000, 10.0, interval=10.0))
        assert found is not None
        assert found.in_vain.startswith("the trigger interval of 10.0 s alone is longer than the bound of 4.0 s")
    found = OverloadDetector(MeanCost(), 4.0).observe(batch(8, 3000, 1.0, interval=3.8))
    assert found is not None
    assert found.in_vain.startswith("the trigger interval of 3.8 s leaves no time of the bound of 4.0 s")


def test_a_trigger_that_leaves_less_than_a_batch_costs_at_least() -> None:
    found = None
    detector = OverloadDetector(AffineCost(), 4.0)
    for turn, rows in enumerate((100, 300, 200, 400, 100, 300)):
        slow = replace(batch(3.0 * turn, rows, 3.0, interval=3.0), at=3.0 * turn + 1.0 + ROW * rows)
        found = detector.observe(slow)
    assert found is not None
    assert "a batch takes 1.0 s whatever is in it, and its rows wait for its trigger (3.0 s)" in found.in_vain


def test_the_fixed_cost_is_too_much_until_a_batch_takes_less() -> None:
    def told(detector: OverloadDetector, fixed: float, turns: int, rows: Callable[[int], int]) -> str:
        found = None
        for turn in range(turns):
            size = rows(turn)
            found = detector.observe(
                Sample(at=2.5 * turn + fixed + 1e-5 * size, started=2.5 * turn, arrived=size, kept=size, gap=2.5)
            )
        return "" if found is None else found.in_vain

    detector = OverloadDetector(AffineCost(), 4.0)
    assert "a batch takes 2.5 s whatever is in it" in told(detector, 2.5, 6, lambda turn: 1000 * (1 + turn % 3))
    # All of one size from here on: nothing tells the fixed cost from that of rows, and nothing speaks against it.
    assert "a batch takes 2.5 s whatever is in it" in told(detector, 2.5, 300, lambda turn: 1000)
    assert told(detector, 0.3, 1, lambda turn: 1000) == ""


def test_an_overload_is_not_taken_for_a_fixed_cost() -> None:
    """Every batch is far longer than the bound, but the more so the more rows it has."""
    detector, start, rows = OverloadDetector(AffineCost(), 4.0), 0.0, 3000
    for _ in range(4):
        found = detector.observe(batch(start, rows, 1.0))
        start, rows = start + FIXED + ROW * rows, 2 * rows
    assert found is not None
    assert found.in_vain == ""


def test_a_query_that_only_drains_has_no_bound_to_keep() -> None:
    found = warm().observe(batch(8, 5000, 1.0, draining=True))
    assert found is not None
    assert "availableNow" in found.in_vain


def test_where_nothing_is_dropped_the_answer_is_for_batches_as_plans_would_make_them() -> None:
    """At twice the load batches double; enforced, each would be as long as the bound allows."""
    detector, start, gap = warm(), 8.0, 1.0
    shares = []
    for _ in range(8):
        rows = int(2000 * gap)
        found = detector.observe(batch(start, rows, gap), enforced=False)
        shares.append(1.0 if found is None else found.share)
        start, gap = start + FIXED + ROW * rows, FIXED + ROW * rows
    assert gap > 100
    assert all(share == pytest.approx(0.4, abs=0.1) for share in shares[2:])


@given(st.integers(1000, 50_000), st.integers(1000, 50_000))
def test_more_arrivals_never_let_a_larger_share_through(one: int, other: int) -> None:
    few, many = sorted((one, other))
    shares = []
    for rows in (few, many):
        found = warm().observe(batch(8, rows, 1.0, keep=0.1))
        shares.append(1.0 if found is None else found.share)
    assert shares[1] <= shares[0] + 1e-9
