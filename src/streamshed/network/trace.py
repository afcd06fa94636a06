"""Where an output's value comes from: its field followed upstream, box by box, through inverses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.network.analysis import Inverse, invert, passing
from streamshed.network.expression import Field
from streamshed.network.graph import Aggregate, Box, Filter, Map, Network, Output, Udf, arc
from streamshed.network.ranges import Ranges


@dataclass(frozen=True)
class Traced:
    """A field further up from which an output's field is computed by monotone steps."""

    field: str
    inverses: tuple[Inverse, ...] = ()
    """Each undoes one map, the one nearest to the output first."""

    def preimage(self, ranges: Ranges) -> Ranges:
        """The values of this field that become those values at the output."""
        for inverse in self.inverses:
            ranges = inverse.preimage(ranges)
        return ranges

    def since(self, below: Traced) -> Traced:
        """The part of the way up that lies above another point of the same way."""
        return Traced(self.field, self.inverses[len(below.inverses) :])

    @property
    def increasing(self) -> bool:
        return sum(not inverse.increasing for inverse in self.inverses) % 2 == 0


def step(network: Network, box: Box, above: str, traced: Traced) -> Traced | None:
    """A field that leaves a box, followed to one of its inputs; None where it cannot be."""
    if isinstance(box, Map):
        expression = box.select[traced.field]
        if isinstance(expression, Field):
            return Traced(expression.name, traced.inverses)
        inverse = box.inverse.get(traced.field) or invert(expression, traced.field)
        return None if inverse is None else Traced(inverse.field, (*traced.inverses, inverse))
    if isinstance(box, Aggregate) and traced.field not in box.by:
        return None
    if isinstance(box, Udf) and traced.field == box.adds.name:
        return None
    if traced.field not in {column.name for column in network.schemas[above]}:
        return None  # the other side of a join
    return traced


def trace(network: Network, output: str, field: str) -> Mapping[str, Traced]:
    """For every arc above an output on which it can be told, the field that becomes the output's `field`.

    An arc from which the value takes two ways that differ, or passes a box that has no inverse, is not in
    the answer.

    >>> from streamshed.network import Builder
    >>> network = (
    ...     Builder("n").source("s", "bpm DOUBLE").filter("a", "s", "bpm > 9")
    ...     .map("m", "a", {"f": "bpm * 2"}).output("o", "m").build()
    ... )
    >>> print(trace(network, "o", "f")["s->a"].preimage(Ranges.between(50, 80)).render("bpm"))
    bpm >= 25 AND bpm < 40
    """
    found: dict[str, Traced] = {}
    leaving: dict[str, Traced | None] = {}

    def reach(tail: str, head: str, traced: Traced | None) -> None:
        if traced is not None:
            found[arc(tail, head)] = traced
        leaving[tail] = traced if leaving.get(tail, traced) == traced else None

    end = network.nodes[output]
    reach(end.input, output, Traced(field))  # type: ignore[union-attr]
    for box in reversed(network.above(output)[1]):
        traced = leaving[box.name]
        for above in box.inputs:
            reach(above, box.name, None if traced is None else step(network, box, above, traced))
    return found


def reaching(network: Network, output: str, traces: Mapping[str, Traced]) -> Mapping[str, Ranges]:
    """For every traced arc, the values of the traced field with which a row can get from there to the output.

    The others are removed by a filter on the way: to drop them costs nothing.

    >>> from streamshed.network import Builder
    >>> network = (
    ...     Builder("n").source("s", "x DOUBLE").map("m", "s", {"y": "x / 2"})
    ...     .filter("f", "m", "y > 10").output("o", "f").build()
    ... )
    >>> print(reaching(network, "o", trace(network, "o", "y"))["s->m"].render("x"))
    x > 20
    """
    found: dict[str, Ranges] = {}
    for box in reversed((*network.above(output)[1], network.nodes[output])):
        for above in network.arcs_into(box.name):
            if above not in traces:
                continue
            if isinstance(box, Output):
                found[above] = Ranges.everything()
                continue
            admitted = Ranges.nothing()
            for after in network.arcs_out_of(box.name):
                if after in found:
                    since = traces[above].since(traces[after])
                    admitted |= since.preimage(found[after])
            if isinstance(box, Filter):
                admitted &= passing(box.where).of(traces[above].field)
            found[above] = admitted
    return found
