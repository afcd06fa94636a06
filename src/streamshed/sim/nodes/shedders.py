"""Which batches a node keeps when not all fit: fair, and two to compare it with."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from streamshed.errors import InvalidArgument
from streamshed.policies.admission import evenly
from streamshed.policies.fair import Admitted, Batches, Floats, admit


class BatchShedder(Protocol):
    @property
    def name(self) -> str: ...

    def choose(
        self, batches: Batches, tuples: float, projected: Floats, weights: Floats, minimum: Floats
    ) -> Admitted:
        """The batches to keep so that so many tuples are kept; `projected`: what each query has without them."""
        ...


class FairBatches:
    """`fair`: DISSP's Algorithm 1."""

    name = "fair"

    def choose(
        self, batches: Batches, tuples: float, projected: Floats, weights: Floats, minimum: Floats
    ) -> Admitted:
        return admit(batches, tuples, projected, weights=weights, minimum=minimum)


class RandomBatches:
    """`random`: batches in any order, until there are enough (DISSP 5.2)."""

    name = "random"

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(
        self, batches: Batches, tuples: float, projected: Floats, weights: Floats, minimum: Floats
    ) -> Admitted:
        order = self._rng.permutation(len(batches.query))
        before = np.cumsum(batches.tuples[order]) - batches.tuples[order]
        chosen = np.zeros(len(order), np.bool_)
        chosen[order[before < tuples]] = True
        return chosen


class UniformBatches:
    """`input-uniform`: the same number of tuples from each query; what one cannot give, the others do (LSRM 5.3).

    Where a part of a batch is to go, the whole of it goes with that probability.
    """

    name = "input-uniform"

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(
        self, batches: Batches, tuples: float, projected: Floats, weights: Floats, minimum: Floats
    ) -> Admitted:
        waiting = np.bincount(batches.query, batches.tuples, len(projected))
        gives = {str(query): float(count) for query, count in enumerate(waiting) if count}
        taken = evenly(gives, max(0.0, float(waiting.sum()) - tuples))
        left = np.array([count - taken.get(str(query), 0.0) for query, count in enumerate(waiting)])
        chosen = np.zeros(len(batches.query), np.bool_)
        for number, chance in enumerate(self._rng.random(len(chosen))):  # the oldest first
            query, size = batches.query[number], batches.tuples[number]
            chosen[number] = left[query] > chance * size
            left[query] = max(0.0, left[query] - size)
        return chosen


SHEDDERS = ("fair", "random", "input-uniform")


def shedder(name: str, rng: np.random.Generator) -> BatchShedder:
    if name not in SHEDDERS:
        raise InvalidArgument("no such shedder of batches", got=repr(name), hint=", ".join(SHEDDERS))
    return FairBatches() if name == "fair" else RandomBatches(rng) if name == "random" else UniformBatches(rng)
