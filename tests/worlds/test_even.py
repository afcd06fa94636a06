"""Calm hands: keep goes up and down about as far as it has to, and not with every batch."""

from __future__ import annotations

import pytest

from streamshed.lab.worlds.catalog import OVERLOADED
from streamshed.lab.worlds.even import even_variation
from streamshed.lab.worlds.job import Job
from streamshed.lab.worlds.world import World
from streamshed.loop.overload import longest

NOISY = 0.2
"""From this scatter of durations on a job is hard to tell from one that changes."""


def test_who_thins_evenly_goes_down_once_for_an_overload_that_stays() -> None:
    job = Job(fixed=0.1, commit=0.1, per_kept=1e-3, per_arrived=0.0)
    world = World("2x", 4.0, lambda t: 2000.0, 100.0, job)
    length = longest(4.0, 0.0)
    fits = (length - 0.2) / 1e-3 / (2000.0 * length)
    assert even_variation(world) == pytest.approx(1.0 - fits, abs=0.01)


def test_and_down_and_up_for_one_that_ends() -> None:
    job = Job(fixed=0.1, commit=0.1, per_kept=1e-3, per_arrived=0.0)
    world = World("once", 4.0, lambda t: 2000.0 if 20 <= t < 60 else 100.0, 100.0, job)
    steady = World("2x", 4.0, lambda t: 2000.0, 100.0, job)
    assert even_variation(world) == pytest.approx(2 * even_variation(steady), rel=0.05)


def test_keep_moves_no_further_than_who_thins_evenly_and_nowhere_without_end() -> None:
    ours = {world.name: world.play().variation for world in OVERLOADED}
    even = {world.name: even_variation(world) for world in OVERLOADED}
    assert sum(ours.values()) <= sum(even.values())
    for world in OVERLOADED:
        most = 8.0 if world.job.noise >= NOISY else 4.0
        assert ours[world.name] <= most * even[world.name], world.name
