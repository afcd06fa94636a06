"""The parameters of Load-Aware Shedding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamshed.errors import InvalidArgument
from streamshed.records import LAS_DELTA, LAS_EPSILON, LAS_TOLERANCE, LAS_WINDOW
from streamshed.sketch.count_min import Size
from streamshed.sketch.hashing import CarterWegman

RESYNC = 16
"""Rows let in between two questions; not in the paper, which asks after new matrices only. The picture of the
queue is then right to within what went wrong since, also while costs change faster than they are learned."""


@dataclass(frozen=True, slots=True)
class LasSettings:
    """Parameters of LAS, the paper's by default.

    >>> LasSettings().size
    Size(rows=4, columns=55)
    """

    epsilon: float = LAS_EPSILON
    """ε, the sketch's, which also sets the caution: each estimate counts 1 + ε times. 1 is the end of the paper's
    Figure 8: three columns, and every estimate doubled."""
    delta: float = LAS_DELTA
    """δ, the sketch's."""
    window: int = LAS_WINDOW
    """N, in rows."""
    tolerance: float = LAS_TOLERANCE
    """μ: the change of the snapshot below which costs count as stable."""
    resync: int | None = None
    """Rows let in between two questions beyond those after new matrices; the paper has none."""
    floor: float = 0.0
    """Share of the rows that goes in whatever the check says."""

    def __post_init__(self) -> None:
        Size.of(self.epsilon, self.delta)
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
            raise InvalidArgument("the window must be a whole number of rows, at least 1", got=self.window)
        if isinstance(self.tolerance, bool) or not 0 < self.tolerance < 1:
            raise InvalidArgument("the tolerance must be above 0 and below 1", got=self.tolerance)
        resync = self.resync
        if resync is not None and (isinstance(resync, bool) or not isinstance(resync, int) or resync < 1):
            raise InvalidArgument("resync must be a whole number of rows, at least 1, or None", got=resync)
        if isinstance(self.floor, bool) or not 0 <= self.floor <= 1:
            raise InvalidArgument("the floor must be a share between 0 and 1", got=self.floor)

    @property
    def size(self) -> Size:
        return Size.of(self.epsilon, self.delta)

    def hashes(self, seed: int | np.random.Generator) -> CarterWegman:
        """The functions that an operator and its shedder share."""
        return CarterWegman.draw(self.size.rows, self.size.columns, seed)
