"""Where an output's value comes from: its field followed upstream, box by box.

Through inverses where a map has one (Aurora's backward propagation), and by trial where it has none (forward);
both on one way is its combined propagation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamshed.network.expressions.analysis import Inverse, invert, passing
from streamshed.network.expressions.expression import Expression, Field
from streamshed.network.expressions.images import Trial
from streamshed.network.expressions.ranges import Ranges
from streamshed.network.graph import (
    Aggregate,
    Box,
    CountWindow,
    Filter,
    Map,
    Network,
    Output,
    TopK,
    Udf,
    arc,
    inputs,
)


@dataclass(frozen=True)
class Traced:
    """A field further up from which alone an output's field is computed."""

    field: str
    inverses: tuple[Inverse | Trial, ...] = ()
    """Each undoes one map, the one nearest to the output first."""

    def preimage(self, ranges: Ranges) -> Ranges:
        """The values of this field that surely become those values at the output."""
        return self.preimages([ranges])[0]

    def preimages(self, sets: Sequence[Ranges]) -> list[Ranges]:
        """The same for many sets of values; where maps have no inverse this is quicker than one by one."""
        found = list(sets)
        for inverse in self.inverses:
            if isinstance(inverse, Trial):
                found = inverse.preimages(found)
            else:
                found = [inverse.preimage(ranges) for ranges in found]
        return found

    def possible(self, ranges: Ranges) -> Ranges:
        """The values of this field that may become those values: what a trial leaves open is among them."""
        for inverse in self.inverses:
            ranges = inverse.possible(ranges) if isinstance(inverse, Trial) else inverse.preimage(ranges)
        return ranges

    def since(self, below: Traced) -> Traced:
        """The part of the way up that lies above another point of the same way."""
        return Traced(self.field, self.inverses[len(below.inverses) :])

    @property
    def monotone(self) -> bool:
        """Whether every step has an inverse."""
        return all(isinstance(inverse, Inverse) for inverse in self.inverses)

    @property
    def increasing(self) -> bool:
        """Of a monotone way: whether larger values here are larger ones at the output."""
        return sum(isinstance(inverse, Inverse) and not inverse.increasing for inverse in self.inverses) % 2 == 0


def step(network: Network, box: Box, above: str, traced: Traced, *, trials: bool) -> Traced | None:
    """A field that leaves a box, followed to one of its inputs; None where it cannot be."""
    if isinstance(box, Map):
        expression = box.select[traced.field]
        if isinstance(expression, Field):
            return Traced(expression.name, traced.inverses)
        inverse: Inverse | Trial | None = box.inverse.get(traced.field) or invert(expression, traced.field)
        if inverse is None and trials:
            inverse = _trial(network, above, expression)
        return None if inverse is None else Traced(inverse.field, (*traced.inverses, inverse))
    if isinstance(box, Aggregate | CountWindow | TopK) and traced.field not in box.by:
        return None  # other rows would stand for those that are gone
    if isinstance(box, Udf) and traced.field == box.adds.name:
        return None
    if traced.field not in {column.name for column in network.schemas[above]}:
        return None  # the other side of a join
    return traced


def _trial(network: Network, above: str, expression: Expression) -> Trial | None:
    found = Trial.of(expression)
    return found if found is not None and network.column(above, found.field).numeric else None


def trace(network: Network, output: str, field: str, *, trials: bool = True) -> Mapping[str, Traced]:
    """For every arc above an output on which it can be told, the field that becomes the output's `field`.

    A box with one input will do as well: then it is the field that enters the box.

    An arc from which the value takes two ways that differ, or passes a box that neither has an inverse nor can be
    tried, is not in the answer; without `trials` nothing is tried.

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

    for entering in inputs(network.nodes[output]):
        reach(entering, output, Traced(field))
    for box in reversed(network.above(output)[1]):
        traced = leaving[box.name]
        for above in box.inputs:
            reach(above, box.name, None if traced is None else step(network, box, above, traced, trials=trials))
    return found


def ways(network: Network, node: str, field: str) -> Mapping[str, frozenset[Traced]]:
    """For every arc above a node, the fields there from which its `field` is computed on some way, with the way.

    Unlike `trace` it does not ask that all ways agree: rows that do not bring the value may come along as well.
    """
    found: dict[str, set[Traced]] = {}
    leaving: dict[str, set[Traced]] = {}
    for tail in inputs(network.nodes[node]):
        found[arc(tail, node)] = {Traced(field)}
        leaving.setdefault(tail, set()).add(Traced(field))
    for box in reversed(network.above(node)[1]):
        for above in box.inputs:
            steps = (step(network, box, above, way, trials=True) for way in leaving.get(box.name, ()))
            known = {way for way in steps if way is not None}
            if known:
                found.setdefault(arc(above, box.name), set()).update(known)
                leaving.setdefault(above, set()).update(known)
    return {on: frozenset(each) for on, each in found.items()}


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
                    admitted |= since.possible(found[after])
            if isinstance(box, Filter):
                admitted &= passing(box.where).of(traces[above].field)
            found[above] = admitted
    return found
