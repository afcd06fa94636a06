"""First, do no harm: the worlds of `tests/worlds.py`, and what must hold in each.

What fails today needs a clock inside the plan, or rows counted while a batch runs: the time budget's issue.
"""

from __future__ import annotations

from functools import cache

import pytest

from streamshed.records import Mode
from tests.worlds import WORLDS, Outcome


@cache
def play(name: str, mode: Mode = Mode.ENFORCE) -> Outcome:
    return WORLDS[name].play(mode)


@pytest.mark.xfail(strict=True, reason="32 % shed, the pause is taken for rows: the time budget's issue")
def test_a_calm_job_that_pauses_now_and_then_sheds_nothing() -> None:
    assert play("pauses of 3 s").shed == 0


@pytest.mark.xfail(strict=True, reason="6.7 % shed, the pause is taken for rows: the time budget's issue")
def test_one_pause_as_long_as_the_bound_sheds_nothing() -> None:
    assert play("one pause of 6 s").shed == 0


@pytest.mark.xfail(strict=True, reason="10.8 % shed, the pause is taken for rows: the time budget's issue")
def test_a_sink_that_sleeps_once_sheds_nothing() -> None:
    assert play("a sink that sleeps 6 s once").shed == 0


@pytest.mark.xfail(strict=True, reason="1.5 % shed, slowness is taken for rows: the time budget's issue")
def test_a_job_that_is_slower_for_a_while_and_still_fits_sheds_nothing() -> None:
    assert play("slower for 10 s").shed == 0


def test_rows_now_and_then_are_all_kept() -> None:
    outcome = play("rows now and then")
    assert outcome.shed == 0
    assert outcome.late() == 0


def test_a_trigger_interval_longer_than_the_bound_sheds_nothing_and_says_so() -> None:
    outcome = play("trigger of 10 s, bound of 4 s")
    assert outcome.shed == 0
    assert outcome.engine.controller.plan.reason == (
        "nothing is shed: the trigger interval of 10.0 s alone is longer than the bound of 4.0 s; "
        "dropping rows cannot help"
    )
    assert outcome.plans == 1, "said once"


def test_a_fixed_cost_that_breaks_the_bound_sheds_nothing_and_says_so() -> None:
    outcome = play("fixed cost of 2.5 s, bound of 4 s")
    assert outcome.shed == 0
    assert "whatever is in it" in outcome.engine.controller.plan.reason
    assert "dropping rows cannot help" in outcome.engine.controller.plan.reason
    assert outcome.plans == 1, "said once"


def test_what_only_drains_has_no_bound_to_keep() -> None:
    outcome = play("availableNow over 20 files")
    assert outcome.shed == 0
    assert "availableNow" in outcome.engine.controller.plan.reason


@pytest.mark.parametrize(
    "name", ["trigger of 10 s, bound of 4 s", "fixed cost of 2.5 s, bound of 4 s", "availableNow over 20 files"]
)
def test_dry_run_says_nothing_of_drops_in_vain(name: str) -> None:
    outcome = play(name, Mode.DRY_RUN)
    assert outcome.shed == 0
    assert outcome.engine.controller.plan.wanted == ()


@pytest.mark.parametrize("name", ["2x after a calm start", "3x after a calm start"])
def test_dry_run_says_about_what_enforcing_sheds(name: str) -> None:
    said, done = play(name, Mode.DRY_RUN), play(name)
    assert all(batch.sample.shed == 0 for batch in said.engine.batches)
    assert said.shed == pytest.approx(done.shed, abs=0.1)


@pytest.mark.xfail(
    reason="says 98 %, enforcing sheds 74 %: the cost of a row is learned too late: the time budget's issue"
)
def test_dry_run_says_so_from_the_first_batch_on() -> None:
    name = "3x from the first batch on"
    assert play(name, Mode.DRY_RUN).shed == pytest.approx(play(name).shed, abs=0.1)


def test_a_lasting_overload_is_held_with_what_fits() -> None:
    outcome = play("3x after a calm start")
    assert outcome.late() <= 0.01
    assert outcome.kept_of_fitting(after=60) >= 0.95


@pytest.mark.xfail(
    reason="7.6 % of what is kept is late, p99 at 7.3 bounds, second batch 39 s: the time budget's issue"
)
def test_an_overload_from_the_first_batch_on_is_late_in_that_one_alone() -> None:
    outcome = play("3x from the first batch on")
    second = outcome.engine.batches[1].sample.started
    assert outcome.late(after=second) <= 0.01


@pytest.mark.xfail(strict=True, reason="8.4 % of what is kept is late, p99 at 3.0 bounds: the time budget's issue")
def test_a_small_overload_from_the_first_batch_on_is_late_in_that_one_alone() -> None:
    outcome = play("1.33x from the first batch on")
    second = outcome.engine.batches[1].sample.started
    assert outcome.late(after=second) <= 0.01


@pytest.mark.xfail(strict=True, reason="45 % of what is kept is late, p99 at 2.7 bounds: the time budget's issue")
def test_a_short_burst_of_ten_times_is_not_late() -> None:
    assert play("10x for 10 s").late() <= 0.01


@pytest.mark.xfail(
    reason="batches of 294 s and 144 s; 18 % of what comes after them is late: the time budget's issue"
)
def test_a_restart_with_a_backlog_is_inside_the_bound_after_two_batches() -> None:
    outcome = play("restart with ten minutes of backlog")
    third = outcome.engine.batches[2].sample.started
    assert outcome.late(after=third) == 0


def test_a_world_is_the_same_each_time() -> None:
    first, second = (WORLDS["3x after a calm start"].play() for _ in range(2))
    assert first.engine.samples == second.engine.samples
    assert first.engine.plans == second.engine.plans


def test_every_row_is_kept_or_shed_and_has_a_latency() -> None:
    for name in WORLDS:
        outcome = play(name)
        report = outcome.engine.ledger.report()
        batches = outcome.engine.batches
        assert report.arrived == sum(parcel.rows for batch in batches for parcel in batch.parcels)
        assert report.kept == sum(batch.sample.kept for batch in batches)
        rows = sum(rows for batch in batches for _, rows in batch.latencies())
        assert rows == pytest.approx(report.kept)
        assert all(latency >= 0 for batch in batches for latency, _ in batch.latencies(2))
