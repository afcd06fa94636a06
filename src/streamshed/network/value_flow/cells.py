"""How values flow: the stream of one source arc cut into cells of one field, each followed to the outputs.

A filter that is a range on that field lets whole cells pass or none; any other thins all cells alike.
Either way a filter passes as much of the stream as the catalog says, so that loads agree with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streamshed.network.catalog import Catalog
from streamshed.network.expressions.analysis import Inverse, passing
from streamshed.network.expressions.images import Trial
from streamshed.network.expressions.ranges import Ranges
from streamshed.network.graph import Filter, Network, Output, Source, arc, ends
from streamshed.network.qos import Histogram, LossGraph
from streamshed.network.value_flow.trace import Traced, trace

Vector = npt.NDArray[np.float64]
Traces = Mapping[str, Mapping[str, Traced]]
"""For each output, for each arc above it: where its value comes from."""

_LOOKS = 1000
_BINS = 200
"""Of a map without an inverse: how many values are looked at, and into how many bins they are put."""


def traces(network: Network) -> Traces:
    """The traces of all outputs that have a value graph."""
    return {
        output.name: trace(network, output.name, output.qos.value.field)
        for output in network.outputs
        if output.qos.value is not None
    }


@dataclass(frozen=True)
class Lane:
    """The rows of one source arc, by cells of one of the source's fields."""

    arc: str
    field: str
    edges: Vector
    share: Vector
    """Of each cell, the share of the arc's rows."""
    passes: Mapping[str, Vector]
    """For each box below, how many rows of each cell leave it per row that enters."""

    @property
    def middles(self) -> Vector:
        middle: Vector = (self.edges[:-1] + self.edges[1:]) / 2
        return middle


def source_histogram(network: Network, on: str, field: str, of: Traces) -> Histogram | None:
    """The spread of a field on a source arc: as given for the source, or as seen at an output fed by it."""
    source = network.nodes[ends(on)[0]]
    if isinstance(source, Source) and field in source.values:
        return source.values[field]
    for name in below(network, on)[1]:
        output = network.nodes[name]
        traced = of.get(name, {}).get(on)
        if not isinstance(output, Output) or output.qos.histogram is None:
            continue
        if traced is not None and traced.field == field and traced.monotone:
            seen = output.qos.histogram
            edges = list(seen.edges)
            for inverse in traced.inverses:
                assert isinstance(inverse, Inverse)
                edges = [inverse(edge) for edge in edges]
            shares = seen.shares
            if not traced.increasing:
                edges, shares = edges[::-1], shares[::-1]
            return Histogram.of(edges, shares)
    return None


def below(network: Network, on: str) -> tuple[list[str], list[str]]:
    """The boxes, in order, and the outputs that rows on an arc can reach."""
    seen = {ends(on)[1]}
    stack = [ends(on)[1]]
    while stack:
        for name in network.consumers[stack.pop()]:
            if name not in seen:
                seen.add(name)
                stack.append(name)
    names = sorted(seen, key=network.positions.__getitem__)
    outputs = [name for name in names if isinstance(network.nodes[name], Output)]
    return [name for name in names if name not in set(outputs)], outputs


def lane(
    catalog: Catalog, on: str, field: str, histogram: Histogram, of: Traces, cuts: Iterable[float] = ()
) -> Lane:
    """Cut the rows of a source arc at every value where something below happens to them, and at `cuts`."""
    network = catalog.network
    boxes, outputs = below(network, on)
    admits: dict[str, Ranges] = {}
    for name in boxes:
        box = network.nodes[name]
        if isinstance(box, Filter):
            limits = passing(box.where)
            into = arc(box.inputs[0], name)
            for output in outputs:
                here, origin = of.get(output, {}).get(into), of.get(output, {}).get(on)
                if here is None or origin is None or origin.field != field or here.field not in limits.ranges:
                    continue
                if origin.inverses[: len(here.inverses)] == here.inverses:
                    mapped = origin.since(here).preimage(limits.ranges[here.field])
                    admits[name] = admits.get(name, Ranges.everything()) & mapped
    low, high = histogram.edges[0], histogram.edges[-1]
    ends_of = (edge for ranges in admits.values() for interval in ranges for edge in interval)
    inner = {edge for edge in (*histogram.edges, *cuts, *ends_of) if low < edge < high}
    # Ends that differ by one step of the number line (x > 5 and x >= 5) are one cut.
    edges = [low]
    for edge in sorted(inner):
        if edge - edges[-1] > 1e-9 * (high - low):
            edges.append(edge)
    edges.append(high)
    share = np.array([histogram.share(Ranges.between(a, b)) for a, b in pairwise(edges)])
    share /= share.sum()
    made = Lane(on, field, np.array(edges), share, {})
    return Lane(on, field, made.edges, share, _passes(catalog, made, boxes, admits))


def _passes(catalog: Catalog, made: Lane, boxes: list[str], admits: Mapping[str, Ranges]) -> dict[str, Vector]:
    network = catalog.network
    passes: dict[str, Vector] = {}
    leaving: dict[str, Vector] = {}
    for name in boxes:
        box = network.nodes[name]
        entering = np.zeros(len(made.share))
        for above in network.arcs_into(name):
            before = ends(above)[0]
            if above == made.arc:
                entering = entering + made.share
            elif before in leaving:
                entering = entering + leaving[before]
        through = np.full(len(made.share), catalog.selectivities[box.name])
        if name in admits:
            inside = np.array([middle in admits[name] for middle in made.middles], dtype=np.float64)
            admitted = float(entering @ inside)
            if admitted > 0:
                through = inside * (catalog.selectivities[name] * float(entering.sum()) / admitted)
        passes[name] = through
        leaving[name] = entering * through
    return passes


def follow(network: Network, made: Lane) -> dict[str, Vector]:
    """Rows of each cell that reach each output, per row that enters the lane, when nothing is dropped."""
    leaving: dict[str, Vector] = {}

    def entering(name: str) -> Vector:
        rows = np.zeros(len(made.share))
        for above in network.arcs_into(name):
            if above == made.arc:
                rows = rows + made.share
            elif ends(above)[0] in leaving:
                rows = rows + leaving[ends(above)[0]]
        return rows

    for name, through in made.passes.items():
        leaving[name] = entering(name) * through
    return {name: entering(name) for name in below(network, made.arc)[1]}


def output_histogram(catalog: Catalog, output: Output, of: Traces) -> Histogram | None:
    """How the value field of an output is spread: as its QoS says, or else as its sources' values imply."""
    network = catalog.network
    if output.qos.histogram is not None or output.qos.value is None:
        return output.qos.histogram
    parts: list[tuple[float, Histogram]] = []
    for source in network.above(output.name)[0]:
        for on in network.arcs_out_of(source.name):
            if output.name not in below(network, on)[1]:
                continue
            traced = of[output.name].get(on)
            histogram = None if traced is None else source_histogram(network, on, traced.field, of)
            if traced is None or histogram is None:
                return None
            made = lane(catalog, on, traced.field, histogram, of)
            rows = follow(network, made)[output.name]
            if rows.sum() > 0:
                parts.append((source.rate * float(rows.sum()), image_histogram(traced, made.edges, rows)))
    return Histogram.mixture(parts)


def image_histogram(traced: Traced, edges: Vector, rows: Vector) -> Histogram:
    """How the values of a stream's cells are spread once they are the output's."""
    if traced.monotone:
        images = [forward(traced, float(edge)) for edge in edges]
        counts = list(rows)
        if not traced.increasing:
            images, counts = images[::-1], counts[::-1]
        return Histogram.of(images, counts)
    # Cells can come to lie on each other, and on one value: so values from everywhere in them are looked at.
    each = max(8, -(-_LOOKS // len(rows)))
    inner = (np.arange(each) + 0.5) / each
    points = (edges[:-1, None] + np.diff(edges)[:, None] * inner).ravel()
    values = np.array([forward(traced, float(point)) for point in points])
    weights = np.repeat(rows / each, each)
    known = np.isfinite(values) & (weights > 0)
    values, weights = values[known], weights[known]
    if not len(values):
        return Histogram.uniform(0.0, 1.0)
    cuts = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)))
    cuts = np.append(cuts, np.nextafter(cuts[-1], np.inf))
    return Histogram.of([float(cut) for cut in cuts], np.histogram(values, cuts, weights=weights)[0].tolist())


def forward(traced: Traced, value: float) -> float:
    """The output value that a source value becomes: by bisection on the inverses, which are what is known."""
    if not traced.inverses:
        return value
    if not traced.monotone:
        for step in reversed(traced.inverses):
            value = step.forward(value) if isinstance(step, Trial) else forward(Traced(step.field, (step,)), value)
        return value

    def back(x: float) -> float:
        for inverse in traced.inverses:
            assert isinstance(inverse, Inverse)
            x = inverse(x)
        return x

    sign = 1.0 if traced.increasing else -1.0
    low, high = -1.0, 1.0
    with np.errstate(all="ignore"):
        while sign * (back(low) - value) > 0 and low > -1e300:
            low *= 2
        while sign * (back(high) - value) < 0 and high < 1e300:
            high *= 2
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (middle, high) if sign * (back(middle) - value) < 0 else (low, middle)
    return low if back(low) == value else high


def loss_graphs(catalog: Catalog) -> dict[str, LossGraph]:
    """The loss graph of every output: given, derived from its value graph, or linear."""
    of = traces(catalog.network)
    return {
        output.name: output.qos.loss_graph(
            None if output.qos.loss is not None else output_histogram(catalog, output, of)
        )
        for output in catalog.network.outputs
    }
