"""How fast rows arrive, from lumps and bursts."""

from __future__ import annotations

import pytest

from streamshed.loop.arrival_rate import ArrivalRate


def seen(*intervals: tuple[float, float], window: float = 5.0) -> ArrivalRate:
    rate = ArrivalRate(window)
    for rows, gap in intervals:
        rate.observe(rows, gap)
    return rate


def test_what_two_intervals_say_is_not_averaged_with_the_calm_before_it() -> None:
    calm = [(2_000.0, 0.5)] * 6
    first = seen(*calm, (42_900, 1.3))
    assert first.value < 0.5 * 33_000, "one interval alone may be a lump"
    second = seen(*calm, (42_900, 1.3), (75_900, 2.3))
    assert second.value == pytest.approx(33_000)


def test_one_lump_more_is_no_burst() -> None:
    # 1,000 rows a second, in intervals of a second: now two of them, now none.
    rate = seen(*[(1000.0, 1.0)] * 5, (2000, 1.0))
    assert rate.value == pytest.approx(1200)
    rate.observe(0, 1.0)
    assert rate.value == pytest.approx(1000)


def test_the_end_of_a_burst_is_believed_after_two_intervals() -> None:
    rate = seen(*[(33_000.0, 1.0)] * 5)
    rate.observe(4_000, 1.0)
    assert rate.value > 20_000
    rate.observe(4_000, 1.0)
    assert rate.value == pytest.approx(4_000)


def test_nothing_seen_is_no_rate() -> None:
    assert seen().value == 0.0
    assert seen((100, 0.0)).value == 0.0
