"""What a latency target asks of one row: may it join the queue, given how long it would wait there?

Rivetti et al., Load-Aware Shedding, V-A and Listing III.2 (CHECK). Here a target is numbers; `admit` holds rows
against it.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument

NANOSECONDS = 1e9
AVERAGE, ABSOLUTE = 0.0, 1.0
"""Kinds of targets. They are numbers, as in the orders that Spark's workers read."""


class Check(NamedTuple):
    """A target for queuing latencies, as the compiled rule takes it."""

    kind: float
    threshold: float
    """τ, in the unit of the clock."""
    span: int = 0
    """Rows let in over which an average is taken; 0 means all."""


def average(threshold: float, over: int = 0) -> Check:
    """AVG(τ): the mean wait of all rows let in so far stays at most τ: (Q + q̂)/(ℓ + 1) ≤ τ.

    Over a span, the mean of the last so many rows, this one among them: calm times long ago earn no credit.

    >>> average(6.4e6, over=4000)
    Check(kind=0.0, threshold=6400000.0, span=4000)
    """
    if isinstance(over, bool) or not isinstance(over, int) or over < 0:
        raise InvalidArgument("a sliding average needs a whole number of rows, at least 1", got=over)
    return Check(AVERAGE, _positive(threshold), over)


def absolute(threshold: float) -> Check:
    """ABS(τ): no row waits longer than τ."""
    return Check(ABSOLUTE, _positive(threshold))


_FORM = re.compile(r"\s*(avg|abs|max)\s+(.+?)(?:\s+over\s+(\d+)\s+rows)?\s*", re.IGNORECASE)


def parse(target: str) -> Check:
    """A check from words, in nanoseconds: "avg 2 seconds", "max 500 ms", "avg 2 seconds over 4000 rows".

    `abs`, the paper's word, is the same as `max`.

    >>> parse("avg 6.4 ms").threshold
    6400000.0
    >>> parse("avg 2 seconds over 4000 rows").span
    4000
    """
    words = _FORM.fullmatch(target) if isinstance(target, str) else None
    averaged = words is not None and words[1].lower() == "avg"
    if words is None or (words[3] and (not averaged or int(words[3]) == 0)):
        raise InvalidArgument(
            "a latency target says how waits are judged, and the limit",
            got=repr(target),
            hint='like "avg 2 seconds", "max 500 ms" or "avg 2 seconds over 4000 rows"',
        )
    threshold = seconds(words[2], "a latency target") * NANOSECONDS
    return average(threshold, int(words[3] or 0)) if averaged else absolute(threshold)


def _positive(threshold: float) -> float:
    """A threshold that can be met: above 0 and finite."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < math.inf:
        raise InvalidArgument("a latency threshold must be above 0 and finite", got=threshold)
    return float(threshold)
