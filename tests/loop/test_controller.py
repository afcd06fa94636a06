"""The controller in a closed loop with a model of Spark: no clock, no Spark, exact."""

from __future__ import annotations

import numpy as np
import pytest

from streamshed.errors import InvalidArgument
from streamshed.loop.arbiter import Limits
from streamshed.loop.controller import Controller
from streamshed.policies import NoShedding, RandomShedding
from streamshed.records import Mode, dump_samples, load_samples
from tests.worlds import FIXED, PER_ARRIVED, PER_KEPT, Engine, Job


def controller(latency: float = 4.0, **limits: object) -> Controller:
    return Controller(RandomShedding("s"), latency=latency, limits=Limits(**limits))  # type: ignore[arg-type]


def test_below_capacity_nothing_is_ever_shed() -> None:
    engine = Engine(controller(), lambda t: 600.0, Job(noise=0.1))
    assert all(s.shed == 0 for s in engine.run(300))


@pytest.mark.parametrize("factor", [1.5, 3.0, 10.0])
def test_an_overload_stays_inside_the_bound(factor: float) -> None:
    engine = Engine(controller(), lambda t: 950 * (factor if t > 20 else 0.5), Job(noise=0.05))
    settled = [s for s in engine.run(120) if s.started > 30]
    late = [s for s in settled if s.latency > 4.0]
    assert len(late) <= len(settled) // 50
    # And no more is given up than needed: the engine is kept busy with kept rows.
    useful = sum(s.kept for s in settled) * PER_KEPT / sum(s.duration for s in settled)
    dropping = factor * 950 * PER_ARRIVED
    assert useful > 0.97 - FIXED / 1.4 - dropping


@pytest.mark.parametrize("listing", [0.0, 0.3])
def test_a_plan_is_for_the_batch_that_it_reaches(listing: float) -> None:
    # Made when a batch is reported, it reaches the next one or, if that has begun, the one behind it.
    engine = Engine(controller(10.0), lambda t: 3000.0 if t >= 10 else 300.0, Job(noise=0.2, listing=listing))
    settled = [s for s in engine.run(200) if s.started > 40]
    assert max(s.latency for s in settled) < 10.0
    assert sum(s.kept for s in settled) * PER_KEPT / sum(s.duration for s in settled) > 0.8


def test_a_burst_is_met_at_once_and_over_when_it_is_over() -> None:
    engine = Engine(controller(), lambda t: 3000.0 if 30 <= t < 40 else 300.0)
    samples = engine.run(80)
    assert all(s.shed == 0 for s in samples if s.started < 30)
    seen = next(i for i, s in enumerate(samples) if s.started > 30)
    late = [i for i, s in enumerate(samples) if s.latency > 4.0]
    assert not late or max(late) <= seen + 2
    over = [s for s in samples if s.started - s.gap > 40]
    assert all(s.shed == 0 for s in over[10:])


def test_the_same_samples_give_the_same_plans() -> None:
    engine = Engine(controller(), lambda t: 3000.0 if 20 <= t < 60 else 300.0, Job(noise=0.2))
    engine.run(90)
    first, second = controller(), controller()
    log = load_samples(dump_samples(engine.seen))
    assert log == engine.seen
    assert [first.observe(s) for s in engine.seen] == [second.observe(s) for s in log]
    assert first.plan.version > 3


def test_protected_rows_make_the_others_give_up_more() -> None:
    engine = Engine(controller(), lambda t: 2500.0 if t > 10 else 300.0, Job(protected=0.2))
    settled = [s for s in engine.run(120) if s.started > 40]
    assert max(s.latency for s in settled) < 4.4
    share = sum(s.kept for s in settled) / sum(s.arrived for s in settled)
    assert np.mean([s.keep for s in settled]) < share - 0.1


def test_more_protected_rows_than_fit_leave_the_floor_and_say_so() -> None:
    engine = Engine(controller(floor=0.05), lambda t: 3000.0, Job(protected=0.8))
    engine.run(60)
    assert engine.controller.plan.keep == 0.05
    assert "protected rows alone" in engine.controller.plan.reason or "floor" in engine.controller.plan.reason


def test_the_floor_holds_and_the_reason_says_so() -> None:
    engine = Engine(controller(floor=0.3), lambda t: 300.0 if t < 10 else 20_000.0)
    samples = engine.run(300)
    assert min(s.keep for s in samples) == 0.3
    assert "even the floor of 30% is more than fits" in engine.controller.plan.reason


def test_dry_run_drops_nothing_and_tells_what_it_would() -> None:
    engine = Engine(controller(mode=Mode.DRY_RUN), lambda t: 1000.0 if t < 5 else 3000.0)
    samples = engine.run(60)
    plan = engine.controller.plan
    assert all(s.shed == 0 for s in samples)
    assert plan.drops == ()
    assert plan.would_keep < 0.9
    assert plan.reason.startswith("dry run")


def test_off_plans_nothing() -> None:
    engine = Engine(controller(mode=Mode.OFF), lambda t: 3000.0)
    assert all(s.shed == 0 for s in engine.run(60))
    assert engine.controller.plan.wanted == ()


def test_the_policy_none_never_sheds() -> None:
    engine = Engine(Controller(NoShedding(), latency=4.0), lambda t: 3000.0)
    assert all(s.shed == 0 for s in engine.run(60))


def test_switching_the_mode_takes_effect_at_once_and_both_ways() -> None:
    engine = Engine(controller(), lambda t: 3000.0)
    engine.run(30)
    shedding = engine.controller.plan
    assert shedding.keep < 1
    off = engine.controller.configure(mode=Mode.DRY_RUN)
    assert off.keep == 1.0
    assert off.would_keep == shedding.keep
    assert engine.controller.configure(mode=Mode.ENFORCE).keep == shedding.keep
    assert off.version > shedding.version


@pytest.mark.parametrize("latency", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bound_that_is_none(latency: float) -> None:
    with pytest.raises(InvalidArgument, match="positive time"):
        controller(latency)


@pytest.mark.parametrize("floor", [-0.1, 1.1, float("nan")])
def test_a_floor_that_is_none(floor: float) -> None:
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        Limits(floor=floor)
