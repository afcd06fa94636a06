"""The controller in a closed loop with a model of Spark: no clock, no Spark, exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from streamshed.errors import InvalidArgument
from streamshed.lab.worlds.arrivals import Arrivals
from streamshed.lab.worlds.engine import Engine
from streamshed.lab.worlds.job import Job
from streamshed.loop.arbiter import Limits
from streamshed.loop.controller import Controller
from streamshed.policies import NoShedding, RandomShedding
from streamshed.records import Mode, Sample, dump_samples, load_samples


def controller(latency: float = 4.0, **limits: object) -> Controller:
    return Controller(RandomShedding("s"), latency=latency, limits=Limits(**limits))  # type: ignore[arg-type]


def run(under: Controller, rate: Callable[[float], float], seconds: float, job: Job | None = None) -> Engine:
    engine = Engine(under, job or Job(), Arrivals(rate, seconds, before=0.5))
    engine.run(seconds)
    return engine


def test_below_capacity_nothing_is_ever_shed() -> None:
    engine = run(controller(), lambda t: 600.0, 300, Job(noise=0.1))
    assert all(s.shed == 0 for s in engine.samples)


@pytest.mark.parametrize("factor", [1.5, 3.0, 8.0])
def test_an_overload_stays_inside_the_bound_from_the_first_batch_on(factor: float) -> None:
    job = Job(noise=0.05)
    engine = run(controller(), lambda t: 950 * (factor if t > 20 else 0.5), 120, job)
    late = [s for s in engine.samples if s.latency > 4.0 * 1.02]
    assert len(late) <= 1
    # And no more is given up than needed: the engine is kept busy with kept rows.
    settled = [s for s in engine.samples if s.started > 30]
    useful = sum(s.kept for s in settled) * job.per_kept / sum(s.duration for s in settled)
    assert useful > 0.93 - (job.fixed + job.commit) / 1.9 - factor * 950 * job.per_arrived


@pytest.mark.parametrize("listing", [0.0, 0.3])
def test_a_plan_is_for_the_batch_that_it_reaches(listing: float) -> None:
    # Made when a batch is reported, it reaches the next one or, if that has begun, the one behind it.
    job = Job(noise=0.2, listing=listing)
    engine = run(controller(10.0), lambda t: 3000.0 if t >= 10 else 300.0, 200, job)
    settled = [s for s in engine.samples if s.started > 40]
    assert max(s.latency for s in settled) < 10.0
    assert sum(s.kept for s in settled) * job.per_kept / sum(s.duration for s in settled) > 0.7


def test_a_burst_is_met_at_once_and_over_when_it_is_over() -> None:
    engine = run(controller(), lambda t: 3000.0 if 30 <= t < 40 else 300.0, 80)
    assert all(s.shed == 0 for s in engine.samples if s.started < 30)
    assert all(s.latency <= 4.0 for s in engine.samples)
    over = [s for s in engine.samples if s.started - s.gap > 40]
    assert all(s.shed == 0 for s in over[6:])


def test_a_lasting_overload_is_thinned_and_hardly_cut() -> None:
    engine = run(controller(6.0), lambda t: 2400.0 if t >= 20 else 300.0, 150, Job(noise=0.1))
    settled = [s for s in engine.samples if s.started > 60]
    assert sum(s.cut for s in settled) <= 0.25 * sum(s.shed for s in settled)
    # Rows that come late in a batch are kept about as often as those that come first.
    batches = [batch for batch in engine.batches if batch.sample.started > 60]
    rows = np.array([batch.sample.arrived for batch in batches])
    first, second = (
        np.average([float(np.diff(b.kept_until(np.array(edges)))[0]) for b in batches], weights=rows)
        for edges in ((0.0, 0.5), (0.5, 1.0))
    )
    assert 0.6 * first <= second <= first


@pytest.mark.parametrize("listing", [0.0, 0.3])
def test_batches_of_a_lasting_overload_are_as_long_as_they_may_be(listing: float) -> None:
    # One that was short has few rows behind it, and with the same share of these the next would be short too.
    job = Job(fixed=0.08, commit=0.05, per_kept=6e-5, per_arrived=1e-6, tasks=20, noise=0.05, listing=listing)
    engine = run(controller(4.0), lambda t: 38_000.0 if t >= 6 else 5_000.0, 40, job)
    settled = [s for s in engine.samples if s.started > 16]
    assert max(s.latency for s in settled) <= 4.0
    assert np.mean([s.duration for s in settled]) > 0.9 * 1.92


def test_calm_hands_keep_goes_down_once_and_up_once() -> None:
    """The clairvoyant would go to what fits and back: twice 1 − keep."""
    engine = run(controller(6.0), lambda t: 2000.0 if 20 <= t < 120 else 300.0, 160, Job(noise=0.1))
    keeps = [s.keep for s in engine.samples]
    low = np.median([k for k in keeps if k < 1])
    assert float(np.abs(np.diff(keeps)).sum()) <= 2.0 * 2 * (1 - low)


def test_the_same_samples_give_the_same_plans() -> None:
    engine = run(controller(), lambda t: 3000.0 if 20 <= t < 60 else 300.0, 90, Job(noise=0.2))
    first, second = controller(), controller()
    log = load_samples(dump_samples(engine.seen))
    assert log == engine.seen
    assert [first.observe(s) for s in engine.seen] == [second.observe(s) for s in log]
    assert first.plan.version > 3


def test_protected_rows_make_the_others_give_up_more() -> None:
    engine = run(controller(), lambda t: 2500.0 if t > 10 else 300.0, 120, Job(protected=0.2))
    settled = [s for s in engine.samples if s.started > 40]
    assert max(s.latency for s in settled) < 4.4
    share = sum(s.kept for s in settled) / sum(s.arrived for s in settled)
    assert np.mean([s.keep for s in settled]) < share - 0.1


def test_more_protected_rows_than_fit_leave_the_floor_and_say_so() -> None:
    engine = run(controller(floor=0.05), lambda t: 3000.0 if t > 10 else 300.0, 600, Job(protected=0.8))
    assert min(s.keep for s in engine.samples) == 0.05
    reasons = {plan.reason for _, plan in engine.plans}
    assert any("protected rows alone" in reason or "floor" in reason for reason in reasons)


def test_the_floor_holds_for_plans_and_the_reason_says_so() -> None:
    engine = run(controller(floor=0.3), lambda t: 300.0 if t < 10 else 20_000.0, 100)
    assert min(s.keep for s in engine.samples) == 0.3
    assert any("even the floor of 30% is more than fits" in plan.reason for _, plan in engine.plans)


def test_no_more_is_shed_than_may_be() -> None:
    engine = run(controller(max_shed=0.4), lambda t: 300.0 if t < 10 else 3000.0, 100)
    assert all(plan.budget is None for _, plan in engine.plans), "a budget cannot know its share"
    assert min(s.keep for s in engine.samples) == pytest.approx(0.6)
    assert all(s.shed <= 0.41 * s.arrived for s in engine.samples if s.arrived > 1000)
    assert any("no more than 40% may be shed" in plan.reason for _, plan in engine.plans)


def test_without_a_budget_drops_are_by_plan_alone() -> None:
    engine = run(controller(budget=False), lambda t: 300.0 if t < 10 else 2000.0, 100)
    assert all(s.cut == 0 for s in engine.samples)
    assert any(s.thinned > 0 for s in engine.samples)
    engine.shedder.configure(budget=True)  # type: ignore[attr-defined]
    assert engine.shedder.plan.budget is not None


def test_without_a_budget_a_job_that_fell_behind_gets_back_inside_the_bound() -> None:
    engine = run(controller(budget=False), lambda t: 2000.0 if t >= 20 else 300.0, 200, Job(noise=0.05))
    behind = [s for s in engine.samples if 20 < s.started < 60]
    assert max(s.latency for s in behind) > 6.0, "nothing cuts its first batches"
    settled = [s for s in engine.samples if s.started > 100]
    assert sum(s.latency > 4.4 for s in settled) <= 0.1 * len(settled)
    assert sum(s.kept for s in settled) > 0.8 * 850 * sum(s.duration for s in settled)


def test_dry_run_drops_nothing_and_tells_what_it_would() -> None:
    engine = run(controller(mode=Mode.DRY_RUN), lambda t: 500.0 if t < 15 else 3000.0, 60)
    plan = engine.shedder.plan
    assert all(s.shed == 0 for s in engine.samples)
    assert plan.drops == ()
    assert plan.budget is None
    assert plan.would_keep < 0.9
    assert plan.reason.startswith("dry run")


def test_off_plans_nothing() -> None:
    engine = run(controller(mode=Mode.OFF), lambda t: 3000.0, 60)
    assert all(s.shed == 0 for s in engine.samples)
    assert engine.shedder.plan.wanted == ()
    assert engine.shedder.plan.budget is None


def test_the_policy_none_never_thins() -> None:
    engine = run(Controller(NoShedding(), latency=4.0, limits=Limits(budget=False)), lambda t: 3000.0, 60)
    assert all(s.shed == 0 for s in engine.samples)


def test_switching_the_mode_takes_effect_at_once_and_both_ways() -> None:
    engine = run(controller(), lambda t: 3000.0 if t > 10 else 300.0, 40)
    under = engine.shedder
    assert isinstance(under, Controller)
    shedding = under.plan
    assert shedding.keep < 1
    off = under.configure(mode=Mode.DRY_RUN)
    assert off.keep == 1.0
    assert off.budget is None
    assert off.would_keep == shedding.keep
    assert under.configure(mode=Mode.ENFORCE).keep == shedding.keep
    assert under.plan.budget is not None
    assert off.version > shedding.version


def test_before_anything_is_known_there_is_a_budget_and_nothing_else() -> None:
    plan = controller(6.0).plan
    assert 0 < plan.budget <= 6.0  # type: ignore[operator]
    assert plan.grace > 0
    assert plan.keep == 1.0
    assert "still learning" in plan.reason


def test_a_query_that_only_drains_never_has_a_budget() -> None:
    under = controller()
    assert under.begin("q", draining=True).budget is None
    assert "availableNow" in under.plan.reason
    assert controller().begin("q", interval=10.0).budget is None
    assert controller().begin("q", interval=1.0).budget is not None


def test_what_was_learned_lasts() -> None:
    before = run(controller(), lambda t: 500.0, 60)
    under = before.shedder
    assert isinstance(under, Controller)
    learned = json.loads(json.dumps(under.remember()))
    after = controller()
    plan = after.recall(learned)
    assert plan.budget == pytest.approx(under.plan.budget, rel=0.3)
    assert plan.grace >= 0.2 * 4.0 * 500
    assert "still learning" not in plan.reason
    assert after.recall({"q": learned["q"]}) == plan


@pytest.mark.parametrize(
    "broken", [{"q": None}, {"q": {}}, {"q": {"cost": 3}}, {"q": "?"}, {"q": {"cost": {"normal": []}}}]
)
def test_what_cannot_be_recalled_is_left_aside(broken: dict[str, object]) -> None:
    fresh = controller()
    first = fresh.plan
    assert fresh.recall(broken) == first
    fresh.observe(Sample(at=1.0, started=0.0, arrived=10, kept=10, query="q"))


def test_another_query_in_trouble_has_the_shortest_budget_of_all_and_none_if_it_is_in_vain() -> None:
    under = controller(4.0)
    for second in range(6):
        calm = Sample(at=second + 0.3, started=second, arrived=100, kept=100, gap=1.0, waited=1.0, query="calm")
        under.observe(calm)
        under.observe(replace(calm, at=second + 1.2, tail=1.0, query="slow sink"))
    alone = controller(4.0)
    for second in range(6):
        alone.observe(
            Sample(at=second + 0.3, started=second, arrived=100, kept=100, gap=1.0, waited=1.0, query="calm")
        )
    assert under.plan.budget < alone.plan.budget  # type: ignore[operator]
    under.observe(Sample(at=20.0, started=10.0, arrived=1, kept=1, draining=True, query="drains"))
    assert under.plan.budget is None
    under.forget("drains", 21.0)
    assert under.plan.budget is not None


@pytest.mark.parametrize("latency", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bound_that_is_none(latency: float) -> None:
    with pytest.raises(InvalidArgument, match="positive time"):
        controller(latency)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        Limits(floor=share)
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        Limits(max_shed=share)
