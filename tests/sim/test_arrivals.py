"""Arrival processes: rates, shapes, and independence of how one asks."""

from __future__ import annotations

import numpy as np
import pytest

from streamshed.errors import InvalidArgument
from streamshed.sim.arrivals import ArrivalProcess, Bursty, Constant, Poisson, Trace

PROCESSES: list[ArrivalProcess] = [
    Constant(50.0),
    Poisson(50.0),
    Bursty(50.0, peak=3.0, period=4.0, duty=0.25),
    Bursty(50.0, peak=4.0, period=4.0, duty=0.25),
    Trace(tuple(np.arange(0, 100, 0.02).tolist())),
]


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_cutting_time_differently_gives_the_same_rows(process: ArrivalProcess) -> None:
    whole = process.start(np.random.default_rng(3)).until(60.0)
    running = process.start(np.random.default_rng(3))
    parts = [running.until(end) for end in (0.001, 0.7, 0.7, 13.0, 13.5, 60.0)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_rows_come_in_order_and_at_the_mean_rate(process: ArrivalProcess) -> None:
    times = process.start(np.random.default_rng(5)).until(80.0)
    assert np.all(np.diff(times) >= 0)
    assert times[0] >= 0
    assert times[-1] < 80.0
    # Five standard deviations of a Poisson count.
    assert abs(len(times) - 80 * process.rate) < 5 * (80 * process.rate) ** 0.5
    assert process.scaled(2.0).rate == pytest.approx(2 * process.rate)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(Poisson(10.0).start(np.random.default_rng(1)).until(2000.0))
    assert gaps.mean() == pytest.approx(0.1, rel=0.03)
    assert gaps.std() == pytest.approx(0.1, rel=0.03)


def test_bursts_are_where_they_belong() -> None:
    times = Bursty(100.0, peak=3.0, period=10.0, duty=0.2).start(np.random.default_rng(1)).until(1000.0)
    in_burst = float(np.mean(times % 10.0 < 2.0))
    assert in_burst == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Poisson(0.0),
        lambda: Constant(-1.0),
        lambda: Bursty(1.0, peak=6.0, duty=0.2),
        lambda: Bursty(1.0, duty=1.0),
        lambda: Trace((2.0, 1.0)),
        lambda: Trace((-1.0, 1.0)),
    ],
)
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(InvalidArgument):
        make()  # type: ignore[operator]
