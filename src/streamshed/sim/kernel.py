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
Places = NDArray[np.uint32]
"""What the loop finds its way by. Unsigned, because Numba lets negative numbers index from the end and
would test for that at every access."""
Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]

TEST, SHIFT, SINK = range(3)
"""Kinds of boxes: let a row pass or not; give it new values; take it in."""

_CROWDED = 32
"""More arrivals than this in one bucket are left to a sort."""
_ONE, _HALF, _LOW = np.uint64(1), np.uint64(32), np.uint64((1 << 32) - 1)

DONE, GROW, FLUSH = range(3)
"""Why the kernel returned: the time is over; one or more queues are full; an output buffer is full."""

CLOCK, BUSY, AREA, SEEN, DEBT, BUDGET = range(6)
"""Places in `State.clock`: now; seconds of service; ∫ rows in the system dt, and until when; service owed
for drops; what is left of the current slice."""

RING_FIRST, RING_COUNT, VISITED, SERVING, FED, INSIDE, DELIVERED, SUNK = range(8)
"""Places in `State.at`: the ring of boxes with work; the box being visited, or the number of boxes for none;
whether its first row is in service; next arrival to admit; rows in the system; fill of the two output
buffers."""

NOWHERE = (1 << 32) - 1
"""For a place without arcs, and after the last of them."""

BEGIN, MASK, HEAD, WAITING = range(4)
"""Places in a line of `State.queue`: the queue is the circle of `MASK + 1` entries from `BEGIN` on, its
first row the `HEAD`-th."""

ROW, ARC = range(2)
"""Places in a line of `State.entry`: a row that waits, and the arc it came along."""


class Wiring(NamedTuple):
    """The network in numbers. An arc leads to box `b`, or to output `number of boxes + o`."""

    kind: Places
    cost: Floats
    """Seconds a row takes at the box, at this node's speed."""
    out: Places
    """[link, (arc, where it leads, next link)]: the arcs out of place `p` (boxes, then sources) are the chain of
    links from `p` on; `NOWHERE` ends it. Most places have one arc, found at once."""
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
    """[class, drop]: the column of `Pool.bits` that says whether the row matches; -1: every row does."""
    cost: float
    """Seconds for one row to be looked at."""


class Pool(NamedTuple):
    """All rows that are alive or arriving."""

    klass: Places
    uid: Hashes
    bits: Bits
    """[row, column]: a row's answers side by side, since they are asked for one after the other."""
    column: Places
    """[class, box]: the column of a filter's answers; other boxes have column 0, which is always true."""
    shift: Places
    """[class, box]: how far a map moves the row."""


class Feed(NamedTuple):
    """Rows that enter, in order of time, each at the place (a source, or a box with state) it leaves."""

    time: Floats
    """With one more at the end that never comes."""
    what: Hashes
    """The place, times 2^32, and the row."""


class State(NamedTuple):
    """What changes; a second call continues where the first stopped."""

    clock: Floats
    at: Ints
    queue: Places
    """[box, place], and one more line for no box: nothing ever waits there."""
    ring: Places
    """Boxes with work, in the order of their turns: a circle of 2^n."""
    entry: Places
    """[entry, place]"""
    delivered_output: Places
    delivered_row: Places
    delivered_at: Floats
    sunk_arc: Places
    sunk_row: Places
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
    queue, ring, waiting_rows = state.queue, state.ring, state.entry
    served, filtered, offered, shed = state.served, state.filtered, state.offered, state.shed
    delivered_output, delivered_row, delivered_at = (
        state.delivered_output,
        state.delivered_row,
        state.delivered_at,
    )
    kind, cost, out = wiring.kind, wiring.cost, wiring.out
    plain = bool(np.all(kind == TEST))
    direct = plain and not wiring.exponential and len(drops.keep) == 0
    klass, uid, bits, column, shift = pool.klass, pool.uid, pool.bits, pool.column, pool.shift
    feed_time, feed_what = feed.time, feed.what
    drops_from, match, keep, salt = drops.of_arc_from, drops.match, drops.keep, drops.salt
    delivered_limit = np.uint64(len(delivered_row) - wiring.fan_out)
    sunk_limit = np.uint64(len(state.sunk_row))
    seed, slice, exponential, shedding = wiring.seed, wiring.slice, wiring.exponential, len(drops.keep) > 0
    boxes, around, nowhere = np.uint64(len(queue) - 1), np.uint64(len(ring) - 1), np.uint64(NOWHERE)

    clock, at = state.clock, state.at
    now, busy, area, seen = clock[CLOCK], clock[BUSY], clock[AREA], clock[SEEN]
    debt, budget = clock[DEBT], clock[BUDGET]
    visited, fed = np.uint64(at[VISITED]), np.uint64(at[FED])
    first, active = np.uint64(at[RING_FIRST]), np.uint64(at[RING_COUNT])
    delivered, sunk = np.uint64(at[DELIVERED]), np.uint64(at[SUNK])
    serving, inside = at[SERVING] != 0, float(at[INSIDE])
    next_arrival = feed_time[fed]

    reason = DONE
    while True:
        if reason != DONE:
            break
        if next_arrival <= now:
            sent = max(next_arrival, seen)
            area += inside * (sent - seen)
            seen = sent
            row = feed_what[fed] & _LOW
            place = feed_what[fed] >> _HALF
            fed += _ONE
            next_arrival = feed_time[fed]
        else:
            if not serving:
                if now >= end:
                    break
                # Go on with the current slice, or turn to the next box in the ring, or wait for work. Who is
                # next cannot be foreseen by the processor: it is reckoned, not branched on.
                stays = queue[visited, WAITING] != 0
                if stays and budget <= 0.0:
                    ring[(first + active) & around] = visited
                    active += _ONE
                    stays = False
                if active == 0 and not stays:
                    visited = boxes
                    now = min(end, next_arrival)
                    continue
                turns = np.uint64(not stays)
                visited = visited if stays else np.uint64(ring[first])
                budget = budget if stays else slice
                first = (first + turns) & around
                active -= turns
                seconds = cost[visited]
                if exponential:
                    at_head = np.uint64(queue[visited, BEGIN]) + np.uint64(queue[visited, HEAD])
                    u = unit(seed, uid[waiting_rows[at_head, ROW]], np.uint64(2) * visited + _ONE)
                    seconds *= -np.log1p(-u)
                seconds += debt
                debt = 0.0
                now += seconds
                busy += seconds
                budget -= seconds
                if next_arrival <= now:
                    serving = True
                    continue  # rows that arrive while one is served come before it is finished
            serving = False
            sent = now
            area += inside * (now - seen)
            seen = now
            place = visited
            position = np.uint64(queue[place, HEAD])
            entry = np.uint64(queue[place, BEGIN]) + position
            queue[place, HEAD] = (position + _ONE) & np.uint64(queue[place, MASK])
            queue[place, WAITING] -= np.uint32(1)
            inside -= 1.0
            served[place] += 1
            row = np.uint64(waiting_rows[entry, ROW])
            if not plain and kind[place] != TEST:
                if kind[place] == SINK:
                    state.sunk_arc[sunk] = waiting_rows[entry, ARC]
                    state.sunk_row[sunk] = row
                    sunk += _ONE
                    if sunk == sunk_limit:
                        reason = FLUSH
                    continue
                row += np.uint64(shift[klass[row], place])
            elif not bits[row, column[klass[row], place]]:
                filtered[place] += 1
                continue

        group = np.uint64(klass[row])
        if inside == 0.0 and direct and sent == now and debt == 0.0:
            # The only row there is goes from box to box without waiting, until it comes to a split or an output,
            # is filtered, or another arrives: the same as through queue and ring, and a third of all services.
            passes = True
            while passes:
                to = np.uint64(out[place, 1])
                if to >= boxes or out[place, 2] != NOWHERE:
                    break
                seconds = cost[to]
                if now >= end or next_arrival <= now + seconds:
                    break
                offered[group, out[place, 0]] += 1
                served[to] += 1
                now += seconds
                busy += seconds
                budget = slice - seconds
                area += now - seen
                seen = sent = now
                visited = place = to
                passes = bits[row, column[group, to]]
            if not passes:
                filtered[place] += 1
                continue

        # Put the row on every arc that leaves the place: through the drops, into a queue or out.
        link = place if out[place, 0] != NOWHERE else nowhere
        while link != nowhere:
            arc, to = np.uint64(out[link, 0]), np.uint64(out[link, 1])
            link = np.uint64(out[link, 2])
            offered[group, arc] += 1
            if shedding:
                dropped = False
                for drop in range(drops_from[arc], drops_from[arc + _ONE]):
                    debt += drops.cost
                    test = match[group, drop]
                    if (test < 0 or bits[row, test]) and unit(seed, uid[row], salt[drop]) >= keep[drop]:
                        dropped = True
                        break
                if dropped:
                    shed[group, arc] += 1
                    continue
            if to >= boxes:
                delivered_output[delivered] = to - boxes
                delivered_row[delivered] = row
                delivered_at[delivered] = sent
                delivered += _ONE
                if delivered > delivered_limit and reason == DONE:
                    reason = FLUSH
                continue
            before = np.uint64(queue[to, WAITING])
            mask = np.uint64(queue[to, MASK])
            entry = np.uint64(queue[to, BEGIN]) + ((np.uint64(queue[to, HEAD]) + before) & mask)
            waiting_rows[entry, ROW] = row
            waiting_rows[entry, ARC] = arc
            queue[to, WAITING] = before + _ONE
            inside += 1.0
            if before == mask:
                reason = GROW
            ring[(first + active) & around] = to
            active += np.uint64((before == 0) & (to != visited))

    clock[CLOCK], clock[BUSY], clock[AREA], clock[SEEN] = now, busy, area, seen
    clock[DEBT], clock[BUDGET] = debt, budget
    at[RING_FIRST], at[RING_COUNT] = first, active
    at[VISITED], at[SERVING], at[FED], at[INSIDE] = visited, serving, fed, int(inside)
    at[DELIVERED], at[SUNK] = delivered, sunk
    return reason


@compiled
def thin(wiring: Wiring, drops: Drops, pool: Pool, state: State) -> None:
    """Let new drops act on the rows that wait on their arcs. No row may be in service."""
    clock, at = state.clock, state.at
    clock[AREA] += at[INSIDE] * (clock[CLOCK] - clock[SEEN])
    clock[SEEN] = clock[CLOCK]
    for box in range(len(state.queue)):
        begin, mask = np.int64(state.queue[box, BEGIN]), np.int64(state.queue[box, MASK])
        head, kept = np.int64(state.queue[box, HEAD]), 0
        for i in range(np.int64(state.queue[box, WAITING])):
            entry = begin + ((head + i) & mask)
            row, arc = state.entry[entry, ROW], np.int64(state.entry[entry, ARC])
            dropped = False
            for drop in range(drops.of_arc_from[arc], drops.of_arc_from[arc + 1]):
                test = drops.match[pool.klass[row], drop]
                if test < 0 or pool.bits[row, test]:
                    dropped |= unit(wiring.seed, pool.uid[row], drops.salt[drop]) >= drops.keep[drop]
            if dropped:
                state.shed[pool.klass[row], arc] += 1
                at[INSIDE] -= 1
            else:
                to = begin + ((head + kept) & mask)
                state.entry[to, ROW], state.entry[to, ARC] = row, arc
                kept += 1
        state.queue[box, WAITING] = kept
    # Boxes whose queue is now empty leave the ring.
    around, count = len(state.ring) - 1, 0
    order = np.empty(len(state.ring), np.uint32)
    for i in range(at[RING_COUNT]):
        turn = state.ring[(at[RING_FIRST] + i) & around]
        if state.queue[turn, WAITING] > 0:
            order[count] = turn
            count += 1
    state.ring[:count] = order[:count]
    at[RING_FIRST] = 0
    at[RING_COUNT] = count


@compiled
def merge(time: Floats, begin: Ints, row: Ints, place: Ints) -> Feed:
    """A feed from ascending runs of times, run `k` from `begin[k]` on, its first row at `row[k]`.

    Of equal times the earlier run's comes first. Times are spread over as many buckets as there are rows,
    then put right among neighbours: arrivals are even enough for that, and it is nearly twice as fast as
    sorting. Where they are not, they are sorted.
    """
    total, runs = len(time), len(begin) - 1
    low, high = np.inf, -np.inf
    for run in range(runs):
        if begin[run] < begin[run + 1]:
            low, high = min(low, time[begin[run]]), max(high, time[begin[run + 1] - 1])
    scale = (total - 1) / (high - low) if high > low else 0.0
    fill = np.zeros(total + 1, np.uint32)
    for i in range(total):
        fill[np.uint32((time[i] - low) * scale) + 1] += np.uint32(1)
    crowd = fill.max()
    for i in range(total):
        fill[i + 1] += fill[i]
    times, what = np.empty(total + 1), np.empty(total, np.uint64)
    for run in range(runs):
        first = (np.uint64(place[run]) << _HALF) + np.uint64(row[run])
        for i in range(begin[run], begin[run + 1]):
            bucket = np.uint32((time[i] - low) * scale)
            at = fill[bucket]
            fill[bucket] = at + np.uint32(1)
            times[at], what[at] = time[i], first + np.uint64(i - begin[run])
    times[total] = np.inf
    if crowd > _CROWDED:
        order = np.argsort(times[:total], kind="mergesort")
        times[:total], what = times[order], what[order]
        return Feed(times, what)
    for i in range(1, total):
        if times[i - 1] > times[i]:
            moving, which, to = times[i], what[i], i
            while to > 0 and times[to - 1] > moving:
                times[to], what[to] = times[to - 1], what[to - 1]
                to -= 1
            times[to], what[to] = moving, which
    return Feed(times, what)


@compiled
def entries(state: State) -> Ints:
    """The entries in all queues, box by box, first come first."""
    found = np.empty(state.at[INSIDE], np.int64)
    count = 0
    for box in range(len(state.queue)):
        begin, mask = np.int64(state.queue[box, BEGIN]), np.int64(state.queue[box, MASK])
        head = np.int64(state.queue[box, HEAD])
        for i in range(np.int64(state.queue[box, WAITING])):
            found[count] = begin + ((head + i) & mask)
            count += 1
    return found


@compiled
def tally(
    count: int,
    output: Places,
    row: Places,
    at: Floats,
    arrived: Floats,
    klass: Places,
    worth_line: Ints,
    worth: Floats,
    interval: float,
    delivered: Ints,
    value: Floats,
    latency: Floats,
    recent: Floats,
) -> None:
    """Add deliveries to `delivered` and `value` ([output, interval of arrival]); note their latencies, and add
    them up in `recent` ([output, (sum, count)])."""
    for i in range(count):
        to, which = output[i], row[i]
        epoch = min(int(arrived[which] / interval), delivered.shape[1] - 1)
        delivered[to, epoch] += 1
        line = worth_line[klass[which], to]
        value[to, epoch] += worth[line, which] if line >= 0 else 1.0
        latency[i] = at[i] - arrived[which]
        recent[to, 0] += latency[i]
        recent[to, 1] += 1.0
