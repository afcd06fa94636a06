"""Worlds drawn at random: the same for the same number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from streamshed.lab.worlds.job import Job, Pause
from streamshed.lab.worlds.world import World

Rate = Callable[[float], float]


def draw(number: int) -> World:
    """A world of its own for every number."""
    rng = np.random.default_rng([12, number])
    bound = float(rng.choice([2.0, 3.0, 4.0, 6.0, 8.0, 10.0]))
    seconds = float(max(60.0, 20.0 * bound))
    per_kept = float(10 ** rng.uniform(-4.5, -2.7))
    overhead = float(rng.uniform(0.02, 0.1)) * bound
    split = float(rng.uniform(0.2, 0.8))
    tasks = int(rng.choice([2, 2, 4, 8, 16]))
    job = Job(
        fixed=overhead * split,
        commit=overhead * (1 - split),
        per_kept=per_kept,
        per_arrived=per_kept * float(rng.uniform(0.01, 0.06)),
        behind=per_kept * float(rng.choice([0.0, 0.0, 0.3, 1.0])),
        tasks=tasks,
        skew=float(rng.choice([0.0, 0.0, 0.1])),
        noise=float(rng.choice([0.0, 0.05, 0.1, 0.1])),
        cold=(float(rng.choice([1.0, 1.0, 2.0, 3.0])), float(rng.uniform(5, 20))),
        tells_tail=bool(rng.random() < 0.8),
        tells_backlog=bool(rng.random() < 0.5),
        protected=float(rng.choice([0.0, 0.0, 0.0, 0.1])),
        interval=float(rng.choice([0.0, 0.0, 0.0, 0.1, 0.3])) * bound,
        listing=float(rng.choice([0.0, 0.0, 0.0, 0.05])) * bound,
    )
    pauses = int(rng.choice([0, 0, 0, 1, 1, 4]))
    when = np.sort(rng.uniform(10.0, seconds - 10.0, pauses))
    rate = _rate(rng, job.capacity, seconds, bound)
    most = max(rate(float(t)) for t in np.arange(0.0, seconds, 0.5)) / job.capacity
    # A pause that a calm job recovers from is another thing than one in the middle of an overload.
    steady = most < 0.8 and min(rate(float(t)) for t in np.arange(0.0, seconds, 0.5)) > 0.5 * most * job.capacity
    longest = (1.2 if steady else 0.3) * bound
    spans = tuple(
        Pause(float(at), float(rng.uniform(0.2, 1.0)) * longest, bool(rng.random() < 0.5)) for at in when
    )
    job = replace(job, pauses=spans, slower=_slower(rng, seconds))
    # Protected rows that are too many alone would be a world of their own.
    job = replace(job, protected=min(job.protected, 0.4 / max(1.0, most)))
    return World(f"random {number}", bound, rate, seconds, job)


def _slower(rng: np.random.Generator, seconds: float) -> Rate:
    if rng.random() < 0.8:
        return lambda t: 1.0
    since, length, times = rng.uniform(0.2, 0.6) * seconds, rng.uniform(5.0, 40.0), float(rng.uniform(1.3, 2.5))
    return lambda t: times if since <= t < since + length else 1.0


def _rate(rng: np.random.Generator, capacity: float, seconds: float, bound: float) -> Rate:
    base = float(rng.uniform(0.1, 0.7)) * capacity
    kind = rng.choice(["steady", "steady", "burst", "bursts", "step", "ramp", "lumps", "wave", "walk"])
    since = float(rng.uniform(0.0, 0.5)) * seconds
    high = float(rng.choice([0.9, 1.2, 1.5, 2.0, 2.0, 3.0, 3.0, 5.0])) * capacity
    length = float(rng.uniform(0.3, 4.0)) * bound
    if kind == "steady":
        return lambda t: base
    if kind == "burst":
        return lambda t: high if since <= t < since + length else base
    if kind == "bursts":
        period = length * float(rng.uniform(2.0, 6.0))
        return lambda t: high if t >= since and (t - since) % period < length else base
    if kind == "step":
        return lambda t: high if t >= since else base
    if kind == "ramp":
        return lambda t: base + (high - base) * min(1.0, max(0.0, (t - since) / (0.4 * seconds)))
    if kind == "lumps":
        every = float(rng.uniform(1.0, 5.0)) * bound
        rows = float(rng.uniform(0.2, 1.5)) * bound * capacity
        quiet = base * float(rng.choice([0.0, 0.3]))
        return lambda t: quiet + (rows / 0.2 if (t + 0.5 * every) % every < 0.2 else 0.0)
    if kind == "wave":
        period = float(rng.uniform(4.0, 15.0)) * bound
        return lambda t: base + (high - base) * (0.5 - 0.5 * math.cos(2 * math.pi * t / period))
    steps = np.exp(np.cumsum(rng.normal(0.0, 0.35, int(seconds) + 2)))
    levels = np.clip(base * steps / steps.mean() * 1.5, 0.0, high)
    return lambda t: float(levels[int(t)])
