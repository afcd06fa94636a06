"""The network as drops see it: candidate arcs, and what one row costs and becomes between them.

LSRM 4.3.1: on a stretch without splits a drop is best at its beginning, so only the arcs out of sources
and out of split points need to be considered. Between them the network is linear: a row that passes
candidate u costs `work` seconds until the next candidates, of which it reaches c `to[c]` times, and
reaches output o `out[o]` times.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass

from streamshed.network.catalog import Catalog
from streamshed.network.expression import Expression
from streamshed.network.graph import Output, arc, ends
from streamshed.policies.contract import protection


@dataclass(frozen=True)
class Segment:
    """What follows one candidate arc, per row that passes it."""

    index: int
    arc: str
    source: str | None
    """The source it comes from, for an arc out of a source."""
    work: float
    to: tuple[tuple[int, float], ...]
    out: tuple[tuple[str, float], ...]
    protect: Expression | None


@dataclass(frozen=True)
class Segments:
    """All candidate arcs, those upstream first."""

    all: tuple[Segment, ...]
    parents: tuple[tuple[tuple[int, float], ...], ...]
    """For each candidate, the candidates whose rows reach it, and how many per row."""

    @staticmethod
    def of(catalog: Catalog, extra: Collection[str] = ()) -> Segments:
        """The candidates of a network, and extra arcs as further ones."""
        network = catalog.network
        protectable = protection(network)
        order = {node.name: index for index, node in enumerate(network.heads)}
        sources = {source.name for source in network.sources}
        splits = sources | set(network.split_points)
        arcs = [
            name
            for name in network.arcs
            if name in protectable and (ends(name)[0] in splits or name in set(extra))
        ]
        arcs.sort(key=lambda name: order.get(ends(name)[0], -1))  # upstream first; of one node, as they were
        index_of = {name: index for index, name in enumerate(arcs)}
        found: list[Segment] = []
        parents: list[list[tuple[int, float]]] = [[] for _ in arcs]
        for index, name in enumerate(arcs):
            work, to, out = _below(catalog, name, index_of, order)
            for child, times in to:
                parents[child].append((index, times))
            tail = ends(name)[0]
            found.append(Segment(index, name, tail if tail in sources else None, work, to, out, protectable[name]))
        return Segments(tuple(found), tuple(map(tuple, parents)))


def _below(
    catalog: Catalog, start: str, candidates: dict[str, int], order: dict[str, int]
) -> tuple[float, tuple[tuple[int, float], ...], tuple[tuple[str, float], ...]]:
    """Work, next candidates and outputs of one row that enters the head of an arc."""
    network = catalog.network
    head = ends(start)[1]
    entering = {head: 1.0}
    queue = [(order[head], head)]
    work = 0.0
    to: dict[int, float] = {}
    out: dict[str, float] = {}
    while queue:  # in topological order, so that a node's rows are all there when its turn comes
        _, name = heapq.heappop(queue)
        rows = entering[name]
        if isinstance(network.nodes[name], Output):
            out[name] = out.get(name, 0.0) + rows
            continue
        work += rows * catalog.costs[name]
        rows *= catalog.selectivities[name]
        for after in network.consumers[name]:
            on = arc(name, after)
            if on in candidates:
                to[candidates[on]] = to.get(candidates[on], 0.0) + rows
            elif after in entering:
                entering[after] += rows
            else:
                entering[after] = rows
                heapq.heappush(queue, (order[after], after))
    return work, tuple(to.items()), tuple(out.items())
