"""What rows cost in real-time mode, learned by each task for itself (`LearnedCosts.java`).

A task pulls its rows one by one, in one thread. So the time from the moment a row has passed the drop until the
next row comes to it is what the row's work took: all that follows in the task, and the sink.

    F, W      Count-Min matrices over the cost key: how often, and how long in all [1, III-C]
    m         = ΣW/ΣF, the mean
    ŵ(key)    = (W + 4·m) / (F + 4)      at the row of the matrices with the least F
    sample    counts for min(sample, 4·ŵ)
    u         ← u + (ŵ − u)/1024         what a usual row costs; with every row that arrives, kept or not
    cost      = ŵ/u                      of a row on the age ladder (`age_ladder`); 1 before there are 64 samples
    F, W      are halved when ΣF is 64, then 128, and so on; from then on each time that it is 4,096

- **Only while rows wait.** If the next row was not there, the time went into waiting for it. It was there if it
  was half as old as the lowest rung when the row before came. To be older than the row before's coming is not
  enough: Kafka's rows are some milliseconds old before they can be read, and in a calm job arrivals would be timed
  instead of work. So costs are learned from when rows begin to be late, and none goes before half a bound later.
- **Pauses.** A garbage collection between two rows is no row's cost. A sample of more than four times what was
  expected counts as four times. A key that has become a hundred times as dear is followed in several steps.
- **Few samples.** A cell that was never seen answers the mean; one that was seen seldom is near it, as if it had
  seen four more rows of the mean cost.
- **Changes.** Halving leaves W/F as it is, and gives new samples more weight. What is dropped is not timed, so a
  key that is thought dear might never be timed again: as its F fades, its cost comes back to 1, and it is tried
  anew. What was timed while the code was cold fades first.

Of h₁^c₁ and h₂^c₂ the same one is lower if both costs are multiplied by a number: who goes before whom does not
depend on u. But with m in its place, which is that of the rows that passed, all costs rise as dear rows go. All
rows then stand lower, and the queue is so short that it is gone now and then, which lets dear rows pass.

[1] N. Rivetti et al.: Load-Aware Shedding in Stream Processing Systems. DEBS 2016.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamshed.records import LAS_DELTA, LAS_EPSILON

if TYPE_CHECKING:
    from streamshed.sketch.hashing import CarterWegman

HEIGHT_BITS = 32
"""Of a row's height on the ladder, as the rule takes it."""
DIGEST_BITS = 31
_SEED = 20160504  # any: a task's matrices are its own


def cost_hashes() -> CarterWegman:
    """The hash functions of the matrices, which have the paper's size."""
    from streamshed.sketch.count_min import Size  # who learns no costs need not load numba
    from streamshed.sketch.hashing import CarterWegman

    size = Size.of(LAS_EPSILON, LAS_DELTA)
    return CarterWegman.draw(size.rows, size.columns, _SEED)


def packed_hashes(hashes: CarterWegman) -> bytearray:
    """As the rule takes them: the number of columns, then a factor and an offset for each row."""
    pairs = zip(hashes.a.tolist(), hashes.b.tolist(), strict=True)
    numbers = [hashes.columns, *(number for pair in pairs for number in pair)]
    return bytearray(struct.pack(f"<{len(numbers)}q", *numbers))


def cost_digest(keys: Sequence[Column]) -> Column:
    """A row's cost key as a number below 2³¹ − 1, and that number itself for a row without one: it costs 1."""
    from streamshed.sketch.hashing import PRIME

    some = functools.reduce(Column.__or__, (key.isNotNull() for key in keys))
    return F.when(some, F.pmod(F.xxhash64(*keys), F.lit(PRIME))).otherwise(F.lit(PRIME)).cast("bigint")


def costed(digest: Column, height: Column) -> Column:
    """Digest and height (0 … 1) in one number, for the rule."""
    step = F.floor(height * F.lit(float(1 << HEIGHT_BITS)))
    highest = F.lit((1 << HEIGHT_BITS) - 1)
    return F.shiftleft(F.least(step, highest).cast("bigint"), DIGEST_BITS).bitwiseOR(digest)
