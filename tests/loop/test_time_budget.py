"""The time budget: how long rows may pass, and how many pass whatever the clock says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.loop import AffineCost
from streamshed.loop.keep_response import KeepResponse
from streamshed.loop.tail_time import TailTime
from streamshed.loop.time_budget import Allowance, TimeBudget, first_allowance
from streamshed.records import Sample

BOUND = 6.0


class Watched:
    """A query whose rows cost 1 ms, and a batch 0.2 s."""

    def __init__(self, tail: float = 0.1) -> None:
        self.cost = AffineCost()
        self.budget = TimeBudget(BOUND, self.cost)
        self.tail = tail
        for turn, rows in enumerate((100, 300, 200, 400, 100, 300, 200)):
            self.batch(float(turn), rows)

    def batch(self, started: float, rows: int, **more: object) -> Allowance:
        sample = Sample(
            at=started + 0.2 + 1e-3 * rows, started=started, arrived=rows, kept=rows, gap=1.0, waited=1.0, tasks=2,
            cores=2, tail=self.tail,
        )  # fmt: skip
        return self.see(replace(sample, **more))  # type: ignore[arg-type]

    def see(self, sample: Sample, budget: float | None = None, share: float = 1.0) -> Allowance:
        if sample.finished:
            self.cost.observe(sample.duration, sample.arrived, sample.kept, cut=sample.cut > 0, tail=sample.tail)
            self.budget.learn(sample, sample, budget)
        self.budget.observe(sample, sample, response=KeepResponse(), shedding=False, budget=budget, share=share)
        return self.budget.allowance()

    def look(self, started: float, elapsed: float, rows: int = 0, budget: float | None = None) -> Allowance:
        look = Sample(at=started + elapsed, started=started, arrived=rows, finished=False, next_started=True)
        return self.see(look, budget)


def test_the_first_batch_has_a_budget_from_the_bound_alone() -> None:
    first = first_allowance(BOUND)
    assert 0.5 * BOUND <= first.budget < BOUND
    assert TimeBudget(BOUND, AffineCost()).allowance().budget <= first.budget


def test_rows_may_have_waited_behind_a_slow_first_batch() -> None:
    # Its report comes before the next batch has begun; whether anything waits is not known yet.
    budget = TimeBudget(BOUND, AffineCost())
    first = Sample(at=3.0, started=0.0, arrived=500, kept=500, tail=0.1, tasks=2, cores=2, next_started=False)
    budget.learn(first, first, 4.0)
    budget.observe(first, first, response=KeepResponse(), shedding=False, budget=4.0)
    assert budget.allowance().length <= BOUND - 3.0
    # Nothing follows for a while: so nothing waits.
    idle = Sample(at=3.5, started=3.5, finished=False, next_started=False)
    budget.observe(idle, idle, response=KeepResponse(), shedding=False, budget=4.0)
    assert budget.allowance().length > BOUND / 2


def test_a_lump_has_more_than_half_the_bound_and_what_comes_again_has_half() -> None:
    # A long batch makes the next rows wait. After a lump there are few of them. In an overload there are many, and
    # the batch behind a long one is short, reads all of them and keeps hardly any.
    watched = Watched()
    lump = watched.batch(7.0, 1500, next_started=False)
    assert lump.length > 1.2 * BOUND / 2
    again = watched.batch(8.7, 1500, next_started=False)
    assert again.length <= BOUND / 2
    after = watched.batch(10.4, 200, next_started=False)
    assert after.length == pytest.approx(lump.length, rel=0.1)


def test_the_longer_a_batch_runs_the_less_is_left_for_the_next() -> None:
    watched = Watched()
    calm = watched.batch(7.0, 200)
    assert calm.length > BOUND / 2
    lengths = [watched.look(8.0, elapsed).length for elapsed in (1.3, 2.0, 3.0, 4.0, 5.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert all(length + elapsed <= BOUND for length, elapsed in zip(lengths, (1.3, 2.0, 3.0, 4.0), strict=False))
    assert lengths[-1] >= 0.2 * BOUND, "something must be kept, or nothing is learned"


def test_a_batch_that_has_begun_and_waits_for_its_budget_has_what_its_own_rows_leave() -> None:
    planned, waiting = Watched(), Watched()
    for each in (planned, waiting):
        each.batch(7.0, 200)
    long = {"rows": 3000, "gap": 1.0, "at": 12.0}
    assert planned.batch(8.0, next_planned=True, **long).length > BOUND / 3
    assert waiting.batch(8.0, next_planned=False, **long).length <= BOUND - 4.0
    # Once it runs, a budget is for the one behind it, whose rows have waited for as long as it takes.
    assert waiting.look(12.0, 1.3).length == planned.look(12.0, 1.3).length


def test_drops_that_come_too_late_for_a_batch_that_has_begun_leave_it_rows_to_read() -> None:
    budgets = []
    for keep in (0.3, 1.0):
        watched = Watched()
        burst = Sample(
            at=9.0, started=7.0, arrived=20_000, kept=1500, cut=18_500, gap=1.0, waited=1.0, tasks=2, cores=2,
            tail=0.1, keep_next=keep, next_planned=False,
        )  # fmt: skip
        budgets.append(watched.see(burst, 1.7, share=0.3).budget)
    assert budgets[0] > budgets[1]


def test_rows_of_the_running_batch_tell_how_many_the_next_has_to_read() -> None:
    untold, told = Watched(), Watched()
    for watched in (untold, told):
        watched.batch(7.0, 200)
    assert told.look(8.0, 3.0, rows=20_000).budget < untold.look(8.0, 3.0).budget


def test_a_flood_takes_time_to_be_read_even_if_nobody_has_seen_one() -> None:
    watched = Watched()
    watched.batch(7.0, 200)
    # What a fit often says of intervals that dropped little: to read a row and drop it is free.
    watched.cost.predict = lambda arrived, kept: 0.2 + 1e-4 * kept  # type: ignore[method-assign]

    def set_aside(started: float, rows: int) -> float:
        found = watched.look(started, 2.0, rows=rows)
        return found.length - found.budget

    assert 0.25 < set_aside(8.0, 100_000) - set_aside(8.0, 1000) < 1.0, "200,000 rows wait, of which most will go"
    # Once as many were dropped, what was learned counts.
    watched.batch(10.0, 250_000, kept=20_000, cut=230_000, at=12.2)
    assert set_aside(12.2, 100_000) < 0.2


def test_behind_one_that_was_cut_a_batch_is_expected_to_be_over_soon_after_its_own_budget() -> None:
    unknown, known, late = Watched(), Watched(), Watched()
    for each in (unknown, known, late):
        each.batch(7.0, 600, kept=500, cut=100)
    assert known.look(8.0, 2.5, budget=2.6).length > unknown.look(8.0, 2.5).length
    # Until it is not.
    assert late.look(8.0, 3.5, budget=2.6).length == unknown.look(8.0, 3.5).length


def test_rows_that_a_plan_takes_out_are_read_before_the_time_is_used_up() -> None:
    budgets = []
    for share in (1.0, 0.3):
        watched = Watched()
        burst = Sample(
            at=9.0, started=7.0, arrived=20_000, kept=1500, cut=18_500, gap=1.0, waited=1.0, tasks=2, cores=2,
            tail=0.1,
        )  # fmt: skip
        budgets.append(watched.see(burst, 1.7, share).budget)
    assert budgets[0] < budgets[1]


def test_what_usually_arrives_passes_after_a_pause_and_no_more() -> None:
    watched = Watched()
    watched.batch(7.0, 200)
    grace = watched.look(8.0, 5.0).grace
    usual = sum((100, 300, 200, 400, 100, 300, 200, 200)) / 8
    assert 0.8 * usual * 5.0 <= grace <= 1.4 * usual * 5.5


def test_rows_of_the_running_batch_tell_a_burst_from_a_pause() -> None:
    paused, burst = Watched(), Watched()
    for watched in (paused, burst):
        watched.batch(7.0, 200)
    assert paused.look(8.0, 4.0, rows=210).grace > 300
    assert burst.look(8.0, 4.0, rows=9000).grace <= 64


def test_batches_that_do_not_tell_their_tasks_have_as_many_as_the_last_that_did() -> None:
    told, untold = Watched(), Watched()
    for each, tasks in ((told, 16), (untold, 16)):
        each.batch(7.0, 200, tasks=tasks)
    told.batch(8.0, 200, tasks=16)
    untold.batch(8.0, 200, tasks=0, tail=0.0)
    assert untold.look(9.0, 3.0) == told.look(9.0, 3.0)


def test_the_many_rows_of_a_first_batch_after_a_restart_are_no_burst() -> None:
    before, after = Watched(), Watched()
    after.budget = TimeBudget(BOUND, after.cost)
    after.budget.recall(before.budget.remember())
    after.batch(20.0, 1500, gap=0.0)  # what came while it was down; over which time, nobody knows
    assert after.look(22.0, 3.0).grace > 100


def test_a_batch_that_was_cut_has_no_usual_rows_behind_it() -> None:
    watched = Watched()
    watched.batch(7.0, 9000, at=12.0, kept=3000, cut=6000)
    watched.batch(12.0, 9000, at=17.0, kept=3000, cut=6000)
    assert watched.look(17.0, 3.0).grace <= 64


def test_an_idle_source_leaves_all_of_the_bound() -> None:
    watched = Watched()
    watched.batch(7.0, 200, next_started=False)
    allowed = watched.batch(60.0, 200, gap=53.0, waited=0.1, next_started=False)
    assert allowed.length > 0.75 * BOUND


def test_what_comes_behind_the_drop_is_taken_off() -> None:
    quick, slow = Watched(tail=0.1), Watched(tail=1.0)
    difference = quick.batch(7.0, 200).budget - slow.batch(7.0, 200).budget
    assert difference == pytest.approx(0.9, abs=0.4)


def test_a_sink_that_is_too_slow_for_the_bound_has_no_rows_cut() -> None:
    watched = Watched(tail=4.0)
    assert watched.batch(7.0, 200, at=11.5).budget > BOUND


def test_a_trigger_is_waited_for() -> None:
    often, seldom = Watched(), Watched()
    assert seldom.batch(7.0, 200, interval=4.0).length < often.batch(7.0, 200).length
    assert seldom.batch(8.0, 200, interval=4.0).length <= BOUND - 4.0


@given(
    st.lists(st.tuples(st.floats(0.01, 30), st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1)), max_size=30)
)
def test_a_budget_is_never_silly(batches: list[tuple[float, int, float, float]]) -> None:
    cost, at = AffineCost(), 0.0
    budget = TimeBudget(BOUND, cost)
    for took, rows, keep, cut in batches:
        kept = int(rows * keep)
        sample = Sample(
            at=at + took, started=at, arrived=rows, kept=kept, cut=int((rows - kept) * cut), gap=took, waited=took,
            tail=took / 3, tasks=3,
        )  # fmt: skip
        cost.observe(took, rows, kept, cut=sample.cut > 0)
        budget.learn(sample, sample, 1.0)
        budget.observe(sample, sample, response=KeepResponse(), shedding=False, budget=1.0)
        found = budget.allowance()
        assert 0 <= found.budget <= found.length
        assert found.grace >= 1
        at += took


def test_large_batches_are_known_by_however_few_small_ones_stand_beside_them() -> None:
    tails = TailTime()
    for _ in range(40):
        tails.observe(1.6, 3000)
    tails.observe(0.15, 100)
    assert tails.predict(100) == pytest.approx(0.15)
    assert tails.predict(6000) == pytest.approx(1.6 + 1.45 / 2900 * 1500)


def test_a_sink_that_slept_in_the_only_batch_of_its_size_is_no_slow_sink() -> None:
    tails = TailTime()
    for kept, tail in ((100, 0.2), (300, 6.0), (1000, 1.0)):
        tails.observe(tail, kept)
    assert tails.predict(300) == pytest.approx(1.0)


def test_tails_of_one_size_are_all_fixed() -> None:
    tails = TailTime()
    for turn in range(40):
        tails.observe(0.3 + 0.01 * (turn % 3), 100 + turn % 5)
    assert tails.predict(100_000) == pytest.approx(0.31, abs=0.01)
    assert TailTime().predict(5) == 0.0


def test_the_largest_interval_is_remembered_through_many_small_ones() -> None:
    tails = TailTime()
    tails.observe(1.2, 2000)
    for _ in range(60):
        tails.observe(0.2, 100)
    assert tails.predict(2000) > 0.8
    copy = TailTime()
    copy.recall(tails.remember())
    assert copy.predict(2000) == tails.predict(2000)
