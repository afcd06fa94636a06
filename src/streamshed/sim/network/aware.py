"""Boxes that shed by themselves, by what their rows cost (LAS), inside the event loop.

The rule and what is learned are `las.admit` and `las.learn`, as in `sim.operator` and on Spark. A network adds:

- A row's wait counts from its arrival at its source, as on Spark. It cannot begin before it has come to the box.
- Boxes share one server. What a row costs its box is the time from the moment it was first in line until it is
  done, with other boxes' turns in between: that is what those behind it wait for. (On Spark costs are taken from
  start to start, for the same reason.)
- Rows take as long as the catalog says, or exponentially so. No cost depends on a key here, so keys differ only as
  far as chance and other boxes have it; the shedder does not know that, and learns it.
- The paper sheds nothing before the first stable matrices, and assumes that it need not. As on Spark, what was
  learned is used until it is found stable for the first time; here from the end of the first window on.
- "over n rows" is read as on Spark: a mean row leaves for each that comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamshed.jit import inlined
from streamshed.las.admit import CORRECTION, FREE, correct, empty_queue, enter, fits
from streamshed.las.check import NANOSECONDS, parse
from streamshed.las.learn import STABILIZING, START, closes_window
from streamshed.las.settings import RESYNC, LasSettings
from streamshed.network.graph import Udf
from streamshed.sketch.cost import estimate_one, mean_of, time_one
from streamshed.sketch.hashing import digest, digests

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SEED = 20160504
"""Of the hash functions, as on Spark."""
NOP, SEND, RUN = range(3)
KIND, THRESHOLD, SPAN, FLOOR, CAUTION, TOLERANCE = range(6)
OPERATOR, SHEDDER, WINDOW, LEFT_IN_WINDOW, SINCE_ASKED, SERVED, STABLE = range(7)
MEAN, FIRST_SINCE, WAITED, WAITED_WORST, COMPLETED, COMPLETED_WORST = range(6)


class Aware(NamedTuple):
    """Load-aware boxes in numbers, n of them; what they know changes in place."""

    of_box: NDArray[np.int64]
    """[box]: which load-aware box it is, −1 for others."""
    rule: Floats
    """[n, KIND …]"""
    a: Ints
    """[n, row of the sketch]"""
    b: Ints
    size: Ints
    """[n, (rows, columns)] of the sketch."""
    queue: Floats
    """[n, FREE …]: `las.admit`'s picture, in seconds."""
    timed: Ints
    """[n, (F, W), row, column], being learned; nanoseconds."""
    known: Ints
    """The same, as last found stable."""
    snapshot: Floats
    """[n, row, column]"""
    machine: Ints
    """[n, OPERATOR …]"""
    seconds: Floats
    """[n, MEAN …]: the mean cost known (nanoseconds); since when the first row in line is; sums and worsts."""


@dataclass(frozen=True, slots=True)
class BoxLatency:
    """What rows went through at a load-aware box, in seconds from their arrival at the source."""

    served: int
    queue_mean: float
    """Until their turn."""
    queue_worst: float
    completion_mean: float
    """Until they were done."""
    completion_worst: float


def aware_boxes(order: Sequence[Any]) -> list[Udf]:
    """The load-aware ones among the boxes."""
    return [box for box in order if isinstance(box, Udf) and box.load_aware is not None]


def aware_of(place: Mapping[str, int], boxes: Sequence[Udf]) -> Aware | None:
    """What a network's load-aware boxes know before the first row; None if it has none."""
    if not boxes:
        return None
    count = len(boxes)
    asked = [box.load_aware for box in boxes if box.load_aware is not None]
    settings = [
        LasSettings(
            epsilon=each.epsilon,
            delta=each.delta,
            window=each.window,
            tolerance=each.tolerance,
            resync=RESYNC,
            floor=each.floor,
        )
        for each in asked
    ]
    rows = max(each.size.rows for each in settings)
    columns = max(each.size.columns for each in settings)
    of_box = np.full(len(place), -1, np.int64)
    a, b = np.ones((count, rows), np.int64), np.zeros((count, rows), np.int64)
    rule, machine = np.zeros((count, 6)), np.zeros((count, 7), np.int64)
    for which, (box, las, spec) in enumerate(zip(boxes, settings, asked, strict=True)):
        check, hashes = parse(spec.latency), las.hashes(SEED)
        of_box[place[box.name]] = which
        a[which, : hashes.rows], b[which, : hashes.rows] = hashes.a, hashes.b
        threshold = check.threshold / NANOSECONDS
        rule[which] = check.kind, threshold, check.span, las.floor, 1 + las.epsilon, las.tolerance
        machine[which, [WINDOW, LEFT_IN_WINDOW]] = las.window
    return Aware(
        of_box=of_box,
        rule=rule,
        a=a,
        b=b,
        size=np.array([(each.size.rows, each.size.columns) for each in settings], np.int64),
        queue=np.array([empty_queue(0.0) for _ in boxes]),
        timed=np.zeros((count, 2, rows, columns), np.int64),
        known=np.zeros((count, 2, rows, columns), np.int64),
        snapshot=np.zeros((count, rows, columns)),
        machine=machine,
        seconds=np.zeros((count, 6)),
    )


def key_digests(columns: Sequence[NDArray[Any]]) -> Ints:
    """The digest of each row's key; each different key is hashed once."""
    if len(columns) == 1 and columns[0].dtype == np.int64:
        return digests(columns[0])
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, code = np.unique(column, return_inverse=True)
        _, codes = np.unique(codes * (int(code.max(initial=0)) + 1) + code, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    keys = zip(*(column[first].tolist() for column in columns), strict=True)
    return np.array([digest(*key) for key in keys], np.int64)[codes]


def latencies(aware: Aware | None, boxes: Sequence[Udf]) -> dict[str, BoxLatency]:
    told: dict[str, BoxLatency] = {}
    if aware is None:
        return told
    for which, box in enumerate(boxes):
        served, sums = int(aware.machine[which, SERVED]), aware.seconds[which]
        told[box.name] = BoxLatency(
            served,
            float(sums[WAITED] / max(served, 1)),
            float(sums[WAITED_WORST]),
            float(sums[COMPLETED] / max(served, 1)),
            float(sums[COMPLETED_WORST]),
        )
    return told


@inlined
def lets_in(aware: Aware, which: int, key: int, arrived: float, now: float) -> tuple[bool, float]:
    """Whether a row that comes to the box now may join its queue, and the question that it carries (NaN: none)."""
    admitted, ask = True, np.nan
    machine, queue = aware.machine[which], aware.queue[which]
    if machine[SHEDDER] != NOP:
        rule, rows, columns = aware.rule[which], aware.size[which, 0], aware.size[which, 1]
        queue[FREE] = max(queue[FREE], now)
        admitted = fits(rule[KIND], rule[THRESHOLD], rule[SPAN], rule[FLOOR], queue, arrived)
        if admitted:
            often, took = aware.known[which, 0, :rows, :columns], aware.known[which, 1, :rows, :columns]
            mean = aware.seconds[which, MEAN]
            nanoseconds = estimate_one(often, took, aware.a[which], aware.b[which], key, mean)
            enter(queue, arrived, nanoseconds * rule[CAUTION] / NANOSECONDS)
            machine[SINCE_ASKED] += 1
            if machine[SHEDDER] == SEND or machine[SINCE_ASKED] >= RESYNC:
                machine[SHEDDER], machine[SINCE_ASKED] = RUN, 0
                ask = queue[FREE] - queue[CORRECTION]
    return admitted, ask


@inlined
def learns(aware: Aware, which: int, key: int, arrived: float, now: float, ask: float) -> None:
    """A row of the box is done now."""
    machine, seconds = aware.machine[which], aware.seconds[which]
    rows, columns = aware.size[which, 0], aware.size[which, 1]
    often, took = aware.timed[which, 0, :rows, :columns], aware.timed[which, 1, :rows, :columns]
    if not np.isnan(ask):
        correct(aware.queue[which], now - ask)
    machine[LEFT_IN_WINDOW] -= 1
    if machine[LEFT_IN_WINDOW] == 0:
        machine[LEFT_IN_WINDOW] = machine[WINDOW]
        snapshot = aware.snapshot[which, :rows, :columns]
        stable = closes_window(often, took, snapshot, machine[OPERATOR], aware.rule[which, TOLERANCE])
        machine[OPERATOR] = START if stable else STABILIZING
        if stable or machine[STABLE] == 0:
            aware.known[which] = aware.timed[which]
            seconds[MEAN] = mean_of(often, took)
            machine[SHEDDER] = SEND
        if stable:
            machine[STABLE] = 1
            aware.timed[which] = 0
    nanoseconds = int((now - seconds[FIRST_SINCE]) * NANOSECONDS + 0.5)
    time_one(often, took, aware.a[which], aware.b[which], key, nanoseconds)
    seconds[FIRST_SINCE] = now
    completion = now - arrived
    seconds[COMPLETED] += completion
    seconds[COMPLETED_WORST] = max(seconds[COMPLETED_WORST], completion)


@inlined
def begins(aware: Aware, which: int, wait: float) -> None:
    """A row of the box has its turn."""
    seconds = aware.seconds[which]
    aware.machine[which, SERVED] += 1
    seconds[WAITED] += wait
    seconds[WAITED_WORST] = max(seconds[WAITED_WORST], wait)
