"""The event loop: one server, a queue per box, round-robin service in slices.

The kernel knows rows only as numbers. What a row's values decide (does it pass this filter? does it match
that drop's predicate?) was evaluated beforehand, on whole columns, and is looked up here as one bit; what
time decides (which queue, which drop is in force, who waits how long) happens here, row by row and exact.

A row of class `c` is a position in the pool. A box that gives a row new values (`map`) moves it to the
position `shift` further, where the new values' bits stand. Boxes with state (`join`, `aggregate`) are sinks
of the kernel: they take the row and its cost, and the engine works out their results.

Random decisions hash (seed, row, place): they do not depend on the order of events, so a lower keep
fraction always keeps a subset, and two policies on the same seed see the same coins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamshed.jit import compiled

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]

TEST, SHIFT, SINK = range(3)
"""Kinds of boxes: let a row pass or not; give it new values; take it in."""

_CROWDED = 32
"""More arrivals than this in one bucket are left to a sort."""

DONE, GROW, FLUSH = range(3)
"""Why the kernel returned: the time is over; a queue is full; an output buffer is full."""

CLOCK, BUSY, AREA, SEEN, DEBT, BUDGET = range(6)
"""Places in `State.clock`: now; seconds of service; ∫ rows in the system dt, and until when; service owed
for drops; what is left of the current slice."""

FULL, RING_FIRST, RING_COUNT, VISITED, SERVING, FED, INSIDE, DELIVERED, SUNK = range(9)
"""Places in `State.at`: a box whose queue is full, or -1; the ring of boxes with work; the box being visited
or -1; whether its first row is in service; next arrival to admit; rows in the system; fill of the two
output buffers."""


class Wiring(NamedTuple):
    """The network in numbers. An arc leads to box `b` (≥ 0) or to output `-1 - o`."""

    kind: Ints
    cost: Floats
    """Seconds a row takes at the box, at this node's speed."""
    arcs_from: Ints
    arcs: Ints
    """Place `p` (boxes, then sources) has the arcs `arcs[arcs_from[p]:arcs_from[p + 1]]` going out."""
    arc_to: Ints
    fan_out: int
    """Most arcs that leave one place."""
    slice: float
    """Seconds of service a box gets at one visit; a row begun is finished."""
    exponential: bool
    """Service times are exponential with mean `cost`, not fixed."""
    seed: np.uint64


class Drops(NamedTuple):
    """The drops in force, by arc."""

    of_arc_from: Ints
    keep: Floats
    salt: Hashes
    match: Ints
    """[class, drop]: the line of `Pool.bits` that says whether the row matches; -1: every row does."""
    cost: float
    """Seconds for one row to be looked at."""


class Pool(NamedTuple):
    """All rows that are alive or arriving."""

    klass: Ints
    uid: Hashes
    bits: Bits
    """[line, row]"""
    line: Ints
    """[class, box]: the line of a filter's answers; other boxes have line 0, which is always true."""
    shift: Ints
    """[class, box]: how far a map moves the row."""


class Feed(NamedTuple):
    """Rows that enter, in order of time, each at the place (a source, or a box with state) it leaves."""

    time: Floats
    row: Ints
    place: Ints


class State(NamedTuple):
    """What changes; a second call continues where the first stopped."""

    clock: Floats
    at: Ints
    queue_from: Ints
    """A box's queue is the circle of `queue_mask + 1` entries from here on, its first row the `head`-th."""
    queue_mask: Ints
    head: Ints
    waiting: Ints
    ring: Ints
    entry_row: Ints
    entry_arc: Ints
    delivered_output: Ints
    delivered_row: Ints
    delivered_at: Floats
    sunk_arc: Ints
    sunk_row: Ints
    sunk_at: Floats
    served: Ints
    """[box]"""
    filtered: Ints
    """[box]"""
    offered: Ints
    """[class, arc]: rows that reached the arc's drops."""
    shed: Ints
    """[class, arc]"""


@compiled
def unit(seed: np.uint64, uid: np.uint64, salt: np.uint64) -> float:
    """A uniform number in [0, 1) from a seed, a row and a place (splitmix64)."""
    z = seed ^ (uid * np.uint64(0x9E3779B97F4A7C15)) ^ (salt * np.uint64(0xD1B54A32D192ED03))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def run(end: float, wiring: Wiring, drops: Drops, pool: Pool, feed: Feed, state: State) -> int:
    """Advance to `end`; a row in service then is finished, so the clock may stand slightly later.

    One loop over three kinds of events, in this order of precedence: a row arrives, the row in service is
    finished, the next row's service begins. It is one function and everything it touches has a local name,
    because Numba counts references to each array of a tuple that is passed to another function; a loop
    with functions for its parts was 16 times slower.
    """
    head, waiting, ring = state.head, state.waiting, state.ring
    queue_from, queue_mask, entry_row, entry_arc = (
        state.queue_from,
        state.queue_mask,
        state.entry_row,
        state.entry_arc,
    )
    served, filtered, offered, shed = state.served, state.filtered, state.offered, state.shed
    kind, cost, arcs_from, arcs, arc_to = (
        wiring.kind,
        wiring.cost,
        wiring.arcs_from,
        wiring.arcs,
        wiring.arc_to,
    )
    klass, uid, bits, line, shift = pool.klass, pool.uid, pool.bits, pool.line, pool.shift
    feed_time, feed_row, feed_place = feed.time, feed.row, feed.place
    drops_from, match, keep, salt = drops.of_arc_from, drops.match, drops.keep, drops.salt
    delivered_limit = len(state.delivered_row) - wiring.fan_out
    sunk_limit = len(state.sunk_row)
    seed, slots, shedding = wiring.seed, len(ring), len(drops.keep) > 0

    clock, at = state.clock, state.at
    now, busy, area, seen = clock[CLOCK], clock[BUSY], clock[AREA], clock[SEEN]
    debt, budget = clock[DEBT], clock[BUDGET]
    full, first, active = at[FULL], at[RING_FIRST], at[RING_COUNT]
    visited, serving, fed, inside = at[VISITED], at[SERVING], at[FED], at[INSIDE]
    delivered, sunk = at[DELIVERED], at[SUNK]
    next_arrival = feed_time[fed] if fed < len(feed_time) else np.inf

    reason = DONE
    while True:
        if full >= 0:
            reason = GROW
            break
        if delivered > delivered_limit or sunk == sunk_limit:
            reason = FLUSH
            break
        if next_arrival <= now:
            sent = max(next_arrival, seen)
            area += inside * (sent - seen)
            seen = sent
            row = feed_row[fed]
            place = feed_place[fed]
            fed += 1
            next_arrival = feed_time[fed] if fed < len(feed_time) else np.inf
        else:
            if not serving:
                if now >= end:
                    break
                # Go on with the current slice, or turn to the next box in the ring, or wait for work.
                if visited >= 0 and (waiting[visited] == 0 or budget <= 0.0):
                    if waiting[visited] > 0:
                        last = first + active
                        ring[last if last < slots else last - slots] = visited
                        active += 1
                    visited = -1
                if visited < 0:
                    if active == 0:
                        now = min(end, next_arrival)
                        continue
                    visited = ring[first]
                    first = first + 1 if first + 1 < slots else 0
                    active -= 1
                    budget = wiring.slice
                seconds = cost[visited]
                if wiring.exponential:
                    u = unit(seed, uid[entry_row[queue_from[visited] + head[visited]]], np.uint64(2 * visited + 1))
                    seconds *= -np.log1p(-u)
                seconds += debt
                debt = 0.0
                now += seconds
                busy += seconds
                budget -= seconds
                if next_arrival <= now:
                    serving = 1
                    continue  # rows that arrive while one is served come before it is finished
            serving = 0
            sent = now
            area += inside * (now - seen)
            seen = now
            place = visited
            entry = queue_from[place] + head[place]
            head[place] = (head[place] + 1) & queue_mask[place]
            inside -= 1
            waiting[place] -= 1
            served[place] += 1
            row = entry_row[entry]
            if kind[place] != TEST:
                if kind[place] == SINK:
                    state.sunk_arc[sunk] = entry_arc[entry]
                    state.sunk_row[sunk] = row
                    state.sunk_at[sunk] = now
                    sunk += 1
                    continue
                row += shift[klass[row], place]
            elif not bits[line[klass[row], place], row]:
                filtered[place] += 1
                continue

        # Put the row on every arc that leaves the place: through the drops, into a queue or out.
        group = klass[row]
        for i in range(arcs_from[place], arcs_from[place + 1]):
            arc = arcs[i]
            offered[group, arc] += 1
            if shedding:
                dropped = False
                for drop in range(drops_from[arc], drops_from[arc + 1]):
                    debt += drops.cost
                    test = match[group, drop]
                    if (test < 0 or bits[test, row]) and unit(seed, uid[row], salt[drop]) >= keep[drop]:
                        dropped = True
                        break
                if dropped:
                    shed[group, arc] += 1
                    continue
            to = arc_to[arc]
            if to < 0:
                state.delivered_output[delivered] = -1 - to
                state.delivered_row[delivered] = row
                state.delivered_at[delivered] = sent
                delivered += 1
                continue
            before = waiting[to]
            mask = queue_mask[to]
            entry = queue_from[to] + ((head[to] + before) & mask)
            entry_row[entry] = row
            entry_arc[entry] = arc
            waiting[to] = before + 1
            inside += 1
            if before == mask:
                full = to
            last = first + active
            ring[last if last < slots else last - slots] = to
            active += (before == 0) & (to != visited)

    clock[CLOCK], clock[BUSY], clock[AREA], clock[SEEN] = now, busy, area, seen
    clock[DEBT], clock[BUDGET] = debt, budget
    at[FULL], at[RING_FIRST], at[RING_COUNT] = full, first, active
    at[VISITED], at[SERVING], at[FED], at[INSIDE] = visited, serving, fed, inside
    at[DELIVERED], at[SUNK] = delivered, sunk
    return reason


@compiled
def thin(wiring: Wiring, drops: Drops, pool: Pool, state: State) -> None:
    """Let new drops act on the rows that wait on their arcs. No row may be in service."""
    clock, at = state.clock, state.at
    clock[AREA] += at[INSIDE] * (clock[CLOCK] - clock[SEEN])
    clock[SEEN] = clock[CLOCK]
    for box in range(len(state.head)):
        begin, mask, kept = state.queue_from[box], state.queue_mask[box], 0
        for i in range(state.waiting[box]):
            entry = begin + ((state.head[box] + i) & mask)
            row, arc = state.entry_row[entry], state.entry_arc[entry]
            dropped = False
            for drop in range(drops.of_arc_from[arc], drops.of_arc_from[arc + 1]):
                test = drops.match[pool.klass[row], drop]
                if test < 0 or pool.bits[test, row]:
                    dropped |= unit(wiring.seed, pool.uid[row], drops.salt[drop]) >= drops.keep[drop]
            if dropped:
                state.shed[pool.klass[row], arc] += 1
                at[INSIDE] -= 1
            else:
                to = begin + ((state.head[box] + kept) & mask)
                state.entry_row[to], state.entry_arc[to] = row, arc
                kept += 1
        state.waiting[box] = kept
    # Boxes whose queue is now empty leave the ring.
    boxes, count = len(state.ring), 0
    order = np.empty(boxes, np.int64)
    for i in range(at[RING_COUNT]):
        box = state.ring[(at[RING_FIRST] + i) % boxes]
        if state.waiting[box] > 0:
            order[count] = box
            count += 1
    state.ring[:count] = order[:count]
    at[RING_FIRST] = 0
    at[RING_COUNT] = count


@compiled
def merge(time: Floats, begin: Ints, row: Ints, place: Ints) -> Feed:
    """A feed from ascending runs of times, run `k` from `begin[k]` on, its first row at `row[k]`.

    Of equal times the earlier run's comes first. Times are spread over as many buckets as there are rows,
    then put right among neighbours: arrivals are even enough for that, and twice as fast as sorting. Where
    they are not, they are sorted.
    """
    total, runs = len(time), len(begin) - 1
    order = np.empty(total, np.int64)
    low, high = np.inf, -np.inf
    for run in range(runs):
        if begin[run] < begin[run + 1]:
            low, high = min(low, time[begin[run]]), max(high, time[begin[run + 1] - 1])
    scale = (total - 1) / (high - low) if high > low else 0.0
    bucket = np.zeros(total + 1, np.int64)
    for i in range(total):
        bucket[int((time[i] - low) * scale) + 1] += 1
    if total and bucket.max() <= _CROWDED:
        for i in range(total):
            bucket[i + 1] += bucket[i]
        for i in range(total):
            at = int((time[i] - low) * scale)
            order[bucket[at]] = i
            bucket[at] += 1
        for i in range(1, total):
            moving = order[i]
            at = i
            while at > 0 and time[order[at - 1]] > time[moving]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = moving
    else:
        order = np.argsort(time, kind="mergesort")
    feed = Feed(np.empty(total), np.empty(total, np.int64), np.empty(total, np.int64))
    run_of = np.empty(total, np.int32)
    for run in range(runs):
        run_of[begin[run] : begin[run + 1]] = run
    for i in range(total):
        at = order[i]
        run = run_of[at]
        feed.time[i] = time[at]
        feed.row[i] = row[run] + at - begin[run]
        feed.place[i] = place[run]
    return feed


@compiled
def entries(state: State) -> Ints:
    """The entries in all queues, box by box, first come first."""
    found = np.empty(state.at[INSIDE], np.int64)
    count = 0
    for box in range(len(state.head)):
        for i in range(state.waiting[box]):
            found[count] = state.queue_from[box] + ((state.head[box] + i) & state.queue_mask[box])
            count += 1
    return found


@compiled
def tally(
    count: int,
    output: Ints,
    row: Ints,
    at: Floats,
    arrived: Floats,
    klass: Ints,
    worth_line: Ints,
    worth: Floats,
    interval: float,
    delivered: Ints,
    value: Floats,
    latency: Floats,
) -> None:
    """Add deliveries to `delivered` and `value` ([output, interval of arrival]); note their latencies."""
    for i in range(count):
        to, which = output[i], row[i]
        epoch = min(int(arrived[which] / interval), delivered.shape[1] - 1)
        delivered[to, epoch] += 1
        line = worth_line[klass[which], to]
        value[to, epoch] += worth[line, which] if line >= 0 else 1.0
        latency[i] = at[i] - arrived[which]
