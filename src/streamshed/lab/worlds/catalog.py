"""The worlds of `streamshed bench control`, and of the tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from streamshed.lab.worlds.job import Job, Pause
from streamshed.lab.worlds.traces import rate as trace
from streamshed.lab.worlds.world import World

CAPACITY = 950.0
"""Rows a second of the usual job, about, in batches of a few seconds."""
_JOB = Job(noise=0.1)
_NETWORK = replace(_JOB, fixed=0.6, per_arrived=1e-4, tasks=20, planning=0.3)
_CHEAP = Job(per_kept=1e-5, per_arrived=2e-6)
_COLD = (3.0, 20.0)


def steady(load: float) -> Callable[[float], float]:
    return lambda t: load * CAPACITY


def step(low: float, high: float, since: float, until: float = math.inf) -> Callable[[float], float]:
    return lambda t: CAPACITY * (high if since <= t < until else low)


def every(seconds: float, length: float, high: float, low: float) -> Callable[[float], float]:
    return lambda t: CAPACITY * (high if t % seconds >= seconds - length else low)


def pauses(seconds: float, first: float, apart: float, count: int, *, in_sink: bool = False) -> tuple[Pause, ...]:
    return tuple(Pause(first + apart * number, seconds, in_sink) for number in range(count))


CALM = (
    World("pauses of 3 s", 6.0, steady(0.4), 300.0, Job(pauses=pauses(3.0, 9.0, 20.0, 14)), about="load 0.4"),
    World("one pause of 6 s", 6.0, steady(0.3), 100.0, Job(pauses=(Pause(30.0, 6.0),)), about="load 0.3"),
    World(
        "a sink that sleeps 6 s once", 6.0, lambda t: 200.0, 60.0,
        replace(_CHEAP, pauses=(Pause(30.0, 6.0, in_sink=True),)), about="rows are nearly free",
    ),
    World(
        "a sink that sleeps 3 s now and then", 6.0, steady(0.5), 150.0,
        replace(_JOB, tells_backlog=True, pauses=pauses(3.0, 20.0, 30.0, 4, in_sink=True)),
        about="load 0.5, Kafka",
    ),
    World(
        "pauses with 16 tasks on 2 cores", 6.0, steady(0.4), 150.0,
        replace(_JOB, tasks=16, pauses=pauses(3.0, 20.0, 25.0, 5)), about="load 0.4",
    ),
    World(
        "pauses with an uneven partition", 6.0, steady(0.35), 150.0,
        replace(_JOB, tasks=4, skew=0.2, pauses=pauses(2.0, 20.0, 25.0, 5)), about="load 0.35",
    ),
    World(
        "slower for 10 s", 6.0, steady(0.4), 100.0,
        replace(_JOB, slower=lambda t: 2.0 if 40 <= t < 50 else 1.0), about="load 0.4, then 0.8 for a while",
    ),
    World("rows now and then", 4.0, lambda t: 500.0 if t % 30 < 1 else 0.0, 300.0, about="500 every 30 s"),
    World(
        "lumps of two thirds of a bound", 6.0, lambda t: 19_000.0 if t % 30 >= 29.8 else 0.0, 300.0,
        about="3,800 rows every 30 s",
    ),
    World(
        "lumps into a calm stream", 8.0, lambda t: CAPACITY * (8.2 if t % 30 >= 29.5 else 0.2), 200.0,
        replace(_JOB, noise=0.05), about="half a bound of work every 30 s, load 0.2 beside it",
    ),
    World(
        "nothing for a minute", 4.0, lambda t: 0.0 if 40 <= t < 100 else 0.5 * CAPACITY, 140.0,
        _JOB, about="load 0.5",
    ),
    World("steady at 0.8", 6.0, steady(0.8), 150.0, _JOB, about="near its limit"),
    World(
        "up to 0.75", 6.0, lambda t: CAPACITY * (0.2 + 0.55 * min(1.0, t / 100.0)), 150.0, _JOB,
        about="slowly rising",
    ),
    World("twice the rate for a second", 8.0, step(0.3, 2.0, 40.0, 41.0), 100.0, _JOB, about="a burst that fits"),
    World(
        "trigger of 10 s, bound of 4 s", 4.0, steady(0.04), 600.0, replace(_JOB, interval=10.0),
        about="dropping cannot help",
    ),
    World("trigger of 2 s", 6.0, steady(0.6), 150.0, replace(_JOB, interval=2.0), about="load 0.6"),
    World(
        "slow sink of 2.3 s, bound of 4 s", 4.0, lambda t: 400.0, 300.0,
        replace(_CHEAP, fixed=0.2, commit=2.3, noise=0.1), about="dropping cannot help",
    ),
    World(
        "fixed cost of 2.5 s before the rows, bound of 4 s", 4.0, lambda t: 20.0, 300.0,
        replace(_CHEAP, fixed=2.4, noise=0.1), about="dropping cannot help",
    ),
    World(
        "availableNow over 20 files", 4.0, lambda t: 600.0 if t < 0.02 else 0.0, 1e4,
        Job(most=3000, drains=True), waiting=100.0, about="what only drains has no bound to keep",
    ),
    World(
        "cold start", 6.0, steady(0.3), 100.0,
        replace(_JOB, cold=_COLD), about="load 0.3, three times slower at first",
    ),
    World(
        "slow commit", 6.0, steady(0.4), 100.0,
        replace(_JOB, commit=1.0), about="load 0.4, a second behind the rows",
    ),
    World(
        "work behind a shuffle", 6.0, steady(0.5), 100.0, replace(_JOB, per_kept=5e-4, behind=5e-4),
        about="load 0.5",
    ),
    World(
        "maxOffsetsPerTrigger", 6.0, steady(0.6), 120.0, replace(_JOB, most=3000, tells_backlog=True),
        about="load 0.6, Kafka",
    ),
    World("edits, calm", 6.0, trace("edits", 0.25 * CAPACITY), 230.0, _JOB, about="a trace at 0.25 on average"),
)  # fmt: skip
"""None need shed."""

OVERLOADED = (
    World("3x after a calm start", 10.0, step(0.3, 3.0, 20.0), 200.0, _JOB),
    World("2x after a calm start", 4.0, step(0.3, 2.0, 20.0), 150.0, _JOB),
    World("3x from the first batch on", 6.0, steady(3.0), 200.0, replace(_JOB, cold=_COLD)),
    World(
        "1.33x from the first batch on", 4.4, steady(1.33), 120.0,
        replace(_JOB, cold=_COLD, noise=0.2, tells_backlog=True),
    ),
    World("4x from the first batch on", 6.0, steady(4.0), 150.0, replace(_JOB, cold=_COLD, tells_backlog=True)),
    World("10x for 10 s", 8.0, step(0.3, 10.0, 30.0, 40.0), 100.0, _JOB),
    World("10x for 10 s, Kafka", 8.0, step(0.3, 10.0, 30.0, 40.0), 100.0, replace(_JOB, tells_backlog=True)),
    World("3x for 30 s", 6.0, step(0.3, 3.0, 30.0, 60.0), 120.0, _JOB),
    World("restart with ten minutes of backlog", 6.0, steady(0.5), 1200.0, waiting=600.0),
    World(
        "the same, expired rows dropped", 6.0, steady(0.5), 1200.0, Job(expires=True), waiting=600.0,
    ),
    World("1.2x", 6.0, step(0.3, 1.2, 20.0), 150.0, _JOB),
    World("6x", 4.0, step(0.3, 6.0, 20.0), 150.0, _JOB),
    World("2x, bound of 2 s", 2.0, step(0.3, 2.0, 20.0), 80.0, replace(_JOB, fixed=0.08, commit=0.05)),
    World("3x, slow commit", 6.0, step(0.3, 3.0, 20.0), 150.0, replace(_JOB, commit=1.0)),
    World(
        "3x, a fifth of the work behind a shuffle", 8.0, step(0.3, 3.0, 20.0), 150.0,
        replace(_JOB, per_kept=8e-4, behind=2e-4),
    ),
    World(
        "3x, half of the work behind a shuffle, known from before", 8.0, step(0.3, 3.0, 20.0), 150.0,
        replace(_JOB, per_kept=5e-4, behind=5e-4), learned=step(0.3, 1.5, 5.0),
    ),
    World(
        "2x, 16 tasks on 2 cores", 6.0, step(0.3, 2.0, 20.0),
        150.0, replace(_JOB, tasks=16, tells_backlog=True),
    ),
    World("2x, an uneven partition", 6.0, step(0.3, 2.0, 20.0), 150.0, replace(_JOB, tasks=4, skew=0.2)),
    World("2.5x, a tenth protected", 6.0, step(0.3, 2.5, 20.0), 150.0, replace(_JOB, protected=0.1)),
    World(
        "2x, and rows cost twice as much for a while", 6.0, step(0.3, 2.0, 20.0), 180.0,
        replace(_JOB, slower=lambda t: 2.0 if 80 <= t < 120 else 1.0),
    ),
    World("3x for 10 s in every 40 s", 6.0, every(40.0, 10.0, 3.0, 0.3), 240.0, replace(_JOB, tells_backlog=True)),
    World(
        "lumps of a bound and a half", 6.0, lambda t: 43_000.0 if t % 20 >= 19.8 else 0.0, 240.0,
        replace(_JOB, noise=0.05),
    ),
    World("up and down", 6.0, lambda t: CAPACITY * (1.35 - 1.15 * math.cos(2 * math.pi * t / 80.0)), 240.0, _JOB),
    World("up to 3x", 6.0, lambda t: CAPACITY * (0.3 + 2.7 * min(1.0, t / 100.0)), 180.0, _JOB),
    World("2x, trigger of 2 s", 6.0, step(0.3, 2.0, 20.0), 150.0, replace(_JOB, interval=2.0)),
    World(
        "1.5x, maxOffsetsPerTrigger", 8.0, step(0.3, 1.5, 20.0), 150.0,
        replace(_JOB, most=4000, tells_backlog=True),
    ),
    World("2x, noisy", 6.0, step(0.3, 2.0, 20.0), 150.0, replace(_JOB, noise=0.25)),
    World(
        "2x, pauses of a second", 6.0, step(0.3, 2.0, 20.0), 150.0,
        replace(_JOB, pauses=pauses(1.0, 30.0, 15.0, 8), tells_backlog=True),
    ),
    World("2x, a long list of files", 6.0, step(0.3, 2.0, 20.0), 150.0, replace(_JOB, listing=0.3)),
    World("2x through a network", 6.0, step(0.3, 2.0, 20.0), 150.0, _NETWORK),
    World(
        "3x through a network, for 20 s", 6.0, step(0.3, 3.0, 20.0, 40.0), 60.0,
        replace(_NETWORK, tells_backlog=True),
    ),
    World("requests at 1.5", 6.0, trace("requests", 1.5 * CAPACITY), 230.0, _JOB),
    World("edits at 0.8", 6.0, trace("edits", 0.8 * CAPACITY), 230.0, _JOB),
    World("tweets at 0.7", 6.0, trace("tweets", 0.7 * CAPACITY), 230.0, replace(_JOB, tells_backlog=True)),
)  # fmt: skip
"""All must."""

WORLDS = {world.name: world for world in (*CALM, *OVERLOADED)}
