"""What an interval costs, learned from the intervals seen: how many rows may the next one keep?"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_COLD_BATCHES = 4
_COLD_FORGETTING = 0.3
_OFF = 1.5  # a duration this many times off its prediction is odd
_CORRECTION = 0.35  # share of the last batch's deviation that is taken over at once
_RIDGE = 5e-3
_CUT = 0.5  # weight of such an interval
_FIXED = 0.3  # share of an interval that was cut which is no rows', at most
_FADING = 1.005  # what the shortest interval was is forgotten so fast
_ODD = 0.05  # the same for an odd batch: it may have stood still


class CostModel(Protocol):
    """Learns from finished intervals; answers in rows and seconds."""

    @property
    def ready(self) -> bool:
        """Whether enough was seen to answer."""

    @property
    def spread(self) -> float:
        """How far durations usually are from the prediction, as a share of it."""

    def observe(
        self, duration: float, arrived: float, kept: float, *, cut: bool = False, tail: float = 0.0
    ) -> None:
        """An interval took `duration` seconds for `arrived` rows, of which `kept` were processed.

        `cut`: it took as long as it was let, and kept what it could; not the other way round. `tail` of its
        seconds came after the last row.
        """

    def predict(self, arrived: float, kept: float) -> float:
        """Seconds that an interval with these rows will take."""

    def fitting(self, arrived: float, allowed: float) -> float:
        """Rows out of `arrived` that can be kept if the interval may take `allowed` seconds."""

    def remember(self) -> dict[str, Any]:
        """What was learned, as JSON-able data."""

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Go on with it; raises ValueError, KeyError or TypeError if it is nothing of the kind."""


class FrozenCost:
    """What another model says. Predictions must not be learned from as if they had happened."""

    def __init__(self, model: CostModel) -> None:
        self._model = model
        self.most_fixed = math.inf
        """What an interval costs whatever is in it, at most, whatever the model says."""

    @property
    def ready(self) -> bool:
        return self._model.ready

    @property
    def spread(self) -> float:
        return self._model.spread

    @property
    def _less(self) -> float:
        return max(0.0, self._model.predict(0.0, 0.0) - self.most_fixed)

    def observe(
        self, duration: float, arrived: float, kept: float, *, cut: bool = False, tail: float = 0.0
    ) -> None:
        """Nothing is learned."""

    def predict(self, arrived: float, kept: float) -> float:
        return self._model.predict(arrived, kept) - self._less

    def fitting(self, arrived: float, allowed: float) -> float:
        return self._model.fitting(arrived, allowed + self._less)

    def remember(self) -> dict[str, Any]:
        return self._model.remember()

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Nothing is learned."""


class MeanCost:
    """Mean cost of a tuple over a sliding window (DISSP eq. 5.2 and 5.3).

    C_T = t / n with the measured t, smoothed over the last 40 intervals (DISSP 5.4); then
    N_keep = δ / C_T. Exact where rows are all that costs. On Spark they are not: a micro-batch has a
    fixed cost and dropped rows are cheap, so `AffineCost` is used there and this is the baseline.

    The numbers of DISSP figure 5.2, 5,000 tuples in 300 ms and an interval of 250 ms:

    >>> model = MeanCost()
    >>> model.observe(duration=0.300, arrived=5000, kept=5000)
    >>> f"{model.cost * 1e3:.2f} ms a tuple, {model.fitting(arrived=9000, allowed=0.250):.0f} fit"
    '0.06 ms a tuple, 4167 fit'
    """

    def __init__(self, window: int = 40) -> None:
        self._costs: deque[float] = deque(maxlen=window)

    @property
    def cost(self) -> float:
        """C_T, seconds a tuple; 0 while nothing is known."""
        return sum(self._costs) / len(self._costs) if self._costs else 0.0

    @property
    def ready(self) -> bool:
        return bool(self._costs)

    @property
    def spread(self) -> float:
        return 0.0

    def observe(
        self, duration: float, arrived: float, kept: float, *, cut: bool = False, tail: float = 0.0
    ) -> None:
        if kept > 0 and duration > 0:
            self._costs.append(duration / kept)

    def predict(self, arrived: float, kept: float) -> float:
        return self.cost * kept

    def fitting(self, arrived: float, allowed: float) -> float:
        return arrived if self.cost == 0 else min(arrived, max(0.0, allowed) / self.cost)

    def remember(self) -> dict[str, Any]:
        return {"costs": list(self._costs)}

    def recall(self, learned: Mapping[str, Any]) -> None:
        costs = np.array(learned["costs"], dtype=np.float64)
        if not (np.isfinite(costs).all() and (costs > 0).all()):
            raise ValueError("no costs")
        self._costs.extend(costs.tolist())


class AffineCost:
    """Affine cost of a micro-batch: t = c₀ + c₁·kept + c₂·arrived, never negative.

    c₀ is what a batch costs whatever is in it, c₁ what processing a row costs, c₂ what reading (and
    maybe dropping) one costs. Fitted by least squares with forgetting: the normal equations
    A = Σ φᵏ x xᵀ and b = Σ φᵏ x t are updated in place, and the 3-variable non-negative problem is
    solved exactly by trying its active sets, so equal samples give equal coefficients on any machine.

    A least-squares fit follows a change of cost slowly and an odd batch (a garbage collection, a noisy
    neighbour) too well. So a sample far off the prediction weighs less, unless the one before was off
    on the same side, and a quick multiplicative correction tracks what the fit has yet to learn.

    While nothing is shed, kept = arrived and the data cannot tell c₁ from c₂; a weak prior then says
    that a dropped row costs `drop_share` of a kept one, and yields as soon as shedding tells more.

    Parameters
    ----------
    forgetting
        φ, the weight of a sample against the one after it; 0.9 remembers some 10 batches.
    drop_share
        Prior of c₂ / (c₁ + c₂).
    warm_up
        Samples before the model is `ready`. A job's first batches compile code and cost far more than
        later ones, so the first few weigh little.

    >>> model = AffineCost()
    >>> for rows in (1000, 4000, 2000, 8000, 6000, 1000, 5000):
    ...     model.observe(duration=0.2 + 100e-6 * rows, arrived=rows, kept=rows)
    >>> f"{model.fixed:.2f} s + {(model.per_kept + model.per_arrived) * 1e6:.0f} µs a row"
    '0.21 s + 96 µs a row'
    """

    def __init__(self, forgetting: float = 0.9, drop_share: float = 0.1, warm_up: int = 2) -> None:
        self._forgetting = forgetting
        self._drop_share = drop_share
        self._warm_up = warm_up
        self._seen = 0
        self._normal: NDArray[np.float64] = np.zeros((3, 3))
        self._moment: NDArray[np.float64] = np.zeros(3)
        self._coefficients: tuple[float, float, float] = (0.0, 0.0, 0.0)
        self._correction = 1.0
        self._last_off = 0
        self._spread = 0.1
        self._shortest = self._assumed = math.inf

    @property
    def spread(self) -> float:
        return self._spread

    @property
    def fixed(self) -> float:
        """c₀, seconds a batch."""
        return self._coefficients[0] * self._correction

    @property
    def per_kept(self) -> float:
        """c₁, seconds a kept row on top of `per_arrived`."""
        return self._coefficients[1] * self._correction

    @property
    def per_arrived(self) -> float:
        """c₂, seconds an arrived row, dropped or not."""
        return self._coefficients[2] * self._correction

    @property
    def ready(self) -> bool:
        return self._seen >= self._warm_up

    def observe(
        self, duration: float, arrived: float, kept: float, *, cut: bool = False, tail: float = 0.0
    ) -> None:
        if arrived <= 0 or duration <= 0:
            return
        weight = self._judge(duration, arrived, kept) if self.ready else 1.0
        self._seen += 1
        if cut:
            # Such intervals are of one length, whatever they kept: a fit would take that for a fixed cost.
            self._assumed = min(self._assumed, tail + _FIXED * (duration - tail))
            weight *= _CUT
        else:
            self._shortest = min(duration, _FADING * self._shortest)
        forgetting = _COLD_FORGETTING if self._seen <= _COLD_BATCHES else self._forgetting
        row = np.array([1.0, kept, arrived])
        self._normal = forgetting * self._normal + weight * np.outer(row, row)
        self._moment = forgetting * self._moment + weight * row * duration
        self._coefficients = self._solve()

    def _judge(self, duration: float, arrived: float, kept: float) -> float:
        """Track the correction; tell how much the sample may weigh in the fit."""
        c0, c1, c2 = self._coefficients
        expected = max(c0 + c1 * kept + c2 * arrived, 1e-9)
        ratio = min(4.0, max(0.25, duration / expected))
        self._spread += 0.15 * (min(0.5, abs(math.log(ratio / self._correction))) - self._spread)
        off = (ratio > _OFF) - (ratio < 1.0 / _OFF)
        odd = off != 0 and off != self._last_off
        self._last_off = off
        self._correction *= (ratio / self._correction) ** (_ODD if odd else _CORRECTION)
        return 0.2 if odd else 1.0

    def predict(self, arrived: float, kept: float) -> float:
        return self.fixed + self.per_kept * kept + self.per_arrived * arrived

    def fitting(self, arrived: float, allowed: float) -> float:
        spare = allowed - self.fixed - self.per_arrived * arrived
        if spare <= 0:
            return 0.0
        if self.per_kept <= 0:
            return arrived
        return min(arrived, spare / self.per_kept)

    def remember(self) -> dict[str, Any]:
        return {
            "seen": self._seen,
            "normal": self._normal.tolist(),
            "moment": self._moment.tolist(),
            "correction": self._correction,
            "spread": self._spread,
            "shortest": self._shortest if math.isfinite(self._shortest) else None,
        }

    def recall(self, learned: Mapping[str, Any]) -> None:
        normal = np.array(learned["normal"], dtype=np.float64)
        moment = np.array(learned["moment"], dtype=np.float64)
        correction, spread = float(learned["correction"]), float(learned["spread"])
        shortest = math.inf if learned["shortest"] is None else float(learned["shortest"])
        numbers = [*normal.ravel(), *moment, correction, spread, 0.0 if shortest == math.inf else shortest]
        if normal.shape != (3, 3) or moment.shape != (3,) or not np.isfinite(numbers).all() or correction <= 0:
            raise ValueError("no cost model")
        self._seen, self._normal, self._moment = int(learned["seen"]), normal, moment
        self._correction, self._spread, self._shortest = correction, spread, shortest
        self._coefficients = self._solve()

    def _solve(self) -> tuple[float, float, float]:
        normal, moment = self._normal.copy(), self._moment
        rows_squared = normal[2, 2]
        # Prior, as one pseudo-sample: s·(c₂ − d/(1−d)·c₁) = 0 with a hundredth of the data's weight.
        # Under real shedding kept and arrived differ by far more than that, and the data decides.
        share = self._drop_share / (1.0 - self._drop_share)
        direction = np.array([0.0, -share, 1.0])
        normal += 1e-2 * rows_squared * np.outer(direction, direction)
        # And a trace of ridge on the rows, for batches that are all of one size: calm ones, which follow each
        # other at once, would have rows cost as much time as they take to arrive, and every calm job be at its
        # limit.
        normal[1:, 1:] += _RIDGE * self._normal[1:, 1:]
        best = self._least_squares(normal, moment)
        most = self._shortest if math.isfinite(self._shortest) else self._assumed
        if best is not None and best[0] > most:
            # No interval costs less than what each costs in any case.
            rows = self._least_squares(normal, moment - normal[0] * most, fixed=False)
            best = None if rows is None else (most, rows[1], rows[2])
        return self._coefficients if best is None else best

    @staticmethod
    def _least_squares(
        normal: NDArray[np.float64], moment: NDArray[np.float64], *, fixed: bool = True
    ) -> tuple[float, float, float] | None:
        """The non-negative coefficients with the least squared error; without a fixed cost if that is known."""
        best: tuple[float, tuple[float, float, float]] | None = None
        for size in (3, 2, 1):
            for active in combinations(range(0 if fixed else 1, 3), size):
                picked = list(active)
                block = normal[np.ix_(picked, picked)]
                scale = np.sqrt(np.diag(block))
                if not np.all(scale > 0):
                    continue
                # Solved in scaled variables: rows are counted in thousands, batches in ones.
                scaled = block / np.outer(scale, scale)
                try:
                    solution = np.linalg.solve(scaled, moment[picked] / scale) / scale
                except np.linalg.LinAlgError:
                    continue
                if np.any(solution < 0) or not np.all(np.isfinite(solution)):
                    continue
                full = np.zeros(3)
                full[picked] = solution
                loss = float(full @ normal @ full - 2.0 * full @ moment)
                candidate = (float(full[0]), float(full[1]), float(full[2]))
                if best is None or loss < best[0]:
                    best = (loss, candidate)
        return None if best is None else best[1]
