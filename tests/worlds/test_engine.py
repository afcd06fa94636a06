"""The model of Spark's batches: rows are counted, time passes, and a drop with a budget does what it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.lab.worlds.arrivals import Arrivals
from streamshed.lab.worlds.draw import draw
from streamshed.lab.worlds.engine import Engine
from streamshed.lab.worlds.job import Job, Order, Pause
from streamshed.lab.worlds.rivals import BudgetAlone, Capped, Gradient, KeepAll, PidRate
from streamshed.lab.worlds.traces import counts, rate
from streamshed.records import Plan, Sample


def test_a_batch_costs_what_the_job_says() -> None:
    job = Job(fixed=0.2, commit=0.1, per_kept=1e-3, per_arrived=1e-4, behind=1e-3)
    ran = job.run(0.0, 1000, Order(keep=0.5))
    assert ran.took == pytest.approx(0.2 + 0.5 + 0.1 + 0.1 + 0.5)
    assert ran.tail == pytest.approx(0.6)
    assert (ran.kept, ran.cut) == (500, 0)


@pytest.mark.parametrize("tasks", [2, 8])
def test_a_budget_ends_a_batch_in_time_whatever_came(tasks: int) -> None:
    job = Job(tasks=tasks)
    for rows in (5_000, 50_000):
        ran = job.run(0.0, rows, Order(budget=2.0))
        reading = job.per_arrived * rows
        assert 2.0 <= ran.took <= 2.0 + job.commit + reading + 0.01
        assert ran.kept == pytest.approx((2.0 - job.fixed) / (job.per_kept + job.per_arrived), rel=0.02)
        assert ran.kept + ran.cut == pytest.approx(rows)


def test_grace_passes_whatever_the_clock_says() -> None:
    job = Job(pauses=(Pause(0.1, 3.0),))
    cut, spared = (job.run(0.0, 400, Order(budget=2.0, grace=grace)) for grace in (0, 400))
    assert cut.kept == 0
    assert spared.kept == 400
    assert job.run(0.0, 4000, Order(budget=2.0, grace=400)).kept == 400


def test_more_tasks_than_cores_favour_the_first_ones() -> None:
    job = Job(tasks=8, cores=2)
    in_time = [share for _, _, share, _ in job.run(0.0, 2000, Order(budget=1.0)).passing]
    assert in_time[0] == 1.0
    assert in_time[-1] == 0.0


def test_a_pause_stops_the_clock_of_rows_and_not_that_of_the_budget() -> None:
    job = Job(pauses=(Pause(1.0, 1.0),))
    assert job.run(0.0, 500, Order()).took == pytest.approx(Job().run(0.0, 500, Order()).took, abs=1e-9)
    assert job.run(0.0, 3000, Order()).took == pytest.approx(Job().run(0.0, 3000, Order()).took + 1.0)
    assert job.run(0.0, 9000, Order(budget=3.0)).kept == pytest.approx(
        Job().run(0.0, 9000, Order(budget=2.0)).kept
    )


def test_a_sink_that_sleeps_is_the_tail() -> None:
    job = Job(pauses=(Pause(0.3, 2.0, in_sink=True),))
    ran = job.run(0.0, 500, Order(budget=1.0))
    assert (ran.tail, ran.cut) == (pytest.approx(job.commit + 2.0), 0)


@given(st.integers(0, 60))
def test_every_row_of_a_random_world_is_accounted_for(number: int) -> None:
    world = draw(number)
    engine = Engine(BudgetAlone(world.bound), world.job, world.arrivals)
    engine.run(20.0)
    for batch in engine.batches:
        sample = batch.sample
        assert sample.arrived == sample.kept + sample.thinned + sample.cut + sample.expired
        assert min(sample.kept, sample.thinned, sample.cut) >= 0
        latencies, rows = batch.latencies(engine.arrivals)
        assert rows.sum() == pytest.approx(batch.ran.kept, rel=1e-6, abs=1e-6)
        assert (latencies > 0).all()
    starts = [sample.started for sample in engine.samples]
    assert starts == sorted(starts)


def test_a_report_comes_late_and_its_plan_is_for_the_batch_behind() -> None:
    class Switches(KeepAll):
        def observe(self, sample: Sample) -> Plan:
            self.plan = Plan(version=sample.batch + 1)
            return self.plan

    engine = Engine(Switches(60.0), Job(), Arrivals(lambda t: 500.0, 20.0, before=0.5))
    engine.run(20.0)
    assert all(s.version in (s.batch - 1, s.batch) for s in engine.samples[2:])
    assert any(s.version == s.batch - 1 for s in engine.samples)


def test_spark_pid_brings_the_rate_to_what_is_processed() -> None:
    """With its defaults and no delay the next rate is the rate just processed (Kp = 1)."""
    pid = PidRate(4.0)
    pid.observe(Sample(at=1.0, started=0.0, arrived=1000, kept=1000))
    plan = pid.observe(Sample(at=4.0, started=2.0, arrived=5000, kept=1000))
    assert isinstance(plan, Capped)
    assert plan.most == pytest.approx(500 * 2.0)
    late = pid.observe(Sample(at=8.0, started=4.0, arrived=5000, kept=2000))
    assert isinstance(late, Capped)
    assert late.most == pytest.approx((500 - 0.2 * 2.0 * 500 / 2.0) * 2.0)


def test_the_gradient_limit_grows_while_latency_is_steady_and_falls_when_it_rises() -> None:
    gradient = Gradient(4.0)
    limits = []
    for took in [0.5] * 50 + [5.0] * 5:
        plan = gradient.observe(Sample(at=took, started=0.0, arrived=10**6, kept=100, waited=took))
        assert isinstance(plan, Capped)
        limits.append(plan.most)
    assert limits[:50] == sorted(limits[:50])  # type: ignore[type-var]
    assert limits[-1] < limits[49]  # type: ignore[operator]


@pytest.mark.parametrize("name", ["requests", "edits", "tweets"])
def test_traces_are_what_they_are(name: str) -> None:
    assert len(counts(name)) == 240
    assert np.mean(counts(name)) == pytest.approx(1.0)
    assert np.mean([rate(name, 500.0)(t + 0.5) for t in range(240)]) == pytest.approx(500.0)


def test_a_batch_that_is_planned_late_finds_the_budget_of_the_report_before_it() -> None:
    class Told:
        """Plans by how many batches were reported."""

        latency = 4.0
        plan = Plan(budget=3.0)

        def __init__(self) -> None:
            self.seen: list[Sample] = []

        def observe(self, sample: Sample) -> Plan:
            if sample.finished:
                self.seen.append(sample)
                self.plan = Plan(budget=3.0 - len(self.seen), version=len(self.seen))
            return self.plan

    cut = {}
    for planning in (0.0, 0.5):
        shedder = Told()
        engine = Engine(shedder, Job(planning=planning), Arrivals(lambda t: 3000.0, 5.0, before=0.5))
        second = engine.run(5.0)[1]
        cut[planning] = second.cut
        assert shedder.seen[0].next_started
        assert shedder.seen[0].next_planned == (planning == 0.0)
        assert second.version == 0, "drops go by when it began"
    assert cut[0.0] < cut[0.5]
