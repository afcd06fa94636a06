"""The load-aware rule: which rows may join the queue. Compiled, and the only one: simulators and Spark call it.

Rivetti et al., Load-Aware Shedding, Listing III.2. What the shedder knows of the queue is one array of numbers,

    free_at, Q, ℓ, what was foreseen, rows owed, the last correction, and the last waits where they are remembered

and three small steps change it. `fits` asks whether a row that arrives now may go in; `enter` lets it in;
`correct` hears from the operator how wrong the picture was (Δ). Times are in any one unit, by any one clock.

**The picture.** LAS keeps Ĉ, the summed estimates of what was let in, and reads a row's wait as Ĉ − elapsed time.
Taken literally, idle time then runs up a credit, and a burst after it is let in whole. Kept here is the moment at
which the operator will be free: free_at ← max(free_at, now) + ŵ·(1 + ε). While there is work this is Ĉ.

**The check.** A row is let in when the target still holds *with* it, as the text says: (Q + q̂)/(ℓ + 1) ≤ τ; the
listing leaves q̂ out. A row that need not wait is always let in: no check can lock a stream out.

**Spans.** Over the last n rows: the waits of these rows are remembered where the array has room for them. Where it
has none (on Spark, where Q and ℓ go from batch to batch), a mean row leaves for each that comes.

**Debt.** Where waits are as foreseen, their mean never exceeds τ. Where Q is what rows really waited, or rows went
in by the floor, it can; by the letter nothing would then ever be let in again. So rows that wait less than τ are
let in, the less the greater the debt (down to τ/2), which pays it back within some hundred rows.

**Floor.** Of any stretch of n rows at least floor·n go in, whatever the check says. It is counted, not drawn: rows
that run again are decided alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamshed.jit import inlined, quick
from streamshed.las.check import ABSOLUTE

Floats = NDArray[np.float64]

FREE, WAITED, ROWS, FORESEEN, OWED, CORRECTION, NEXT, BOOKS = range(8)
"""Places in a queue's array: when it will be empty; Q; ℓ; the waits foreseen of the rows let in; rows owed to the
floor; what the last answer corrected; where the next wait is remembered; and how many places these are."""
PAYBACK = 100.0
"""Rows by which a debt is paid back."""


def empty_queue(free: float = -np.inf, *, waited: float = 0.0, rows: float = 0.0, span: int = 0) -> Floats:
    """A queue that is free from a moment on; `span` rows back it remembers how long they waited."""
    queue = np.zeros(BOOKS + span)
    # One is owed from the start: of few rows, too, a floor lets one in.
    queue[FREE], queue[WAITED], queue[ROWS], queue[OWED] = free, waited, rows, 1.0
    return queue


@inlined
def fits(kind: float, threshold: float, span: float, floor: float, queue: Floats, now: float) -> bool:
    """Whether a row that arrives now may go in; if so, its wait counts from now on."""
    wait = max(0.0, queue[FREE] - now)
    total, rows = queue[WAITED], queue[ROWS]
    remembers = len(queue) > BOOKS
    leaves = queue[BOOKS + int(queue[NEXT])] if remembers and rows >= span else 0.0
    counted = rows if remembers and rows >= span else rows + 1.0
    if kind == ABSOLUTE:
        admitted = wait <= threshold
    else:
        debt = total - threshold * rows
        # The quotient as well: it decided on the rows before, and the product may be off by a rounding.
        if debt > 0.0 and rows > 0.0 and total / rows > threshold:
            admitted = wait <= threshold - min(0.5 * threshold, debt / PAYBACK)
        else:
            admitted = (total - leaves + wait) / counted <= threshold
    if floor > 0.0:
        owed = queue[OWED] + floor
        admitted = admitted or owed >= 1.0
        queue[OWED] = max(0.0, owed - 1.0) if admitted else owed
    if admitted:
        queue[WAITED] = total - leaves + wait
        queue[ROWS] = counted
        queue[FORESEEN] += wait
        if remembers:
            queue[BOOKS + int(queue[NEXT])] = wait
            queue[NEXT] = queue[NEXT] + 1.0 if queue[NEXT] + 1.0 < span else 0.0
        elif span > 0.0 and counted > span:
            queue[WAITED] *= span / counted
            queue[ROWS] = span
    return bool(admitted)


@inlined
def enter(queue: Floats, now: float, cost: float) -> None:
    """A row of this (estimated) cost was let in."""
    queue[FREE] = max(queue[FREE], now) + cost


@inlined
def correct(queue: Floats, delta: float) -> None:
    """A row that carried a question was done so much later than the question said.

    One thing is not in the paper. When matrices come faster than a row passes the queue, a second question leaves
    before the first is answered; both answers then hold the same skew, and adding both corrects it twice. So a
    question leaves out what earlier answers have corrected, and its answer takes their place. With one question
    at a time this is the listing.
    """
    queue[FREE] += delta - queue[CORRECTION]
    queue[CORRECTION] = delta


@quick
def admit(
    arrivals: Floats, costs: Floats, queue: Floats, kind: float, threshold: float, span: float, floor: float
) -> NDArray[np.bool_]:
    """Go through rows in their order, as the queue will; say which may go in. `queue` moves on.

    >>> rows, queue = np.zeros(4), empty_queue()
    >>> admit(rows, np.full(4, 3.0), queue, ABSOLUTE, 5.0, 0.0, 0.0).tolist()
    [True, True, False, False]
    """
    admitted = np.empty(len(arrivals), np.bool_)
    for i in range(len(arrivals)):
        now = arrivals[i]
        goes_in = fits(kind, threshold, span, floor, queue, now)
        admitted[i] = goes_in
        if goes_in:
            enter(queue, now, costs[i])
    return admitted
