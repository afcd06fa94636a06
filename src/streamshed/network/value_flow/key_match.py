"""How many partners rows still have in a join whose sides lose whole keys.

Keys are dropped in the same order everywhere (`shared_keys`). So if stratum i has the share p_i of its keys left
and stratum j of the other side p_j, the share min(p_i, p_j) of their pairs is, and a row of i that is left has
min(p_i, p_j) / p_i of its partners. If keys are taken from i alone, pairs are lost only if j has them still: all
of them while p_i ≤ p_j, none above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamshed.network.value_flow.strata import Vector

_SAME = 1 + 1e-9


@dataclass(frozen=True)
class Side:
    """What comes to a join on one side."""

    rows: Vector
    kept: Vector
    """The share of its keys that each stratum has left."""

    @property
    def unkeyed(self) -> Vector:
        """The rows there would be if no keys had been dropped."""
        return np.divide(self.rows, self.kept, out=np.zeros(len(self.rows)), where=self.kept > 0)


@dataclass(frozen=True)
class KeyMatch:
    """Two sides of a join."""

    mine: Side
    theirs: Side
    by_key: bool
    """Whether what is more or less on my side are keys; else they are rows."""

    def partners(self, worth: Vector | None = None) -> Vector:
        """For a row of each of my strata, the rows of the other side that it can meet; or what those are worth."""
        rows = self.theirs.unkeyed if worth is None else self.theirs.unkeyed * worth
        shares, groups = np.unique(self.theirs.kept, return_inverse=True)
        found: Vector = self._factors(shares) @ np.bincount(groups, rows, minlength=len(shares))
        return found

    def met(self, more: Vector) -> Vector:
        """For each stratum of the other side, the pairs that some more rows of mine make with its rows."""
        shares, groups = np.unique(self.theirs.kept, return_inverse=True)
        found: Vector = (more @ self._factors(shares))[groups]
        return self.theirs.unkeyed * found

    def left(self) -> Vector:
        """The share of the keys of my strata that pairs have: in the mean over the other side."""
        rows = self.theirs.unkeyed
        if rows.sum() <= 0:
            return self.mine.kept
        shares, groups = np.unique(self.theirs.kept, return_inverse=True)
        weights = np.bincount(groups, rows, minlength=len(shares)) / rows.sum()
        found: Vector = np.minimum(self.mine.kept[:, None], shares) @ weights
        return found

    def _factors(self, shares: Vector) -> Vector:
        """[my stratum, share of their keys]: the part of them that a row of mine, or a key of it, can meet."""
        own = self.mine.kept[:, None]
        if self.by_key:
            return (own <= shares * _SAME).astype(np.float64)
        return np.where(own > 0, np.minimum(own, shares) / np.where(own > 0, own, 1.0), 1.0)
