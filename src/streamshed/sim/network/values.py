"""What rows carry: columns drawn for a source, as its histograms say, and with the texts it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamshed.network.graph import Column, Source
from streamshed.network.qos import Histogram
from streamshed.network.texts import share_rest

Array = NDArray[Any]

UNKNOWN = Histogram.uniform(0, 100)
"""For a number of which nothing is known: LSRM's own streams."""
_WORDS = np.array([f"{letter}{digit}" for letter in "abcdefghij" for digit in range(10)])


class Values:
    """Draws a source's columns; how the rows are cut into batches makes no difference."""

    def __init__(
        self,
        source: Source,
        seed: np.random.SeedSequence,
        texts: Mapping[str, Mapping[str, float | None]] | None = None,
    ) -> None:
        """`texts`: for columns that the network compares with texts, those and their shares: `network.texts`."""
        self._source = source
        self._texts = {
            name: (np.array([*known]), np.cumsum([*share_rest(known).values()]))
            for name, known in (texts or {}).items()
            if known
        }
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
        if column.name in self._texts:
            return _choose(*self._texts[column.name], uniform)
        if not column.numeric:
            return _words(uniform)
        return _quantiles(self._source.values.get(column.name, UNKNOWN), uniform, column.whole)


def _words(uniform: NDArray[np.float64]) -> Array:
    return np.asarray(_WORDS[(uniform * len(_WORDS)).astype(np.int64)])


def _choose(texts: Array, ends: NDArray[np.float64], uniform: NDArray[np.float64]) -> Array:
    """Each text for its stretch of [0, 1), and other words for what is left."""
    which = np.searchsorted(ends, uniform, side="right")
    left = 1.0 - float(ends[-1])
    if left < 1e-12:  # rounding: nothing is left
        return np.asarray(texts[np.minimum(which, len(texts) - 1)])
    # What is left is stretched to [0, 1) again, so that all words are equally likely there.
    others = _words(np.clip((uniform - ends[-1]) / left, 0.0, np.nextafter(1.0, 0.0)))
    return np.where(which < len(texts), texts[np.minimum(which, len(texts) - 1)], others)


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
