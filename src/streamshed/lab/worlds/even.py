"""Whoever thins each interval evenly to just what fits: how far the share that is kept has to go up and down.

The clairvoyant is no measure of that. To it a batch of which everything is kept and one that is all dropped are as
good as two that keep a half, and it takes turns between them.
"""

from __future__ import annotations

import numpy as np

from streamshed.lab.worlds.world import World
from streamshed.loop.overload import longest


def even_variation(world: World) -> float:
    """Total variation of the share that fits, over intervals of the length that the bound allows, from 1 on."""
    job, length = world.job, longest(world.bound, world.job.interval)
    edges = np.arange(0.0, world.seconds, length)
    rows = np.diff(world.arrivals.until(edges))
    factors = np.array([job.mean_factor(float(begin)) for begin in edges[:-1]])
    reading = job.per_arrived * job.unevenness * factors * rows
    spare = length - job.listing - (job.fixed + job.commit) * factors - reading
    fitting = spare / ((job.per_kept * job.unevenness + job.behind) * factors)
    shares = np.clip(fitting / np.maximum(rows, 1.0), 0.0, 1.0)
    return float(np.abs(np.diff(shares, prepend=1.0)).sum())
