"""The clairvoyant is right where the answer is known, and nobody does better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamshed.lab.bench import bench
from streamshed.lab.bench.control import figures, judged, summary
from streamshed.lab.worlds.catalog import CALM, OVERLOADED, WORLDS
from streamshed.lab.worlds.clairvoyant import Clairvoyant, Ideal, ideal, must_shed
from streamshed.lab.worlds.draw import draw
from streamshed.lab.worlds.job import Job, Pause
from streamshed.lab.worlds.rivals import BudgetAlone, KeepAll
from streamshed.lab.worlds.world import World


def test_in_a_lasting_overload_batches_of_half_a_bound_are_best() -> None:
    world = World("2x", 4.0, lambda t: 1900.0, 200.0, Job())
    kept, late = Clairvoyant(world).play()
    a_second = (1 - 0.25 / 2.0 - 3e-5 * 1900) / 1e-3
    assert kept == pytest.approx(a_second / 1900, rel=0.02)
    assert late == pytest.approx(0, abs=1e-9)


def test_a_lump_may_take_all_of_the_bound() -> None:
    world = World("a lump", 6.0, lambda t: 50_000.0 if 10 <= t < 10.2 else 0.0, 30.0, Job())
    kept, late = Clairvoyant(world).play()
    # 10,000 rows within 0.2 s; what comes to the first batch and to the one behind it ends within 6 s.
    assert kept * 10_000 == pytest.approx((6.0 - 2 * 0.25 - 0.3) / 1e-3, rel=0.08)
    assert late == pytest.approx(0, abs=1e-9)


def test_what_fits_is_kept() -> None:
    assert Clairvoyant(World("calm", 4.0, lambda t: 500.0, 60.0, Job(noise=0.1))).play() == (
        pytest.approx(1.0),
        pytest.approx(0, abs=1e-9),
    )


def test_brute_force_on_a_few_batches_finds_nothing_better() -> None:
    """All plans that keep one of a few shares in each of the first batches, and everything after them."""
    world = World("a burst", 3.0, lambda t: 3000.0 if 2 <= t < 5 else 100.0, 14.0, Job())
    best = 0.0
    shares = (0.1, 0.2, 0.3, 0.5, 1.0)

    def play(keeps: tuple[float, ...]) -> float:
        clock, last, in_time = 0.0, -0.5, 0.0
        number = 0
        while clock < 14.0:
            first, there = float(world.arrivals.until(last)), float(world.arrivals.until(clock))
            rows = there - first
            busy = rows > 400
            keep = keeps[number] if busy and number < len(keeps) else 1.0
            number += busy
            took = 0.25 + 1e-3 * rows * keep + 3e-5 * rows
            late = max(0.0, float(world.arrivals.until(clock + took - 3.0)) - first)
            in_time += keep * (rows - late) - 10 * keep * late
            last, clock = clock, clock + took
        return in_time

    for a in shares:
        for b in shares:
            for c in shares:
                for d in shares:
                    best = max(best, play((a, b, c, d)))
    kept, late = Clairvoyant(world).play()
    arrived = float(world.arrivals.until(14.0))
    assert late == pytest.approx(0, abs=1e-9)
    assert kept * arrived >= 0.97 * best


@pytest.mark.parametrize("number", range(0, 40, 4))
def test_nobody_keeps_more_rows_in_time(number: int) -> None:
    world = draw(number)
    kept, late = Clairvoyant(world).play()
    for shedder in (KeepAll(world.bound), BudgetAlone(world.bound)):
        outcome = world.play(shedder)
        # But for the scatter of durations, of which it knows the mean.
        assert outcome.kept * (1 - 11 * outcome.late()) <= 1.06 * kept * (1 - 11 * late) + 0.01
    ours = world.play()
    assert ours.kept * (1 - 11 * ours.late()) <= 1.06 * kept * (1 - 11 * late) + 0.01


def test_which_worlds_must_shed() -> None:
    for worlds, must in ((CALM, False), (OVERLOADED, True)):
        for world in worlds[::6]:
            assert must_shed(world, world.play(KeepAll(world.bound))) is must, world.name
    paused = World("paused", 6.0, lambda t: 300.0, 60.0, Job(pauses=(Pause(20.0, 9.0),)))
    best = ideal(paused)
    assert (best.must_shed, best.kept) == (False, 1.0)
    assert best.late > 0
    # The same pause at a load from which the job does not come back soon.
    assert ideal(replace(paused, rate=lambda t: 850.0)).must_shed


def test_there_are_enough_worlds_with_names_of_their_own() -> None:
    assert len(WORLDS) == len(CALM) + len(OVERLOADED) >= 40


def test_a_part_of_the_benchmark() -> None:
    """The targets of `bench control`, in every seventh world."""
    results = [judged(world, lambda text: None) for world in list(WORLDS.values())[::7]]
    told = summary(results)
    assert list(told) == ["bench", "worlds", "shed_in_vain", "kept_of_ideal", "late_beyond_ideal"]
    assert list(told["worlds"][0]) == [
        "name", "must_shed", "kept", "kept_ideal", "late", "late_ideal", "p99_over_bound",
    ]  # fmt: skip
    assert told["shed_in_vain"] == 0
    assert told["kept_of_ideal"] >= 0.93
    assert told["late_beyond_ideal"] <= 0.01
    assert all(w["kept"] >= 0.85 * w["kept_ideal"] for w in told["worlds"])


def test_its_figures_are_the_worst_and_the_mean() -> None:
    calm, busy = WORLDS["rows now and then"], WORLDS["10x for 10 s"]
    outcomes = [(Ideal(False, 1.0, 0.0), calm.play()), (Ideal(True, 0.5, 0.0), busy.play(KeepAll(busy.bound)))]
    told = figures(outcomes)
    assert told["shed_in_vain"] == 0
    assert told["kept_of_ideal"] == pytest.approx(2.0)
    assert told["late_beyond_ideal"] > 0.3


def test_it_is_a_benchmark_that_can_be_asked_for() -> None:
    assert callable(bench("control"))
