"""Strata: the rows of a source, cut into boxes of values within which everything happens to all rows alike.

A field is cut wherever something below tells its values apart: a filter, `protect`, a value graph. With several
fields the strata are all combinations, as the columns of a source are independent. Protected rows are strata of
their own. Fields whose spread nobody knows are not cut: what filters on them pass is the same share of all strata.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streamshed.network.catalog import Catalog
from streamshed.network.expressions.analysis import comparisons
from streamshed.network.expressions.ranges import Ranges
from streamshed.network.graph import Filter, Network, Source, ends
from streamshed.network.qos import Histogram
from streamshed.network.value_flow.cells import (
    Traces,
    output_histogram,
    source_histogram,
    traces,
)
from streamshed.network.value_flow.trace import Traced, ways

Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_MOST = 2000
"""Strata of one source. Fields that would make more are left uncut, those that fewest ask for first."""
_PROTECT, _VALUE, _FILTER = 1000, 100, 1
"""How much it matters that a field is cut."""


@dataclass(frozen=True)
class Strata:
    """The strata of one source."""

    source: str
    share: Vector
    """Of the source's rows, by stratum; all together 1."""
    protected: Mask
    low: dict[str, Vector]
    """By field, where the values of each stratum begin."""
    high: dict[str, Vector]


@dataclass
class _Cuts:
    """Where a field of a source is to be cut, and how much that matters."""

    at: set[float] = field(default_factory=set)
    weight: int = 0


def strata(catalog: Catalog, step: float | None = None, chunk: float | None = None) -> list[Strata]:
    """The strata of all sources.

    step: cut the values of value graphs as finely as this share of their output's rows, for drops by value
    """
    network = catalog.network
    known = traces(network)
    cuts = _all_cuts(catalog, known, step, chunk)
    return [_of_source(network, source, known, cuts) for source in network.sources]


def _all_cuts(
    catalog: Catalog, known: Traces, step: float | None, chunk: float | None
) -> dict[tuple[str, str], _Cuts]:
    network = catalog.network
    found: dict[tuple[str, str], _Cuts] = {}

    def note(source: str, by: str, sets: list[Ranges], weight: int) -> None:
        cuts = found.setdefault((source, by), _Cuts())
        cuts.weight += weight
        cuts.at.update(end for ranges in sets for span in ranges for end in span)

    for source in network.sources:
        for by, ranges in () if source.protect is None else comparisons(source.protect):
            note(source.name, by, [ranges], _PROTECT)
    for box in network.order:
        for by, ranges in comparisons(box.where) if isinstance(box, Filter) else ():
            for source_name, way in _origins(network, box.name, by):
                note(source_name, way.field, [way.possible(ranges), way.preimage(ranges)], _FILTER)
    for output in network.outputs:
        graph = output.qos.value
        if graph is None:
            continue
        sets = [Ranges.between(interval.low, interval.high) for interval in graph.in_chunks(chunk).intervals]
        if step is not None:
            spread = output_histogram(catalog, output, known)
            if spread is not None:
                order = graph.order(spread, chunk)
                sets += [order.dropped(100 * step * k) for k in range(1, round(1 / step))]
        for source_name, way in _origins(network, output.name, graph.field):
            note(source_name, way.field, way.preimages(sets), _VALUE)
    return found


def _origins(network: Network, node: str, by: str) -> Iterator[tuple[str, Traced]]:
    """The sources from which a field of a node comes, and on which ways."""
    names = {source.name for source in network.sources}
    for on, several in ways(network, node, by).items():
        if ends(on)[0] in names:
            for way in several:
                yield ends(on)[0], way


def _of_source(network: Network, source: Source, known: Traces, cuts: dict[tuple[str, str], _Cuts]) -> Strata:
    wanted = sorted(
        ((-each.weight, by) for (name, by), each in cuts.items() if name == source.name), key=lambda one: one
    )
    edges: dict[str, Vector] = {}
    shares: dict[str, Vector] = {}
    size = 1
    for _, by in wanted:
        spread = _spread(network, source, by, known)
        if spread is None:
            continue
        made = _edges(spread, cuts[source.name, by].at)
        if size * (len(made) - 1) <= _MOST:
            edges[by] = np.array(made)
            shares[by] = np.array([spread.share(Ranges.between(a, b)) for a, b in pairwise(made)])
            shares[by] /= shares[by].sum()
            size *= len(made) - 1
    share = np.ones(1)
    for each in shares.values():
        share = np.outer(share, each).ravel()
    places = np.indices([len(each) for each in shares.values()]).reshape(len(shares), len(share))
    low = {by: edges[by][:-1][at] for by, at in zip(shares, places, strict=True)}
    high = {by: edges[by][1:][at] for by, at in zip(shares, places, strict=True)}
    spared = protected_shares(source, share, {by: (low[by] + high[by]) / 2 for by in low})
    whole = np.concatenate((share * (1 - spared), share * spared))
    some = whole > 0
    some[: len(share)] |= share <= 0  # a stratum without rows stays, so that no source is without strata
    return Strata(
        source.name,
        whole[some],
        np.repeat([False, True], len(share))[some],
        {by: np.tile(values, 2)[some] for by, values in low.items()},
        {by: np.tile(values, 2)[some] for by, values in high.items()},
    )


def protected_shares(source: Source, share: Vector, values: dict[str, Vector]) -> Vector:
    """The share of each stratum that is protected.

    By value where all fields of `protect` are cut. A share given as `protected` is believed: of the strata that
    match so much is protected, and if it is more than match, the rest is spread over the others.
    """
    if source.protect is None:
        return np.zeros(len(share))
    if not source.protect.fields() or not source.protect.fields() <= values.keys():
        return np.full(len(share), source.protected)
    matches = np.broadcast_to(np.asarray(source.protect.evaluate(values), dtype=bool), share.shape).astype(float)
    mass = float(share @ matches)
    if not source.protected or abs(mass - source.protected) < 1e-9:
        return matches
    inside = min(1.0, source.protected / mass) if mass > 0 else 0.0
    outside = max(0.0, source.protected - mass) / (1 - mass) if mass < 1 else 0.0
    spared: Vector = np.where(matches > 0, inside, outside)
    return spared


def _spread(network: Network, source: Source, by: str, known: Traces) -> Histogram | None:
    if by in source.values:
        return source.values[by]
    for on in network.arcs_out_of(source.name):
        seen = source_histogram(network, on, by, known)
        if seen is not None:
            return seen
    return None


def _edges(spread: Histogram, cuts: set[float]) -> list[float]:
    low, high = spread.edges[0], spread.edges[-1]
    made = [low]
    for edge in sorted({edge for edge in (*spread.edges, *cuts) if low < edge < high}):
        # Ends that differ by one step of the number line (x > 5 and x >= 5) are one cut.
        if edge - made[-1] > 1e-9 * (high - low):
            made.append(edge)
    if high - made[-1] <= 1e-9 * (high - low) and len(made) > 1:
        made.pop()
    return [*made, high]
