"""The network as drops see it: candidate arcs, and what one row costs and becomes between them.

LSRM 4.3.1: on a stretch without splits a drop is best at its beginning, so only the arcs out of sources
and out of split points need to be considered. Between them a row that passes candidate u costs `work` seconds
until the next candidates, of which it reaches c `to[c]` times, and reaches output o `out[o]` times: in the mean
over the rows that may be dropped there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from streamshed.network.expressions.expression import Expression
from streamshed.network.graph import Join, Output, ends
from streamshed.network.value_flow.flow_model import FlowModel, FlowState
from streamshed.network.value_flow.strata import Vector
from streamshed.policies.contract import protection


@dataclass(frozen=True)
class Segment:
    """What follows one candidate arc, per row that passes it."""

    index: int
    arc: str
    source: str | None
    """The source it comes from, for an arc out of a source."""
    full: float
    """Rows per second that may be dropped there, when nothing is."""
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
    linear: bool
    """Whether these figures hold under any drops: no joins, and no candidate where streams that differ meet."""

    @staticmethod
    def of(model: FlowModel, extra: Collection[str] = (), state: FlowState | None = None) -> Segments:
        """The candidates of a network, and extra arcs as further ones.

        state: under these drops, as one row less or more would do; by itself, when nothing is dropped
        """
        arcs = candidates(model, extra)
        state = state or model.whole
        protectable = protection(model.network)
        sources = {source.name for source in model.network.sources}
        index_of = {name: index for index, name in enumerate(arcs)}
        found: list[Segment] = []
        parents: list[list[tuple[int, float]]] = [[] for _ in arcs]
        for index, name in enumerate(arcs):
            island = model.island(name)
            full = model.free_rows(model.whole.reaching, name)
            rows = state.passing[name] * island.free
            if rows.sum() <= 0:
                rows = model.whole.reaching[name] * island.free
            each = rows / rows.sum() if rows.sum() > 0 else np.full(island.size, 1 / island.size)
            work, to, out = _below(model, name, each, index_of, state)
            for child, times in to:
                parents[child].append((index, times))
            tail = ends(name)[0]
            source = tail if tail in sources else None
            found.append(Segment(index, name, source, full, work, to, out, protectable[name]))
        return Segments(tuple(found), tuple(map(tuple, parents)), _linear(model, arcs))

    def alike(self, model: FlowModel, joins: Collection[str]) -> bool:
        """Whether of rows of different sources the same becomes until the next candidate, wherever they meet.

        joins: arcs into and out of joins, which are to be candidates
        """
        index_of = {segment.arc: segment.index for segment in self.all}
        if not set(joins) <= index_of.keys():
            return False
        for segment in self.all:
            island = model.island(segment.arc)
            rows = model.whole.reaching[segment.arc] * island.free
            first = None
            for span in island.spans.values() if segment.source is None else ():
                if (total := rows[span].sum()) <= 0:
                    continue
                each = np.zeros(island.size)
                each[span] = rows[span] / total
                work, to, out = _below(model, segment.arc, each, index_of, model.whole)
                figures = [work, *(times for _, times in to), *(times for _, times in out)]
                first = first or figures
                if len(first) != len(figures) or not np.allclose(first, figures, rtol=1e-6, atol=1e-15):
                    return False
        return True


def candidates(model: FlowModel, extra: Collection[str] = ()) -> list[str]:
    """The arcs at which drops are considered, those upstream first."""
    network = model.network
    protectable = protection(network)
    order = {node.name: index for index, node in enumerate(network.heads)}
    splits = {source.name for source in network.sources} | set(network.split_points)
    arcs = [
        name for name in network.arcs if name in protectable and (ends(name)[0] in splits or name in set(extra))
    ]
    return sorted(arcs, key=lambda name: order.get(ends(name)[0], -1))  # of one node, as they were


def _below(
    model: FlowModel, start: str, rows: Vector, index_of: dict[str, int], state: FlowState
) -> tuple[float, tuple[tuple[int, float], ...], tuple[tuple[str, float], ...]]:
    """Work, next candidates and outputs of rows that enter the head of an arc, one in all."""
    network = model.network
    entering: dict[str, Vector] = {start: rows}
    work = 0.0
    to: dict[int, float] = {}
    out: dict[str, float] = {}
    for head in model.island(start).heads:
        into = [entering[on] for on in network.arcs_into(head.name) if on in entering]
        if not into:
            continue
        total = into[0] if len(into) == 1 else np.sum(into, axis=0)
        if isinstance(head, Output):
            out[head.name] = float(total.sum())
            continue
        work += float(total.sum()) * model.catalog.costs[head.name]
        if isinstance(head, Join):
            leaving = model.paired(head.name, entering, state, by_key=start in model.keyed)
        else:
            leaving = total * model.through[head.name]
        for on in network.arcs_out_of(head.name):
            if on in index_of:
                to[index_of[on]] = to.get(index_of[on], 0.0) + float(leaving.sum())
            else:
                entering[on] = leaving
    return work, tuple(to.items()), tuple(out.items())


def _linear(model: FlowModel, arcs: list[str]) -> bool:
    if model.pairs:
        return False
    # Outputs count so much that streams of which different things become cannot look alike.
    drawn = np.random.default_rng(0).uniform(1, 2, len(model.network.outputs))
    worth = {
        output.name: float(weight) / max(model.full[on], 1e-300)
        for output, weight in zip(model.network.outputs, drawn, strict=True)
        for on in model.network.arcs_into(output.name)
    }
    for future in model.marginals(model.whole, worth):
        for name in arcs:
            island = model.island(name)
            rows = model.whole.reaching[name] * island.free
            means = [
                float(rows[span] @ future[name][span]) / float(rows[span].sum())
                for span in island.spans.values()
                if rows[span].sum() > 0
            ]
            if means and max(means) - min(means) > 1e-9 * max(map(abs, means)):
                return False
    return True
