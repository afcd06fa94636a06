"""How many partners rows still have in a join whose sides lose whole keys.

Of stratum i the share p_il of the keys is left after the drops of level l. All drops of one level take the same keys,
in the same order; those of different levels are independent. So of the pairs of strata i and j

    Π over the levels l of min(p_il, p_jl)

are left, and a row of i that is left has Π min(p_il, p_jl) / p_il of its partners. If keys are taken from i alone, at
level l, pairs are lost only if j has them still: all of them while p_il ≤ p_jl, none above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamshed.network.value_flow.strata import Vector

Kept = Mapping[int, Vector]
"""By level, the share of its keys that each stratum has left; levels that are not named took none."""
_SAME = 1 + 1e-9


@dataclass(frozen=True)
class Side:
    """What comes to a join on one side."""

    rows: Vector
    kept: Kept

    @property
    def unkeyed(self) -> Vector:
        """The rows there would be if no keys had been dropped."""
        left = np.ones(len(self.rows))
        for share in self.kept.values():
            left = left * share
        return np.divide(self.rows, left, out=np.zeros(len(left)), where=left > 0)


@dataclass(frozen=True)
class KeyMatch:
    """Two sides, by groups of strata that have the same keys left."""

    mine: Side
    theirs: Side
    level: int | None
    """Where keys are taken from my side; None: rows by themselves."""

    def partners(self, worth: Vector | None = None) -> Vector:
        """For a row of each of my strata, the rows of the other side that it can meet, each as much as it is worth."""
        factors, mine, theirs = self._factors()
        rows = self.theirs.unkeyed if worth is None else self.theirs.unkeyed * worth
        found: Vector = (factors @ np.bincount(theirs, rows, minlength=factors.shape[1]))[mine]
        return found

    def met(self, more: Vector) -> Vector:
        """For each stratum of the other side, the pairs that some more rows of mine make with its rows."""
        factors, mine, theirs = self._factors()
        found: Vector = (np.bincount(mine, more, minlength=factors.shape[0]) @ factors)[theirs]
        return self.theirs.unkeyed * found

    def left(self) -> dict[int, Vector]:
        """By level, the share of the keys of my strata that pairs have: the mean over the other side."""
        rows = self.theirs.unkeyed
        total = float(rows.sum())
        found = {}
        for level in {*self.mine.kept, *self.theirs.kept}:
            own, other = _at(self.mine, level), _at(self.theirs, level)
            if total > 0:
                shares, groups = np.unique(other, return_inverse=True)
                weights = np.bincount(groups, rows, minlength=len(shares)) / total
                own = np.minimum(own[:, None], shares[None, :]) @ weights
            found[level] = own
        return found

    def _factors(self) -> tuple[Vector, Vector, Vector]:
        levels = sorted({*self.mine.kept, *self.theirs.kept, *(() if self.level is None else (self.level,))})
        (own, mine), (other, theirs) = _groups(self.mine, levels), _groups(self.theirs, levels)
        factors = np.ones((len(own), len(other)))
        for place, level in enumerate(levels):
            p, q = own[:, place, None], other[None, :, place]
            if level == self.level:
                factors = factors * (p <= q * _SAME)
            else:
                factors = factors * np.where(p > 0, np.minimum(p, q) / np.where(p > 0, p, 1.0), 1.0)
        return factors, mine, theirs


def _at(side: Side, level: int) -> Vector:
    return side.kept[level] if level in side.kept else np.ones(len(side.rows))


def _groups(side: Side, levels: Sequence[int]) -> tuple[Vector, Vector]:
    """The different shares left, a line each, and for each stratum which of them it has."""
    if not levels:
        return np.ones((1, 0)), np.zeros(len(side.rows), dtype=np.intp)
    table = np.stack([_at(side, level) for level in levels], axis=1)
    if len(levels) == 1:
        shares, groups = np.unique(table[:, 0], return_inverse=True)
        return shares[:, None], groups
    shares, groups = np.unique(table, axis=0, return_inverse=True)
    return shares, groups.ravel()
