"""How values are spread, measured while a network runs: a few thousand rows now and then, before any drop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from streamshed.network.expressions.ranges import Ranges
from streamshed.network.graph import Source
from streamshed.network.qos import Histogram

BINS = 20


class ValueSample:
    """The last few samples of one field.

    >>> sample = ValueSample()
    >>> sample.add(np.arange(1000.0))
    >>> histogram = sample.histogram()
    >>> round(histogram.share(Ranges.between(0, 250)), 2), round(sample.distance(Histogram.uniform(0, 2000)), 1)
    (0.25, 0.5)
    """

    def __init__(self, samples: int = 5) -> None:
        self._samples: deque[npt.NDArray[np.float64]] = deque(maxlen=samples)

    def add(self, values: npt.NDArray[np.float64]) -> None:
        finite = values[np.isfinite(values)]
        if len(finite):
            self._samples.append(finite)

    @property
    def values(self) -> npt.NDArray[np.float64]:
        return np.concatenate(self._samples) if self._samples else np.zeros(0)

    def histogram(self) -> Histogram | None:
        """Bins of about equal numbers of values; None while too few were seen."""
        values = self.values
        if len(values) < 10 * BINS:
            return None
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
        if len(edges) < 2:
            return None
        counts, _ = np.histogram(values, edges)
        return Histogram.of([float(edge) for edge in edges], [float(count) for count in counts])

    def distance(self, known: Histogram) -> float:
        """How far the values are from a histogram: the largest difference of the two distribution functions."""
        values = np.sort(self.values)
        if not len(values):
            return 0.0
        at = np.quantile(values, np.linspace(0.05, 0.95, 19))
        ours = np.searchsorted(values, at, side="right") / len(values)
        theirs = np.array([known.share(Ranges.between(-np.inf, float(x))) for x in at])
        return float(np.max(np.abs(ours - theirs)))


class Spreads:
    """The last few samples of the fields of all sources. Batches add to it, from threads of their own."""

    def __init__(self) -> None:
        self._fields: dict[tuple[str, str], ValueSample] = {}
        self._lock = threading.Lock()

    def add(self, source: str, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        with self._lock:
            for field_name, seen in values.items():
                self._fields.setdefault((source, field_name), ValueSample()).add(seen)

    def of(self, source: Source, off: float) -> Mapping[str, Histogram]:
        """How the values of a source are spread: as known, or as measured where that is more than `off` away."""
        spread = dict(source.values)
        with self._lock:
            for (name, column), sample in self._fields.items():
                histogram = sample.histogram() if name == source.name else None
                if histogram is not None and (column not in spread or sample.distance(spread[column]) > off):
                    spread[column] = histogram
        return spread
