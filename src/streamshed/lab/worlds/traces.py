"""Real arrivals, shipped in small: `traces.csv` says where they are from."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from importlib.resources import files


@cache
def counts(name: str) -> tuple[float, ...]:
    """A trace, as shares of its mean."""
    text = files("streamshed.lab.worlds").joinpath("traces.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    found = [float(row[name]) for row in rows]
    return tuple(count * len(found) / sum(found) for count in found)


def rate(name: str, mean: float, step: float = 1.0) -> Callable[[float], float]:
    """Rows a second if the trace is played with one of its counts in every `step` seconds, at a mean rate."""
    shares = counts(name)
    return lambda t: mean * shares[int(t / step) % len(shares)]
