"""`sim.operator`, compiled: the same rules in the same order, so that the waits are equal to the last bit.

The state machines are those of `policies.load_aware`; their states and the checks are numbers here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamshed.errors import InvalidArgument
from streamshed.jit import compiled, inlined
from streamshed.policies.load_aware import DELTA, EPSILON, TOLERANCE, WINDOW
from streamshed.policies.queue_check import Absolute, Average, Check, SlidingAverage
from streamshed.sim.operator import DROPPED, Floats, Ints, Stream
from streamshed.sketch.cost import estimate_one
from streamshed.sketch.count_min import Size
from streamshed.sketch.hashing import CarterWegman, cell_of

_AVERAGE, _ABSOLUTE, _SLIDING = range(3)
_START, _STABILIZING = range(2)
_NOP, _SEND, _RUN = range(3)

_TOTAL, _FREE_AT, _SERVER_FREE_AT, _MEAN, _CORRECTION = range(5)
"""Places in `_State.floats`: Q; the shedder's free_at; the operator's; the mean of the shedder's
matrices; what the last answer corrected."""
_COUNT, _OPERATOR, _SHEDDER, _EXECUTED, _HEAD, _TAIL, _SYNCHRONISED, _SINCE_ASKED = range(8)
"""Places in `_State.ints`: ℓ; the two machines' states; m; the rows in the queue are HEAD … TAIL−1."""


class _Rule(NamedTuple):
    """A check in numbers."""

    kind: int
    threshold: float
    span: int


class _State(NamedTuple):
    floats: Floats
    ints: Ints
    recent: Floats
    """The last admitted waits, for a sliding average."""
    frequencies: Ints
    durations: Ints
    snapshot: Floats
    known_frequencies: Ints
    known_durations: Ints
    key: Ints
    cost: Ints
    done: Floats
    ask: Floats
    """Of every row let in; NaN where nothing is asked."""


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
    size = (hashes.rows, hashes.columns)
    room = len(stream) + (len(warm_up) if warm_up else 0)
    rule = _rule(check)
    state = _State(
        np.array([0.0, -np.inf, 0.0, 0.0, 0.0]),
        np.zeros(8, np.int64),
        np.zeros(rule.span),
        *(np.zeros(size, np.int64) for _ in range(2)),
        np.zeros(size),
        *(np.zeros(size, np.int64) for _ in range(2)),
        *(np.zeros(room, np.int64) for _ in range(2)),
        *(np.zeros(room) for _ in range(2)),
    )
    first = warm_up or Stream(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    waits = np.empty(len(stream))
    warm = _las(
        state,
        rule,
        hashes.a,
        hashes.b,
        settings.epsilon,
        settings.resync or 0,
        settings.window,
        settings.tolerance,
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


@inlined
def _admits(rule: _Rule, floats: Floats, ints: Ints, recent: Floats, wait: float) -> bool:
    """`Check.admits`; `recent` is a ring, with the oldest at ℓ modulo its length."""
    if rule.kind == _ABSOLUTE:
        return wait <= rule.threshold
    total = floats[_TOTAL] + wait
    count = ints[_COUNT] + 1
    if rule.kind == _SLIDING:
        if ints[_COUNT] >= rule.span:
            total = floats[_TOTAL] - recent[ints[_COUNT] % rule.span] + wait
            count = rule.span
        if total / count > rule.threshold:
            return False
        recent[ints[_COUNT] % rule.span] = wait
    elif total / count > rule.threshold:
        return False
    floats[_TOTAL] = total
    ints[_COUNT] += 1
    return True


@inlined
def _catch_up(s: _State, a: Ints, b: Ints, window: int, tolerance: float, now: float) -> None:
    """`LearningOperator.catch_up` and `Operator.finished`."""
    rows, columns = s.frequencies.shape
    while s.ints[_HEAD] < s.ints[_TAIL] and s.done[s.ints[_HEAD]] <= now:
        row = s.ints[_HEAD]
        s.ints[_HEAD] += 1
        s.ints[_EXECUTED] += 1
        if not np.isnan(s.ask[row]):
            delta = s.done[row] - s.ask[row]
            s.floats[_FREE_AT] += delta - s.floats[_CORRECTION]
            s.floats[_CORRECTION] = delta
            s.ints[_SYNCHRONISED] = 1
        if s.ints[_EXECUTED] % window == 0:
            if s.ints[_OPERATOR] == _STABILIZING and _error(s) <= tolerance:
                s.known_frequencies[:] = s.frequencies
                s.known_durations[:] = s.durations
                s.floats[_MEAN] = s.durations[0].sum() / max(s.frequencies[0].sum(), 1)
                s.ints[_SHEDDER] = _SEND
                s.frequencies[:] = 0
                s.durations[:] = 0
                s.ints[_OPERATOR] = _START
            else:
                for i in range(rows):
                    for j in range(columns):
                        s.snapshot[i, j] = s.durations[i, j] / max(s.frequencies[i, j], 1)
                s.ints[_OPERATOR] = _STABILIZING
        for i in range(rows):
            cell = cell_of(a[i], b[i], s.key[row], columns)
            s.frequencies[i, cell] += 1
            s.durations[i, cell] += s.cost[row]


@compiled
def _error(s: _State) -> float:
    """η of eq. 1, added up cell by cell."""
    rows, columns = s.frequencies.shape
    scale, moved = 0.0, 0.0
    for i in range(rows):
        for j in range(columns):
            scale += s.snapshot[i, j]
            moved += abs(s.snapshot[i, j] - s.durations[i, j] / max(s.frequencies[i, j], 1))
    if scale > 0:
        return moved / scale
    return 0.0 if moved == 0 else np.inf


@inlined
def _arrives(
    s: _State, rule: _Rule, a: Ints, b: Ints, epsilon: float, resync: int, key: int, cost: int, now: float
) -> float:
    """`LoadAware.decide`, and the queue if the row is let in."""
    ask = np.nan
    if s.ints[_SHEDDER] != _NOP:
        if not _admits(rule, s.floats, s.ints, s.recent, max(0.0, s.floats[_FREE_AT] - now)):
            return DROPPED
        estimate = estimate_one(s.known_frequencies, s.known_durations, a, b, key, s.floats[_MEAN])
        s.floats[_FREE_AT] = max(s.floats[_FREE_AT], now) + estimate * (1 + epsilon)
        s.ints[_SINCE_ASKED] += 1
        if s.ints[_SHEDDER] == _SEND or s.ints[_SINCE_ASKED] == resync:
            s.ints[_SHEDDER] = _RUN
            s.ints[_SINCE_ASKED] = 0
            ask = s.floats[_FREE_AT] - s.floats[_CORRECTION]
    start = max(now, s.floats[_SERVER_FREE_AT])
    s.floats[_SERVER_FREE_AT] = start + cost
    tail = s.ints[_TAIL]
    s.key[tail], s.cost[tail], s.done[tail], s.ask[tail] = key, cost, start + cost, ask
    s.ints[_TAIL] += 1
    return start - now


@compiled
def _las(
    s: _State,
    rule: _Rule,
    a: Ints,
    b: Ints,
    epsilon: float,
    resync: int,
    window: int,
    tolerance: float,
    warm_up: tuple[Ints, Ints, Floats],
    stream: tuple[Ints, Ints, Floats],
    waits: Floats,
) -> bool:
    origin = 0.0
    for i in range(len(warm_up[0])):
        origin = warm_up[2][i]
        _catch_up(s, a, b, window, tolerance, origin)
        if s.ints[_SYNCHRONISED]:
            break
        _arrives(s, rule, a, b, epsilon, resync, warm_up[0][i], warm_up[1][i], origin)
    warm = s.ints[_SYNCHRONISED] == 1
    if len(warm_up[0]):
        origin = max(origin, s.floats[_SERVER_FREE_AT])
        _catch_up(s, a, b, window, tolerance, origin)
        # The warm-up is not part of the average that is to be held.
        s.floats[_TOTAL] = 0.0
        s.ints[_COUNT] = 0
    for i in range(len(stream[0])):
        now = origin + stream[2][i]
        _catch_up(s, a, b, window, tolerance, now)
        waits[i] = _arrives(s, rule, a, b, epsilon, resync, stream[0][i], stream[1][i], now)
    return warm


@compiled
def _known(rule: _Rule, recent: Floats, costs: Ints, arrivals: Floats, believed: Floats, waits: Floats) -> None:
    floats, ints = np.zeros(1), np.zeros(1, np.int64)
    free_at, server_free_at = -np.inf, 0.0
    for i in range(len(costs)):
        now = arrivals[i]
        if not _admits(rule, floats, ints, recent, max(0.0, free_at - now)):
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
