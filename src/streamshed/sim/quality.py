"""What shedding cost, measured: utilities (LSRM 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamshed.network.qos import LossGraph
from streamshed.sim.network.kernel import Ints


def tuple_utility(graph: LossGraph, expected: Ints, delivered: Ints, epochs: Sequence[int]) -> float:
    """Σ uᵢ·nᵢ / Σ nᵢ over epochs i: times in which the same share was delivered, nᵢ rows in each.

    expected, delivered: rows by interval; epochs: for each interval, which epoch it belongs to.
    An output that would have had nothing anyway has lost nothing.
    """
    count = max(epochs, default=0) + 1
    rows = np.bincount(epochs, expected, count)
    got = np.bincount(epochs, delivered, count)
    some = rows > 0
    if not some.any():
        return 1.0
    return float(np.average(graph.many(100.0 * got[some] / rows[some]), weights=rows[some]))
