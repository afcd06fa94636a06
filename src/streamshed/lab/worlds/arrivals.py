"""Rows that come in, one after the other: how many until a moment, and when each of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_STEP = 0.02  # seconds: rates are constant for so long


class Arrivals:
    """Rows are numbered as they come, from 0; a part of a row has come as well.

    >>> arrivals = Arrivals(lambda t: 100.0, seconds=10.0)
    >>> round(float(arrivals.until(2.5))), round(float(arrivals.when(250)), 2)
    (250, 2.5)
    """

    def __init__(self, rate: Callable[[float], float], seconds: float, before: float = 0.0) -> None:
        """`rate` is rows a second at a moment; what came in the `before` seconds at the first rate waits
        already."""
        moments = np.arange(0.0, seconds + 2 * _STEP, _STEP)
        rates = np.array([rate(float(t)) for t in moments[:-1] + _STEP / 2])
        steps = rates * _STEP
        if before > 0:
            moments = np.concatenate([[-before], moments])
            steps = np.concatenate([[before * rate(0.0)], steps])
        self.begin = float(moments[0])
        self._moments: Floats = moments
        self._counts: Floats = np.concatenate([[0.0], np.cumsum(steps)])

    def until(self, moment: float | Floats) -> Floats:
        """Rows that have come by then."""
        found: Floats = np.interp(np.asarray(moment), self._moments, self._counts)
        return found

    def when(self, row: float | Floats) -> Floats:
        """When a row came."""
        found: Floats = np.interp(np.asarray(row), self._counts, self._moments)
        return found
