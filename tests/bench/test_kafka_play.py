"""What is measured of rows from Kafka to Kafka: on runs made by hand; and the ladder's formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.errors import InvalidArgument
from streamshed.lab.bench import bench, realtime
from streamshed.lab.bench.kafka_play import Play
from streamshed.lab.bench.ladder import optimum
from streamshed.lab.bench.realtime_picture import p99_over_time
from streamshed.spark.real_time.age_ladder import HIGHEST, LOWEST, RUNGS, AgeLadder


def play() -> Play:
    """Ten rows, one a second, of two tiers; the last three never come, and the first takes 5 s."""
    latencies = np.array([5000.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    return Play(np.arange(10.0), np.array([0, 1] * 5), np.arange(7), latencies)


def test_percentiles_are_of_the_rows_that_were_sent_after_a_time() -> None:
    assert play().latency(100) == 5000.0
    assert play().latency(100, since=1.0) == 60.0
    assert play().after(since=5.0).mean() == 55.0
    assert np.isnan(play().latency(99, since=9.0))


def test_what_is_delivered_counts_when_it_comes_and_what_is_missing_when_it_was_sent() -> None:
    assert play().delivered(0.0, 2.0) == 1  # the second; the first comes at 5 s
    assert play().delivered(5.0, 6.0) == 2
    assert list(play().missing()) == [7.0, 8.0, 9.0]
    assert list(play().missing(since=8.5)) == [9.0]
    assert play().lost_share(0, 0.0, 10.0) == 1 / 5
    assert play().lost_share(1, 0.0, 10.0) == 2 / 5
    assert p99_over_time(play())[0][1] == 10.0


def test_a_bound_is_in_force_when_most_rows_come_out_within_it() -> None:
    sent = np.arange(0.0, 10.0, 0.01)
    latencies = np.where(sent < 5.3, 150.0, 30.0)
    played = Play(sent, np.zeros(1000, dtype=int), np.arange(1000), latencies)
    assert realtime.in_force_after(played, 5.0, 0.05) == pytest.approx(0.5)  # the last old ones come at 5.44 s
    assert realtime.in_force_after(played, 5.0, 0.02) is None
    assert realtime.in_force_after(played, 8.0, 0.05) == pytest.approx(0.1)


def turn(rate: float, seconds: float = 10.0, age: float = 0.0) -> realtime.Turn:
    """So many rows a second come out, each at this age in milliseconds."""
    sent = np.arange(0.0, 2.0 + seconds, 1.0 / rate)
    played = Play(sent, np.zeros(len(sent), dtype=int), np.arange(len(sent)), np.full(len(sent), age))
    return realtime.Turn(played, 2.0, seconds)


def test_a_ladder_is_held_against_the_plain_job_beside_it() -> None:
    """On a machine with two speeds, which change between pairs and once within one, two equal jobs are equal."""
    pairs = [(turn(rate), turn(rate)) for rate in (120, 100, 120, 100)]
    turns = realtime.Turns(5000.0, turn(120, 60.0), turn(100, 60.0), [*pairs, (turn(120), turn(100))])
    assert turns.rows_ratio() == pytest.approx(1.0, abs=0.01)
    assert turns.plain_apart() == pytest.approx(1.2, abs=0.01)


def test_short_turns_tell_which_job_does_less_and_how_late_it_is() -> None:
    turns = realtime.Turns(5000.0, turn(100), turn(95), [(turn(100, age=10.0), turn(95, age=15.0))] * 3)
    assert turns.rows_ratio() == pytest.approx(0.95, abs=0.01)
    assert turns.ratios(lambda each: each.latency(99)) == pytest.approx([1.5] * 3)


def test_parts_of_a_run_are_named_and_a_picture_needs_a_folder() -> None:
    assert callable(bench("realtime", parts=["idle", "8"]))
    with pytest.raises(InvalidArgument, match=r"no such part(.|\n)*idle, 2, 4, 8, burst, cold, picture"):
        bench("realtime", parts=["16"])
    with pytest.raises(InvalidArgument, match="a picture needs a folder"):
        bench("realtime", parts=["picture"])(print)


def test_the_optimum_is_the_dearest_rows_first() -> None:
    worth = 0.2 * 1.0 + 0.3 * 0.6 + 0.5 * 0.2
    assert optimum(0.2) == pytest.approx(0.2 / worth)
    assert optimum(0.35) == pytest.approx((0.2 + 0.15 * 0.6) / worth)


@given(st.floats(0.01, 10.0), st.integers(1, 15))
def test_limits_rise_from_rung_to_rung_and_from_class_to_class_within_the_bound(bound: float, count: int) -> None:
    ladder = AgeLadder(bound, tuple(f"c{number}" for number in range(count)))
    limits = ladder.limits()
    assert len(limits) == count * RUNGS
    for number in range(count):
        own = limits[number * RUNGS : (number + 1) * RUNGS]
        assert own == sorted(own)
        if number:
            assert own[-1] < limits[(number - 1) * RUNGS]  # the better class begins above
    assert LOWEST * bound < min(limits)
    assert max(limits) == pytest.approx(HIGHEST * bound)


def test_a_guaranteed_share_is_never_below_the_floor() -> None:
    ladder = AgeLadder(0.2, ("gold", "others"), {"gold": 0.5}, floor=0.1)
    assert [ladder.share(0), ladder.share(1)] == [0.5, 0.1]
