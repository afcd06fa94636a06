"""What rows carry: columns drawn for a source, as its histograms say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamshed.network.graph import Column, Source
from streamshed.network.qos import Histogram

Array = NDArray[Any]

UNKNOWN = Histogram.uniform(0, 100)
"""For a number of which nothing is known: LSRM's own streams."""
_WORDS = np.array([f"{letter}{digit}" for letter in "abcdefghij" for digit in range(10)])


class Values:
    """Draws a source's columns; how the rows are cut into batches makes no difference."""

    def __init__(self, source: Source, seed: np.random.SeedSequence) -> None:
        self._source = source
        seeds = seed.spawn(len(source.schema))
        self._columns = [
            (column, np.random.default_rng(seed)) for column, seed in zip(source.schema, seeds, strict=True)
        ]

    def draw(self, arrived: NDArray[np.float64]) -> dict[str, Array]:
        """The columns of rows that arrived at these times."""
        return {column.name: self._draw(column, rng, arrived) for column, rng in self._columns}

    def _draw(self, column: Column, rng: np.random.Generator, arrived: NDArray[np.float64]) -> Array:
        if column.name == self._source.arrived or column.type in ("TIMESTAMP", "DATE"):
            return arrived
        uniform = rng.random(len(arrived))
        if column.type == "BOOLEAN":
            return np.asarray(uniform < 0.5)
        if not column.numeric:
            return np.asarray(_WORDS[(uniform * len(_WORDS)).astype(np.int64)])
        return _quantiles(self._source.values.get(column.name, UNKNOWN), uniform, column.whole)


def _quantiles(histogram: Histogram, uniform: NDArray[np.float64], whole: bool) -> Array:
    edges = np.asarray(histogram.edges)
    if whole:
        # Integers from the first edge to the last, both included, each unit of the histogram one of them.
        edges = edges + (edges == edges[-1])
    if len(edges) == 2:
        values = edges[0] + uniform * (edges[1] - edges[0])
    else:
        values = np.interp(uniform, np.cumsum([0.0, *histogram.shares]), edges)
    return np.asarray(np.floor(values) if whole else values)
