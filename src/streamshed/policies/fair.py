"""Fair shedding of batches: take from the query that has most (DISSP 5.3, Algorithm 1).

    1      lock the input buffer: what waits does not change while it is looked at
    2–3    q_SIC of each query: what its results have now
    4–8    all batches count as discarded: q̂_SIC is what each query has without them
    9–15   while fewer than N tuples are admitted: of the query with the least q̂_SIC, admit the batch with the
           highest SIC, and let q̂_SIC grow by it
    16     unlock

Two kinds of heaps hold what is waiting: one of the queries, least q̂_SIC first, and for each query one of its
batches, highest SIC first. No step looks at all of them again, so n batches of m queries take O(n + n·(log n + log
m)). As in the listing, the last batch may exceed N: what is admitted is N tuples and a part of a batch, or all if
there are fewer.

Two options, which change only what "least" means. Weights: q̂_SIC / weight is made equal, so that a query of
weight 2 keeps twice the share of its information that others keep, as far as it has that much. Minimum: queries
below their minimum come first, whatever others have.

With batches of equal size the choice is a max-min one: no other that admits as many has a larger least q̂_SIC. With
batches of any size it is within one batch of that.

>>> import numpy as np
>>> batches = Batches.of(query=[0, 0, 0, 1], tuples=[10, 10, 10, 10], sic=[0.1, 0.1, 0.1, 0.4])
>>> admit(batches, tuples=20, projected=[0.0, 0.0]).tolist()
[True, False, False, True]
>>> admit(batches, tuples=20, projected=[0.0, 0.0], weights=[4.0, 1.0]).tolist()
[True, False, False, True]
>>> admit(batches, tuples=20, projected=[0.0, 0.5]).tolist()
[True, True, False, False]

DISSP: chapter 5 of a thesis on quality-centric stream processing, Imperial College London; Algorithm 1, "Tuple
shedding with local fairness".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamshed.errors import InvalidArgument
from streamshed.jit import quick

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Admitted = npt.NDArray[np.bool_]


class Batches(NamedTuple):
    """What waits in an input buffer, one number of each kind for each batch."""

    query: Ints
    tuples: Ints
    sic: Floats
    """Of all its tuples together."""

    @staticmethod
    def of(query: Sequence[int], tuples: Sequence[int], sic: Sequence[float]) -> Batches:
        return Batches(np.asarray(query, np.int64), np.asarray(tuples, np.int64), np.asarray(sic, np.float64))


def admit(
    batches: Batches,
    tuples: float,
    projected: Sequence[float] | Floats,
    *,
    weights: Sequence[float] | Floats | None = None,
    minimum: Sequence[float] | Floats | None = None,
) -> Admitted:
    """Which batches to keep so that `tuples` are kept; all others are shed.

    projected: q̂_SIC of each query, without any of the batches
    weights: how much each query counts, 1 unless told
    minimum: SIC that each query is to have before others get more, 0 unless told
    """
    level = np.array(projected, np.float64)
    count = len(level)
    weight = np.ones(count) if weights is None else np.asarray(weights, np.float64)
    least = np.zeros(count) if minimum is None else np.asarray(minimum, np.float64)
    check_weights(weight)
    if not ((least >= 0) & (least <= 1)).all():
        raise InvalidArgument(
            "a minimum SIC lies between 0 and 1", got=float(least[~((least >= 0) & (least <= 1))][0])
        )
    chosen = np.zeros(len(batches.query), np.bool_)
    _admit(batches.query, batches.tuples, batches.sic, level, weight, least, float(tuples), chosen)
    return chosen


def check_weights(weights: Floats) -> None:
    """A query that counts nothing, or less, could never be treated fairly."""
    wrong = weights[~((weights > 0) & np.isfinite(weights))]
    if len(wrong):
        raise InvalidArgument(
            "a query's weight must be above 0", got=float(wrong[0]), hint="1 counts once, 2 double"
        )


@quick
def _admit(
    query: Ints,
    tuples: Ints,
    sic: Floats,
    level: Floats,
    weight: Floats,
    least: Floats,
    wanted: float,
    chosen: Admitted,
) -> None:
    """Lines 4 to 15."""
    count = len(level)
    # Each query's batches stand together: start[q] … start[q + 1] of `waiting` is its heap.
    start = np.zeros(count + 1, np.int64)
    for each in query:
        start[each + 1] += 1
    for number in range(count):
        start[number + 1] += start[number]
    filled = start[:-1].copy()
    waiting = np.empty(len(query), np.int64)
    for batch in range(len(query)):
        waiting[filled[query[batch]]] = batch
        filled[query[batch]] += 1
    has_enough = level >= least
    has = level / weight
    lacks, alike = -sic, np.ones(len(sic), np.bool_)  # of batches the highest SIC comes first
    left = np.empty(count, np.int64)
    queries = np.empty(count, np.int64)
    active = 0
    for number in range(count):
        left[number] = start[number + 1] - start[number]
        heap = waiting[start[number] : start[number + 1]]
        for place in range(left[number] // 2 - 1, -1, -1):
            _sink(heap, place, left[number], lacks, alike)
        if left[number]:
            queries[active] = number
            active += 1
    for place in range(active // 2 - 1, -1, -1):
        _sink(queries, place, active, has, has_enough)
    admitted = 0.0
    while admitted < wanted and active:
        poorest = queries[0]
        heap = waiting[start[poorest] : start[poorest + 1]]
        batch = heap[0]
        chosen[batch] = True
        admitted += tuples[batch]
        level[poorest] += sic[batch]
        has[poorest] = level[poorest] / weight[poorest]
        has_enough[poorest] = level[poorest] >= least[poorest]
        left[poorest] -= 1
        heap[0] = heap[left[poorest]]
        if left[poorest]:
            _sink(heap, 0, left[poorest], lacks, alike)
        else:
            active -= 1
            queries[0] = queries[active]
        _sink(queries, 0, active, has, has_enough)


@quick
def _sink(heap: Ints, place: int, size: int, key: Floats, later: Admitted) -> None:
    """Let an element sink below those that come before it."""
    moving = heap[place]
    child = 2 * place + 1
    while child < size:
        if child + 1 < size and _before(heap[child + 1], heap[child], key, later):
            child += 1
        if not _before(heap[child], moving, key, later):
            break
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = moving


@quick
def _before(one: int, other: int, key: Floats, later: Admitted) -> bool:
    """By the least key, after all that are not `later`; of equal ones the first."""
    if later[one] != later[other]:
        return bool(later[other])
    return bool(key[one] < key[other] or (key[one] == key[other] and one < other))
