"""First, do no harm: worlds of `streamshed.lab.worlds`, and what must hold in each."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from streamshed.lab.worlds.catalog import CALM, WORLDS
from streamshed.lab.worlds.job import Job
from streamshed.lab.worlds.world import Outcome, World
from streamshed.loop.arbiter import hopeless
from streamshed.records import Mode


@cache
def play(name: str, mode: Mode = Mode.ENFORCE) -> Outcome:
    return WORLDS[name].play(mode)


def times_said(outcome: Outcome) -> int:
    """How often a plan said that nothing helps, after one that did not."""
    plans = [plan for _, plan in outcome.engine.plans]
    return sum(
        hopeless(plan) and not hopeless(before) for before, plan in pairwise([plans[0], *plans])
    ) + hopeless(plans[0])


@pytest.mark.parametrize("world", CALM, ids=lambda world: world.name)
def test_nothing_is_shed_where_none_need_be(world: object) -> None:
    assert play(getattr(world, "name", "")).shed == 0


def test_rows_now_and_then_are_in_time() -> None:
    assert play("rows now and then").late() == 0
    assert play("lumps of two thirds of a bound").late() == 0


def test_a_trigger_interval_longer_than_the_bound_is_told_once() -> None:
    outcome = play("trigger of 10 s, bound of 4 s")
    assert outcome.engine.shedder.plan.reason == (
        "nothing is shed: the trigger interval of 10.0 s alone is longer than the bound of 4.0 s; "
        "dropping rows cannot help"
    )
    assert outcome.engine.shedder.plan.budget is None
    assert times_said(outcome) == 1


def test_a_fixed_cost_that_breaks_the_bound_is_told_once() -> None:
    outcome = play("slow sink of 2.3 s, bound of 4 s")
    assert "whatever is in it" in outcome.engine.shedder.plan.reason
    assert "dropping rows cannot help" in outcome.engine.shedder.plan.reason
    assert times_said(outcome) == 1


def test_what_only_drains_has_no_bound_to_keep() -> None:
    outcome = play("availableNow over 20 files")
    assert outcome.arrived > 50_000
    assert "availableNow" in outcome.engine.shedder.plan.reason
    assert all(plan.budget is None for _, plan in outcome.engine.plans)


@pytest.mark.parametrize(
    "name", ["trigger of 10 s, bound of 4 s", "slow sink of 2.3 s, bound of 4 s", "availableNow over 20 files"]
)
def test_dry_run_says_nothing_of_drops_in_vain(name: str) -> None:
    outcome = play(name, Mode.DRY_RUN)
    assert outcome.shed == 0
    assert outcome.engine.shedder.plan.wanted == ()


@pytest.mark.parametrize(
    "name",
    ["2x after a calm start", "3x after a calm start", "3x from the first batch on", "10x for 10 s", "1.2x"],
)
def test_dry_run_says_about_what_enforcing_sheds(name: str) -> None:
    said, done = play(name, Mode.DRY_RUN), play(name)
    assert all(batch.sample.shed == 0 for batch in said.engine.batches)
    assert all(plan.budget is None and plan.drops == () for _, plan in said.engine.plans)
    assert said.shed == pytest.approx(done.shed, abs=0.1)


def test_a_lasting_overload_is_held_with_what_fits() -> None:
    outcome = play("3x after a calm start")
    assert outcome.late() <= 0.01
    batches = outcome.began(60)
    seconds = batches[-1].sample.at - batches[0].sample.started
    arrived, kept = (sum(getattr(b.sample, name) for b in batches) / seconds for name in ("arrived", "kept"))
    # What fits when every batch is half a bound long.
    job, length = outcome.world.job, outcome.world.bound / 2
    fits = (1 - (job.fixed + job.commit) / length - job.per_arrived * arrived) / job.per_kept
    assert kept >= 0.93 * fits


@pytest.mark.parametrize(
    "name", ["3x from the first batch on", "4x from the first batch on", "1.33x from the first batch on"]
)
def test_an_overload_from_the_first_batch_on_is_late_in_that_one_alone(name: str) -> None:
    outcome = play(name)
    first, second = outcome.engine.batches[:2]
    assert outcome.late(after=second.sample.started) <= 0.01
    assert first.sample.duration <= 2 * outcome.world.bound


@pytest.mark.parametrize("name", ["10x for 10 s", "10x for 10 s, Kafka"])
def test_a_short_burst_of_ten_times_is_not_late(name: str) -> None:
    assert play(name).late() <= 0.01


@pytest.mark.parametrize("load", [1.5, 3.0])
def test_a_slow_sink_is_overloaded_though_no_batch_has_been_short(load: float) -> None:
    # What waits at the start makes the first batch long already: what the sink takes could be a fixed cost.
    sink = Job(per_kept=2e-4, per_arrived=1e-5, behind=8e-4, noise=0.1)
    world = World("a slow sink", 4.0, lambda t: 1000.0 * load, 120.0, sink, waiting=4.0)
    outcome = world.play()
    assert outcome.late(after=50.0) <= 0.05, "all of them, once"
    kept = sum(batch.sample.kept for batch in outcome.began(50.0)) / 70.0
    assert kept >= 700.0


@pytest.mark.parametrize("name", ["2x through a network", "3x through a network, for 20 s"])
def test_a_batch_that_is_planned_late_has_the_time_that_its_own_rows_leave(name: str) -> None:
    # It began before the one in front of it was reported, and finds the budget that was made of that report.
    assert play(name).late() <= 0.01


@pytest.mark.parametrize("name", ["restart with ten minutes of backlog", "the same, expired rows dropped"])
def test_a_restart_with_a_backlog_is_inside_the_bound_after_two_batches(name: str) -> None:
    outcome = play(name)
    third = outcome.engine.batches[2].sample.started
    assert outcome.late(after=third) == 0


def test_expired_rows_go_first_and_are_counted_apart() -> None:
    outcome = play("the same, expired rows dropped")
    report = outcome.engine.ledger.report()
    assert report.expired > 280_000
    assert report.shed == report.thinned + report.cut + report.expired
    assert all(batch.sample.expired == 0 for batch in outcome.engine.batches[3:])


def test_a_world_is_the_same_each_time() -> None:
    first, second = (WORLDS["2x after a calm start"].play() for _ in range(2))
    assert first.engine.samples == second.engine.samples
    assert first.engine.plans == second.engine.plans


def test_every_row_is_kept_or_shed_and_has_a_latency() -> None:
    for name in (
        "10x for 10 s",
        "2.5x, a tenth protected",
        "the same, expired rows dropped",
        "2x, 16 tasks on 2 cores",
    ):
        outcome = play(name)
        report = outcome.engine.ledger.report()
        batches = outcome.engine.batches
        assert report.arrived == outcome.arrived == report.kept + report.thinned + report.cut + report.expired
        assert report.kept == sum(batch.sample.kept for batch in batches)
        assert min(report.thinned, report.cut, report.expired) >= 0
        latencies = [batch.latencies(outcome.engine.arrivals) for batch in batches]
        assert sum(rows.sum() for _, rows in latencies) == pytest.approx(report.kept, rel=0.01)
        assert all((late >= 0).all() for late, _ in latencies)
