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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamshed.jit import compiled, inlined
from streamshed.sim.network.aware import FIRST_SINCE, Aware, begins, learns, lets_in

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
_WORD, _IN_WORD = np.uint32(6), np.uint32(63)

DONE, GROW, FLUSH = range(3)
"""Why the kernel returned: the time is over; one or more queues are full; an output buffer is full."""

CLOCK, BUSY, AREA, SEEN, DEBT, BUDGET = range(6)
"""Places in `State.clock`: now; seconds of service; ∫ rows in the system dt, and until when; service owed
for drops; what is left of the current slice."""

RING_FIRST, RING_COUNT, VISITED, SERVING, FED, INSIDE, DELIVERED, SUNK = range(8)
"""Places in `State.at`: the ring of boxes with work; the box being visited, or the number of boxes for none;
whether its first row is in service; next arrival to admit; rows in the system; fill of the two output
buffers."""

TRUE = 32
"""The bit of a row's card that is always set; the class is below it, the answers above."""

NOWHERE = (1 << 32) - 1
"""For a place without arcs, and after the last of them."""

QUEUE = np.dtype([(name, np.uint32) for name in ("begin", "mask", "head", "waiting")])
"""A queue is the circle of `mask + 1` entries from `begin` on, its first row the `head`-th."""

ENTRY = np.dtype([("row", np.uint32), ("arc", np.uint32)])
"""A row that waits, and the arc it came along."""

LINK = np.dtype([(name, np.uint32) for name in ("arc", "to", "then")])
"""An arc, where it leads, and the next link of its chain."""

DELIVERY = np.dtype([("time", np.float64), ("row", np.uint32), ("output", np.uint32)])

Records = NDArray[Any]
"""Of one of these types. A field's place in a record is known when the loop is compiled; in a line of a table it
would have to be reckoned at every access."""


class Wiring(NamedTuple):
    """The network in numbers. An arc leads to box `b`, or to output `number of boxes + o`."""

    kind: Places
    cost: Floats
    """Seconds a row takes at the box, at this node's speed."""
    out: Records
    """[link]: the arcs out of place `p` (boxes, then sources) are the chain of
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
    match: Places
    """[class, drop]: the bit of `Pool.card` that says whether the row matches."""
    by_key: Bits
    """Drops of one salt that take the same keys, wherever they are."""
    cost: float
    """Seconds for one row to be looked at."""


class PoolArrays(NamedTuple):
    """All rows that are alive or arriving."""

    uid: Hashes
    key: Hashes
    """Of the key that a row has; its uid where it has none."""
    card: Hashes
    """[word, row]: a row's class in the lower half of the first word, then one bit for each question that may be
    asked about it: nearly always a single word tells all that the loop must know of a row."""
    bit: Places
    """[box]: where a filter finds its answer; other boxes have `TRUE`."""
    shift: Places
    """[class, box]: how far a map moves the row."""
    arrived: Floats
    digest: Ints
    """[load-aware box, row]: of the key by which the box takes the row."""


class Feed(NamedTuple):
    """Rows that enter, in order of time, each at the place (a source, or a box with state) it leaves."""

    time: Floats
    """With one more at the end that never comes."""
    what: Hashes
    """The place, times 2^32, and the row."""


class ServerState(NamedTuple):
    """What changes; a second call continues where the first stopped."""

    clock: Floats
    at: Ints
    queue: Records
    """[box], and one more for no box: nothing ever waits there."""
    ring: Places
    """Boxes with work, in the order of their turns: a circle of 2^n."""
    entry: Records
    delivered: Records
    sunk: Records
    """Entries of the rows that boxes with state took in."""
    served: Ints
    """[box]"""
    filtered: Ints
    """[box]"""
    offered: Ints
    """[class, arc]: rows that reached the arc's drops."""
    shed: Ints
    """[class, arc]"""
    asked: Floats
    """[entry]: the question that a row carries to a load-aware box, or NaN. Empty if there is no such box."""


@compiled
def unit(seed: np.uint64, uid: np.uint64, salt: np.uint64) -> float:
    """A uniform number in [0, 1) from a seed, a row and a place (splitmix64)."""
    z = seed ^ (uid * np.uint64(0x9E3779B97F4A7C15)) ^ (salt * np.uint64(0xD1B54A32D192ED03))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def says(card: Hashes, row: np.uint64, bit: np.uint32) -> bool:
    """What a row's card has at a bit."""
    return bool((card[bit >> _WORD, row] >> np.uint64(bit & _IN_WORD)) & _ONE)


@compiled
def run(
    end: float, wiring: Wiring, drops: Drops, pool: PoolArrays, feed: Feed, state: ServerState, aware: Aware | None
) -> int:
    """Advance to `end`; a row in service then is finished, so the clock may stand slightly later.

    One loop over three kinds of events, in this order of precedence: a row arrives, the row in service is
    finished, the next row's service begins. It is one function and everything it touches has a local name,
    because Numba counts references to each array of a tuple that is passed to another function; a loop
    with functions for its parts was 16 times slower. Without load-aware boxes `aware` is None: the loop is then
    compiled without anything that asks for them.
    """
    queue, ring, waiting_rows, deliveries = state.queue, state.ring, state.entry, state.delivered
    served, filtered, offered, shed = state.served, state.filtered, state.offered, state.shed
    kind, cost, out = wiring.kind, wiring.cost, wiring.out
    plain = bool(np.all(kind == TEST))
    direct = plain and not wiring.exponential and len(drops.keep) == 0
    uid, key, card, bit, shift = pool.uid, pool.key, pool.card, pool.bit, pool.shift
    arrived, digest, asked = pool.arrived, pool.digest, state.asked
    feed_time, feed_what = feed.time, feed.what
    drops_from, match, keep, salt = drops.of_arc_from, drops.match, drops.keep, drops.salt
    by_key = drops.by_key
    delivered_limit = np.uint64(len(deliveries) - wiring.fan_out)
    sunk_limit = np.uint64(len(state.sunk))
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
                stays = queue[visited].waiting != 0
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
                    at_head = np.uint64(queue[visited].begin) + np.uint64(queue[visited].head)
                    u = unit(seed, uid[waiting_rows[at_head].row], np.uint64(2) * visited + _ONE)
                    seconds *= -np.log1p(-u)
                seconds += debt
                debt = 0.0
                if aware is not None:
                    which = aware.of_box[visited]
                    if which >= 0:
                        at_head = np.uint64(queue[visited].begin) + np.uint64(queue[visited].head)
                        begins(aware, which, now - arrived[waiting_rows[at_head].row])
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
            position = np.uint64(queue[place].head)
            entry = np.uint64(queue[place].begin) + position
            queue[place].head = (position + _ONE) & np.uint64(queue[place].mask)
            queue[place].waiting -= np.uint32(1)
            inside -= 1.0
            served[place] += 1
            row = np.uint64(waiting_rows[entry].row)
            if not plain and kind[place] != TEST:
                if kind[place] == SINK:
                    state.sunk[sunk] = waiting_rows[entry]
                    sunk += _ONE
                    if sunk == sunk_limit:
                        reason = FLUSH
                    continue
                if aware is not None:
                    which = aware.of_box[place]
                    if which >= 0:
                        learns(aware, which, digest[which, row], arrived[row], now, asked[entry])
                row += np.uint64(shift[card[0, row] & _LOW, place])
            elif not says(card, row, bit[place]):
                filtered[place] += 1
                continue

        group = card[0, row] & _LOW
        if inside == 0.0 and direct and sent == now and debt == 0.0:
            # The only row there is goes from box to box without waiting, until it comes to a split or an output,
            # is filtered, or another arrives: the same as through queue and ring, and a third of all services.
            passes = True
            while passes:
                to = np.uint64(out[place].to)
                if to >= boxes or out[place].then != NOWHERE:
                    break
                seconds = cost[to]
                if now >= end or next_arrival <= now + seconds:
                    break
                offered[group, out[place].arc] += 1
                served[to] += 1
                now += seconds
                busy += seconds
                budget = slice - seconds
                area += now - seen
                seen = sent = now
                visited = place = to
                passes = says(card, row, bit[to])
            if not passes:
                filtered[place] += 1
                continue

        # Put the row on every arc that leaves the place: through the drops, into a queue or out.
        link = place if out[place].arc != NOWHERE else nowhere
        while link != nowhere:
            arc, to = np.uint64(out[link].arc), np.uint64(out[link].to)
            link = np.uint64(out[link].then)
            offered[group, arc] += 1
            if shedding:
                dropped = False
                for drop in range(drops_from[arc], drops_from[arc + _ONE]):
                    debt += drops.cost
                    if says(card, row, match[group, drop]):
                        who = key[row] if by_key[drop] else uid[row]
                        if unit(seed, who, salt[drop]) >= keep[drop]:
                            dropped = True
                            break
                if dropped:
                    shed[group, arc] += 1
                    continue
            if to >= boxes:
                deliveries[delivered].time = sent
                deliveries[delivered].row = row
                deliveries[delivered].output = to - boxes
                delivered += _ONE
                if delivered > delivered_limit and reason == DONE:
                    reason = FLUSH
                continue
            before = np.uint64(queue[to].waiting)
            mask = np.uint64(queue[to].mask)
            entry = np.uint64(queue[to].begin) + ((np.uint64(queue[to].head) + before) & mask)
            if aware is not None:
                which = aware.of_box[to]
                if which >= 0:
                    admitted, ask = lets_in(aware, which, digest[which, row], arrived[row], sent)
                    if not admitted:
                        shed[group, arc] += 1
                        continue
                    asked[entry] = ask
                    if before == 0:
                        aware.seconds[which, FIRST_SINCE] = sent
            waiting_rows[entry].row = row
            waiting_rows[entry].arc = arc
            queue[to].waiting = before + _ONE
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
def thin(wiring: Wiring, drops: Drops, pool: PoolArrays, state: ServerState) -> None:
    """Let new drops act on the rows that wait on their arcs. No row may be in service."""
    clock, at = state.clock, state.at
    clock[AREA] += at[INSIDE] * (clock[CLOCK] - clock[SEEN])
    clock[SEEN] = clock[CLOCK]
    for box in range(len(state.queue)):
        begin, mask = np.int64(state.queue[box].begin), np.int64(state.queue[box].mask)
        head, kept = np.int64(state.queue[box].head), 0
        for i in range(np.int64(state.queue[box].waiting)):
            entry = begin + ((head + i) & mask)
            row, arc = state.entry[entry].row, np.int64(state.entry[entry].arc)
            group = pool.card[0, row] & _LOW
            dropped = False
            for drop in range(drops.of_arc_from[arc], drops.of_arc_from[arc + 1]):
                if says(pool.card, row, drops.match[group, drop]):
                    who = pool.key[row] if drops.by_key[drop] else pool.uid[row]
                    dropped |= unit(wiring.seed, who, drops.salt[drop]) >= drops.keep[drop]
            if dropped:
                state.shed[group, arc] += 1
                at[INSIDE] -= 1
            else:
                to = begin + ((head + kept) & mask)
                state.entry[to].row, state.entry[to].arc = row, arc
                if len(state.asked):
                    state.asked[to] = state.asked[entry]
                kept += 1
        state.queue[box].waiting = kept
    # Boxes whose queue is now empty leave the ring.
    around, count = len(state.ring) - 1, 0
    order = np.empty(len(state.ring), np.uint32)
    for i in range(at[RING_COUNT]):
        turn = state.ring[(at[RING_FIRST] + i) & around]
        if state.queue[turn].waiting > 0:
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
def mark(word: Hashes, bit: int, answers: Bits) -> None:
    """Set one bit of every word to what the answers say."""
    others, at = ~(_ONE << np.uint64(bit)), np.uint64(bit)
    for i in range(len(word)):
        word[i] = word[i] & others | np.uint64(answers[i]) << at


@compiled
def entries(state: ServerState) -> Ints:
    """The entries in all queues, box by box, first come first."""
    found = np.empty(state.at[INSIDE], np.int64)
    count = 0
    for box in range(len(state.queue)):
        begin, mask = np.int64(state.queue[box].begin), np.int64(state.queue[box].mask)
        head = np.int64(state.queue[box].head)
        for i in range(np.int64(state.queue[box].waiting)):
            found[count] = begin + ((head + i) & mask)
            count += 1
    return found


@compiled
def tally(
    deliveries: Records,
    arrived: Floats,
    card: Hashes,
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
    for i in range(len(deliveries)):
        to, which = deliveries[i].output, deliveries[i].row
        epoch = min(int(arrived[which] / interval), delivered.shape[1] - 1)
        delivered[to, epoch] += 1
        line = worth_line[card[0, which] & _LOW, to]
        value[to, epoch] += worth[line, which] if line >= 0 else 1.0
        latency[i] = deliveries[i].time - arrived[which]
        recent[to, 0] += latency[i]
        recent[to, 1] += 1.0
