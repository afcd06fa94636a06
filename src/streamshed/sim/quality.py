"""What shedding cost, measured: utilities (LSRM 5.4), SIC (DISSP 4), fairness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from streamshed.network.graph import Box, Network, Output, Source, arc, inputs
from streamshed.network.qos import LossGraph
from streamshed.sim.kernel import Ints
from streamshed.sim.layout import stateful

Passed = Mapping[tuple[str, str], tuple[int, int]]
"""(origin of rows, arc) ─► rows that reached its drops, rows that passed them."""


def tuple_utility(graph: LossGraph, expected: Ints, delivered: Ints, epochs: Sequence[int]) -> float:
    """Σ uᵢ·nᵢ / Σ nᵢ over epochs i: times in which the same share was delivered, nᵢ rows in each.

    expected, delivered: rows by interval; epochs: for each interval, which epoch it belongs to.
    An output that would have had nothing anyway has lost nothing.
    """
    count = max(epochs, default=0) + 1
    rows = np.bincount(epochs, expected, count)
    got = np.bincount(epochs, delivered, count)
    some = rows > 0
    if not some.any():
        return 1.0
    return float(np.average(graph.many(100.0 * got[some] / rows[some]), weights=rows[some]))


def sic(network: Network, passed: Passed) -> dict[str, float]:
    """Source information content of each output: 1 when nothing was lost.

    A source's rows bring 1/(number of sources of the output) in all. Boxes pass on what they get, shared
    among the rows they let through (DISSP eq. 4.1): a filter loses nothing, a drop loses its share.
    """
    shares: dict[str, list[float]] = {output.name: [] for output in network.outputs}
    for source in network.sources:
        for output, share in _reaching(network, source, passed).items():
            shares[output].append(share)
    return {name: float(np.mean(found)) if found else 1.0 for name, found in shares.items()}


def _reaching(network: Network, source: Source, passed: Passed) -> dict[str, float]:
    """The share of a source's information that reaches each output it leads to."""
    # Per node and origin of rows: information leaving it, and what would leave it if nothing were shed.
    leaving: dict[str, dict[str, tuple[float, float]]] = {source.name: {source.name: (1.0, 1.0)}}
    found: dict[str, float] = {}
    nodes: list[Box | Output] = [*network.order, *network.outputs]
    for node in nodes:
        entering: dict[str, tuple[float, float]] = {}
        for name in inputs(node):
            for origin, (mass, full) in leaving.get(name, {}).items():
                reached, kept = passed.get((origin, arc(name, node.name)), (0, 0))
                through = kept / reached if reached else 1.0
                before = entering.get(origin, (0.0, 0.0))
                entering[origin] = (before[0] + mass * through, before[1] + full)
        if not entering:
            continue
        mass, full = (sum(part[i] for part in entering.values()) for i in (0, 1))
        if isinstance(node, Output):
            found[node.name] = mass / full
        else:
            leaving[node.name] = {node.name: (mass, full)} if stateful(node) else entering
    return found


def jain(shares: Iterable[float]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything.

    >>> jain([0.5, 0.5]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    values = list(shares)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
