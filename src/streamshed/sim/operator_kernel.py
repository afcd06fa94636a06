"""`sim.operator`, compiled: the same rules in the same order, so that the waits are equal to the last bit.

The state machines are those of `policies.load_aware`; their states and the checks are numbers here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamshed.errors import InvalidArgument
from streamshed.jit import compiled
from streamshed.policies.load_aware import DELTA, EPSILON, TOLERANCE, WINDOW
from streamshed.policies.queue_check import Absolute, Average, Check, SlidingAverage
from streamshed.sim.operator import DROPPED, Floats, Ints, Stream
from streamshed.sketch.count_min import Size
from streamshed.sketch.hashing import CarterWegman, cell_of

_AVERAGE, _ABSOLUTE, _SLIDING = range(3)
_START, _STABILIZING = range(2)
_NOP, _SEND, _RUN = range(3)


class _Rule(NamedTuple):
    """A check in numbers."""

    kind: int
    threshold: float
    span: int


@dataclass(frozen=True, slots=True)
class LasSettings:
    """Parameters of LAS, the paper's by default.

    >>> LasSettings().size
    Size(rows=4, columns=55)
    """

    epsilon: float = EPSILON
    delta: float = DELTA
    window: int = WINDOW
    tolerance: float = TOLERANCE
    resync: int | None = None
    """Rows let in between two questions beyond those after new matrices; the paper has none."""

    def __post_init__(self) -> None:
        # ε = 1 doubles every estimate: senseless in use, but it is the end of the paper's Figure 8.
        if self.epsilon != 1:
            Size.of(self.epsilon, self.delta)
        if self.window < 1 or not 0 < self.tolerance < 1:
            raise InvalidArgument(
                "the window must be at least 1 row and the tolerance between 0 and 1",
                got=f"{self.window} rows, {self.tolerance}",
            )

    @property
    def size(self) -> Size:
        return Size(Size.of(0.5, self.delta).rows, 3) if self.epsilon == 1 else Size.of(self.epsilon, self.delta)


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The outcome of a run of LAS."""

    waits: Floats
    warm: bool
    """Whether the warm-up was long enough for matrices and a synchronisation."""


def run_las(
    stream: Stream, check: Check, hashes: CarterWegman, settings: LasSettings, warm_up: Stream | None = None
) -> Learned:
    """LAS on a stream, after a warm-up that is not measured, if there is one."""
    first = warm_up or Stream(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    waits = np.empty(len(stream))
    warm = _las(
        _rule(check),
        (hashes.a, hashes.b, hashes.columns),
        (settings.epsilon, settings.resync or 0, settings.window, settings.tolerance),
        (first.keys, first.costs, first.arrivals),
        (stream.keys, stream.costs, stream.arrivals),
        waits,
    )
    return Learned(waits, bool(warm))


def run_known(stream: Stream, check: Check, believed: Floats) -> Floats:
    """A shedder that believes to know each row's cost: all equal for Straw-Man, the truth for Full Knowledge."""
    rule = _rule(check)
    waits = np.empty(len(stream))
    _known(rule, np.zeros(rule.span), stream.costs, stream.arrivals, believed, waits)
    return waits


def run_random(stream: Stream, dropped: np.typing.NDArray[np.bool_]) -> Floats:
    """Base Line: the rows to drop were drawn beforehand."""
    waits = np.empty(len(stream))
    _queue(stream.costs, stream.arrivals, dropped, waits)
    return waits


def _rule(check: Check) -> _Rule:
    """A fresh check; one that has already admitted rows would be a different one here."""
    if isinstance(check, SlidingAverage) and not check.recent:
        return _Rule(_SLIDING, check.threshold, check.span)
    if isinstance(check, Absolute):
        return _Rule(_ABSOLUTE, check.threshold, 1)
    if isinstance(check, Average) and not check.count:
        return _Rule(_AVERAGE, check.threshold, 1)
    raise InvalidArgument("the simulator knows Average, Absolute and SlidingAverage, unused", got=check)


@compiled
def _las(
    rule: _Rule,
    hashes: tuple[Ints, Ints, int],
    settings: tuple[float, int, int, float],
    warm_up: tuple[Ints, Ints, Floats],
    stream: tuple[Ints, Ints, Floats],
    waits: Floats,
) -> bool:
    """`LearningOperator` with both state machines, in one piece.

    Split into functions it would read better and run four times slower: each call with an array counts references
    to it. The parts are named after what they do in the plain model.
    """
    a, b, columns = hashes
    epsilon, resync, window, tolerance = settings
    first_keys, first_costs, first_arrivals = warm_up
    keys, costs, arrivals = stream
    kind, threshold, span = rule.kind, rule.threshold, rule.span
    rows, warming = len(a), len(first_keys)

    frequencies, durations = np.zeros((rows, columns), np.int64), np.zeros((rows, columns), np.int64)
    known_frequencies, known_durations = np.zeros((rows, columns), np.int64), np.zeros((rows, columns), np.int64)
    snapshot = np.zeros((rows, columns))
    operator, shedder, left_in_window, mean = _START, _NOP, window, 0.0
    free_at, correction, since_asked, synchronised = -np.inf, 0.0, 0, False
    total, count, recent = 0.0, 0, np.zeros(span)
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

        # LearningOperator.catch_up and Operator.finished
        while head < tail and done[head] <= now:
            left_in_window -= 1
            if not np.isnan(asked[head]):
                delta = done[head] - asked[head]
                free_at += delta - correction
                correction = delta
                synchronised = True
            if left_in_window == 0:
                left_in_window = window
                scale, moved = 0.0, 0.0
                seen = durations[0].sum() / max(frequencies[0].sum(), 1)
                for i in range(rows):
                    for j in range(columns):
                        scale += snapshot[i, j]
                        often = frequencies[i, j]
                        moved += abs(snapshot[i, j] - (durations[i, j] / often if often > 0 else seen))
                stable = moved / scale <= tolerance if scale > 0 else moved == 0
                if operator == _STABILIZING and stable:
                    known_frequencies[:] = frequencies
                    known_durations[:] = durations
                    mean = seen
                    frequencies[:] = 0
                    durations[:] = 0
                    shedder, operator = _SEND, _START
                else:
                    for i in range(rows):
                        for j in range(columns):
                            often = frequencies[i, j]
                            snapshot[i, j] = durations[i, j] / often if often > 0 else seen
                    operator = _STABILIZING
            for i in range(rows):
                cell = cell_of(a[i], b[i], let_in_key[head], columns)
                frequencies[i, cell] += 1
                durations[i, cell] += let_in_cost[head]
            head += 1

        if step == warming:
            # The warm-up is not part of the average that is to be held.
            total, count = 0.0, 0
            continue
        if step < warming and synchronised:
            continue

        # LoadAware.decide
        ask = np.nan
        if shedder != _NOP:
            wait = max(0.0, free_at - now)
            if kind == _ABSOLUTE:
                admitted = wait <= threshold
            else:
                full = kind == _SLIDING and count >= span
                fresh = total - recent[count % span] + wait if full else total + wait
                admitted = not fresh / (span if full else count + 1) > threshold
                if admitted:
                    if kind == _SLIDING:
                        recent[count % span] = wait
                    total = fresh
                    count += 1
            if not admitted:
                if step > warming:
                    waits[step - warming - 1] = DROPPED
                continue
            least, took = np.int64(-1), np.int64(0)
            for i in range(rows):
                cell = cell_of(a[i], b[i], key, columns)
                if least < 0 or known_frequencies[i, cell] < least:
                    least, took = known_frequencies[i, cell], known_durations[i, cell]
            estimate = took / least if least > 0 else mean
            free_at = max(free_at, now) + estimate * (1 + epsilon)
            since_asked += 1
            if shedder == _SEND or since_asked == resync:
                shedder, since_asked = _RUN, 0
                ask = free_at - correction

        # The queue
        start = max(now, server_free_at)
        server_free_at = start + cost
        let_in_key[tail], let_in_cost[tail], done[tail], asked[tail] = key, cost, server_free_at, ask
        tail += 1
        if step > warming:
            waits[step - warming - 1] = start - now
    return synchronised


@compiled
def _known(rule: _Rule, recent: Floats, costs: Ints, arrivals: Floats, believed: Floats, waits: Floats) -> None:
    """Straw-Man and Full Knowledge: `QueueModel` and `Check`, with costs that are believed from the start."""
    kind, threshold, span = rule.kind, rule.threshold, rule.span
    total, count = 0.0, 0
    free_at, server_free_at = -np.inf, 0.0
    for i in range(len(costs)):
        now = arrivals[i]
        wait = max(0.0, free_at - now)
        if kind == _ABSOLUTE:
            admitted = wait <= threshold
        else:
            full = kind == _SLIDING and count >= span
            fresh = total - recent[count % span] + wait if full else total + wait
            admitted = not fresh / (span if full else count + 1) > threshold
            if admitted:
                if kind == _SLIDING:
                    recent[count % span] = wait
                total = fresh
                count += 1
        if not admitted:
            waits[i] = DROPPED
            continue
        free_at = max(free_at, now) + believed[i]
        start = max(now, server_free_at)
        server_free_at = start + costs[i]
        waits[i] = start - now


@compiled
def _queue(costs: Ints, arrivals: Floats, dropped: np.typing.NDArray[np.bool_], waits: Floats) -> None:
    server_free_at = 0.0
    for i in range(len(costs)):
        if dropped[i]:
            waits[i] = DROPPED
            continue
        start = max(arrivals[i], server_free_at)
        server_free_at = start + costs[i]
        waits[i] = start - arrivals[i]
