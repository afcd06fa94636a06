"""One operator in virtual time, compiled: rows of known cost arrive at known moments, queue, or are dropped.

What is decided and learned is `las.admit` and `las.learn`, the same code that Spark's workers run. Here are the
queue itself, the messages between operator and shedder, and the baselines of the paper. The plain model of all of
it, which this equals to the last bit, is in the tests.

    Shedder    NOP ─(F, W)─► SEND ─(next row let in: ask)─► RUN ─(F, W)─► SEND                  LAS Figure 3

Times are nanoseconds on one clock. Where the paper has Ĉ and C, sums of execution times, this has moments: when
the shedder thinks a row will be done, and when it was. While there is work, the two differ by a constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamshed.jit import compiled
from streamshed.las.admit import (
    CORRECTION,
    FORESEEN,
    FREE,
    NEXT,
    OWED,
    ROWS,
    WAITED,
    correct,
    empty_queue,
    enter,
    fits,
)
from streamshed.las.check import Check
from streamshed.las.learn import STABILIZING, START, closes_window
from streamshed.las.settings import LasSettings
from streamshed.sim.operator.streams import DROPPED, Floats, Ints, TimedRows
from streamshed.sketch.cost import estimate_one, mean_of, time_one
from streamshed.sketch.hashing import CarterWegman

NOP, SEND, RUN = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The outcome of a run of LAS."""

    waits: Floats
    """Queuing latencies; `Stream.completions` makes completion latencies of them."""
    warm: bool
    """Whether the warm-up was long enough for matrices and a synchronisation."""


def run_las(
    stream: TimedRows, check: Check, hashes: CarterWegman, settings: LasSettings, warm_up: TimedRows | None = None
) -> Learned:
    """LAS on a stream, after a warm-up that is not measured, if there is one."""
    first = warm_up or TimedRows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    waits = np.empty(len(stream))
    warm = _las(
        check,
        empty_queue(span=check.span),
        (hashes.a, hashes.b, hashes.columns),
        (settings.epsilon, settings.resync or 0, settings.window, settings.tolerance, settings.floor),
        (first.keys, first.costs, first.arrivals),
        (stream.keys, stream.costs, stream.arrivals),
        waits,
    )
    return Learned(waits, bool(warm))


def run_known(stream: TimedRows, check: Check, believed: Floats, floor: float = 0.0) -> Floats:
    """A shedder that believes to know each row's cost: all equal for Straw-Man, the truth for Full Knowledge."""
    waits = np.empty(len(stream))
    _known(check, empty_queue(span=check.span), floor, stream.costs, stream.arrivals, believed, waits)
    return waits


def run_random(stream: TimedRows, dropped: NDArray[np.bool_]) -> Floats:
    """Base Line: the rows to drop were drawn beforehand."""
    waits = np.empty(len(stream))
    _queue(stream.costs, stream.arrivals, dropped, waits)
    return waits


@compiled
def _las(
    check: Check,
    queue: Floats,
    hashes: tuple[Ints, Ints, int],
    settings: tuple[float, int, int, float, float],
    warm_up: tuple[Ints, Ints, Floats],
    stream: tuple[Ints, Ints, Floats],
    waits: Floats,
) -> bool:
    """An operator that learns, with its shedder; messages between the two take no time."""
    a, b, columns = hashes
    epsilon, resync, window, tolerance, floor = settings
    first_keys, first_costs, first_arrivals = warm_up
    keys, costs, arrivals = stream
    kind, threshold, span = check.kind, check.threshold, float(check.span)
    rows, warming = len(a), len(first_keys)

    frequencies, durations = np.zeros((rows, columns), np.int64), np.zeros((rows, columns), np.int64)
    known_frequencies, known_durations = np.zeros((rows, columns), np.int64), np.zeros((rows, columns), np.int64)
    snapshot = np.zeros((rows, columns))
    operator, shedder, left_in_window, mean = START, NOP, window, 0.0
    since_asked, synchronised = 0, False
    # Of every row let in; those in the queue are head … tail − 1. NaN: nothing asked.
    room = warming + len(keys)
    let_in_key, let_in_cost = np.empty(room, np.int64), np.empty(room, np.int64)
    done, asked = np.empty(room), np.empty(room)
    head, tail, server_free_at, origin = 0, 0, 0.0, 0.0

    for step in range(warming + 1 + len(keys)):
        # The rows of the warm-up, until synchronised; a moment to finish them; the measured rows.
        if step < warming:
            if synchronised:
                continue
            key, cost, now = first_keys[step], first_costs[step], first_arrivals[step]
            origin = now
        elif step == warming:
            if warming == 0:
                continue
            origin = max(origin, server_free_at)
            key, cost, now = np.int64(0), np.int64(0), origin
        else:
            place = step - warming - 1
            key, cost, now = keys[place], costs[place], origin + arrivals[place]

        # Finish what is done by now; the shedder learns of it before it decides on a row that arrives now.
        while head < tail and done[head] <= now:
            left_in_window -= 1
            if not np.isnan(asked[head]):
                correct(queue, done[head] - asked[head])
                synchronised = True
            if left_in_window == 0:
                left_in_window = window
                if closes_window(frequencies, durations, snapshot, operator, tolerance):
                    known_frequencies[:] = frequencies
                    known_durations[:] = durations
                    mean = mean_of(frequencies, durations)
                    frequencies[:] = 0
                    durations[:] = 0
                    shedder, operator = SEND, START
                else:
                    operator = STABILIZING
            # After the test, as in the listing: the row that closes a window is the first of the next.
            time_one(frequencies, durations, a, b, let_in_key[head], let_in_cost[head])
            head += 1

        if step == warming:
            # The warm-up is not part of the average that is to be held.
            queue[WAITED], queue[ROWS], queue[FORESEEN], queue[OWED], queue[NEXT] = 0.0, 0.0, 0.0, 1.0, 0.0
            continue
        if step < warming and synchronised:
            continue

        ask = np.nan
        if shedder != NOP:
            if not fits(kind, threshold, span, floor, queue, now):
                if step > warming:
                    waits[step - warming - 1] = DROPPED
                continue
            estimate = estimate_one(known_frequencies, known_durations, a, b, key, mean)
            enter(queue, now, estimate * (1 + epsilon))
            since_asked += 1
            if shedder == SEND or since_asked == resync:
                shedder, since_asked = RUN, 0
                ask = queue[FREE] - queue[CORRECTION]

        start = max(now, server_free_at)
        server_free_at = start + cost
        let_in_key[tail], let_in_cost[tail], done[tail], asked[tail] = key, cost, server_free_at, ask
        tail += 1
        if step > warming:
            waits[step - warming - 1] = start - now
    return synchronised


@compiled
def _known(
    check: Check, queue: Floats, floor: float, costs: Ints, arrivals: Floats, believed: Floats, waits: Floats
) -> None:
    """Straw-Man and Full Knowledge: the same rule, with costs that are believed from the start."""
    kind, threshold, span = check.kind, check.threshold, float(check.span)
    server_free_at = 0.0
    for i in range(len(costs)):
        now = arrivals[i]
        if not fits(kind, threshold, span, floor, queue, now):
            waits[i] = DROPPED
            continue
        enter(queue, now, believed[i])
        start = max(now, server_free_at)
        server_free_at = start + costs[i]
        waits[i] = start - now


@compiled
def _queue(costs: Ints, arrivals: Floats, dropped: NDArray[np.bool_], waits: Floats) -> None:
    server_free_at = 0.0
    for i in range(len(costs)):
        if dropped[i]:
            waits[i] = DROPPED
            continue
        start = max(arrivals[i], server_free_at)
        server_free_at = start + costs[i]
        waits[i] = start - arrivals[i]
