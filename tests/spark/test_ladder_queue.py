"""The ladder's rule on a queue in virtual time: what stalls may cost, and what an overload must not."""

from __future__ import annotations

import math

import pytest

from tests.oracles.ladder_queue import busy_machine, play


@pytest.mark.parametrize("stall", [100.0, 200.0, 300.0, 500.0, 1000.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_stall_costs_a_calm_job_no_row(stall: float, seed: int) -> None:
    assert not play(lambda at: 0.5, 6000.0, stalls=[(3000.0, stall)], seed=seed).shed


def test_a_stall_after_a_short_one_costs_no_row() -> None:
    """The first makes rows old; the second is longer than rows may be old."""
    for gap in (20.0, 60.0, 110.0, 180.0):
        stalls = [(3000.0, 120.0), (3120.0 + gap, 250.0)]
        assert not play(lambda at: 0.5, 6000.0, stalls=stalls).shed


@pytest.mark.parametrize("seed", range(4))
def test_a_busy_machine_costs_a_calm_job_no_row(seed: int) -> None:
    assert not play(lambda at: 0.5, 30_000.0, stalls=busy_machine(30_000.0, seed), seed=seed).shed


@pytest.mark.parametrize("seed", range(3))
def test_a_short_time_with_half_of_the_machine_costs_a_calm_job_no_row(seed: int) -> None:
    """Other work takes more than half of the machine for 400 ms in each second: rows get older, and not late."""
    run = play(lambda at: 0.5, 10_000.0, slowness=lambda at: 2.3 if at % 1000.0 < 400.0 else 1.0, seed=seed)
    assert max(latency for _, latency in run.kept) > 60.0  # older than the lowest rung
    assert not run.shed


@pytest.mark.parametrize("seed", range(3))
def test_a_stall_from_which_a_job_soon_recovers_costs_no_row_at_four_fifths_of_the_load(seed: int) -> None:
    assert not play(lambda at: 0.8, 6000.0, stalls=[(3000.0, 200.0)], seed=seed).shed


@pytest.mark.parametrize("times", [1.2, 2.0, 4.0, 8.0])
def test_an_overload_keeps_the_bound(times: float) -> None:
    run = play(lambda at: times if at >= 3000.0 else 0.4, 15_000.0)
    assert run.latency(1.0) <= 210.0


@pytest.mark.parametrize("times", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("seed", range(3))
def test_an_overload_keeps_the_bound_on_a_busy_machine(times: float, seed: int) -> None:
    """One that stands still for a sixth of the time; no row waits longer than a stall or two and the bound."""
    stalls = busy_machine(15_000.0, seed, 500.0)
    run = play(lambda at: times if at >= 3000.0 else 0.4, 15_000.0, stalls=stalls, seed=seed)
    assert run.latency(0.99, since=3000.0) <= 210.0
    assert run.latency(1.0) <= 210.0 + 2 * 300.0


def test_dropping_that_costs_much_does_not_make_rows_late() -> None:
    """Half of the task's time goes into dropping here. A task that is new but not slow is not protected from that:
    it was, and rows were 11 s late at eight times the capacity."""
    run = play(lambda at: 8.0 if at >= 3000.0 else 0.4, 12_000.0, drop=0.03)
    assert run.latency(0.99, since=3000.0) <= 210.0


def test_shedding_ends_with_a_burst() -> None:
    run = play(lambda at: 10.0 if 5000.0 <= at < 7000.0 else 0.5, 12_000.0)
    assert run.shed
    assert max(run.shed) <= 7200.0
    assert run.latency(1.0) <= 210.0


def test_a_cold_start_lets_rows_pass() -> None:
    """Code that is twenty times as slow at first, at four times the capacity."""

    def slowness(at: float) -> float:
        return 1.0 + 19.0 * math.exp(-at / 4000.0)

    ours, plain = (
        play(lambda at: 4.0, 20_000.0, slowness=slowness, drop=0.03, shedding=on) for on in (True, False)
    )
    delivered = [sum(at + latency < 20_000.0 for at, latency in run.kept) for run in (ours, plain)]
    assert delivered[0] >= 0.7 * delivered[1]


def test_what_does_not_recover_in_time_is_shed() -> None:
    """Stalls that take more of the time than is left over are an overload, though each of them is short."""
    stalls = [(3000.0 + 100.0 * n, 70.0) for n in range(100)]
    run = play(lambda at: 0.5, 13_000.0, stalls=stalls)
    assert run.shed
    assert run.latency(0.99, since=6000.0) <= 300.0


def test_with_costs_on_the_ladder_more_rows_come_through_inside_the_bound() -> None:
    """Nine of ten rows cost a little, one costs much: half of the work is in that one."""
    costs = [0.55] * 9 + [5.05]
    runs = {
        aware: play(lambda at: 2.0 if at >= 3000.0 else 0.4, 15_000.0, costs=costs, aware=aware)
        for aware in (False, True)
    }
    assert len(runs[True].kept) > 1.25 * len(runs[False].kept)
    assert runs[True].latency(0.99, since=3000.0) <= 210.0
