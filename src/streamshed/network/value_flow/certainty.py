"""How far a plan's delivery can be believed: exact, estimated or unknown, for each output, and why."""

from __future__ import annotations

from dataclasses import dataclass

from streamshed.network.catalog import Catalog
from streamshed.network.graph import WINDOWS, Box, Filter, Join, Network, Source, Udf
from streamshed.network.value_flow.cells import below, source_histogram, traces
from streamshed.network.value_flow.shared_keys import sharing_joins
from streamshed.network.value_flow.trace import ways

EXACT, ESTIMATED, UNKNOWN = "exact", "estimated", "unknown"


@dataclass(frozen=True, slots=True)
class Certainty:
    kind: str
    """`exact`: in the mean, if catalog and values are right. `estimated`: something was assumed. `unknown`: the
    figure counts something else than what comes out."""
    why: str = ""


def certainties(catalog: Catalog) -> dict[str, Certainty]:
    """For each output, how far its delivery can be believed.

    >>> from streamshed.network import Builder
    >>> network = (
    ...     Builder("n").source("a", "x INT", rate=9).source("b", "x INT", rate=9).union("u", ["a", "b"])
    ...     .filter("f", "u", "x > 1", selectivity=0.5).output("all", "u").output("some", "f").build()
    ... )
    >>> for name, found in certainties(Catalog.of(network)).items():
    ...     print(f"{name}: {found.kind}. {found.why}".rstrip())
    all: exact.
    some: estimated. f: how x spreads is not known of a; all rows are taken to pass alike
    """
    return {output.name: _of(catalog, output.name) for output in catalog.network.outputs}


def _of(catalog: Catalog, output: str) -> Certainty:
    sources, boxes = catalog.network.above(output)
    for box in boxes:
        if isinstance(box, WINDOWS):
            return Certainty(UNKNOWN, f"{box.name}: counted by the rows that its results are made of")
        if isinstance(box, Udf) and box.load_aware is not None:
            return Certainty(UNKNOWN, f"{box.name} sheds by itself")
        if isinstance(box, Join) and (both := _on_both_sides(catalog.network, box)):
            return Certainty(UNKNOWN, f"{box.name}: rows of {both} are on both sides and can meet themselves")
    for box in reversed(boxes):  # what is assumed further down has the errors of what is above
        why = _assumed(catalog, box, sources)
        if why:
            return Certainty(ESTIMATED, f"{box.name}: {why}")
    return Certainty(EXACT)


def _on_both_sides(network: Network, join: Join) -> str:
    """The sources whose rows come to a join on both of its sides."""
    sides = []
    for name in join.inputs:
        node = network.nodes[name]
        above = (node,) if isinstance(node, Source) else network.above(name)[0]
        sides.append({source.name for source in above})
    return ", ".join(sorted(set.intersection(*sides)))


def _assumed(catalog: Catalog, box: Box, sources: tuple[Source, ...]) -> str:
    """What is taken for granted at a box; empty if nothing is."""
    network = catalog.network
    if isinstance(box, Join):
        sharing = sharing_joins(network)
        if box.name in sharing and any(above.name in sharing for above in network.above(box.name)[1]):
            return "its pairs are pairs of pairs; what share of their keys they have left is taken in the mean"
        if box.name in sharing:
            return "its sides lose the same keys, which are taken to have equally many rows"
        return "its sides are taken to lose rows independently"
    if not isinstance(box, Filter):
        return ""
    above = network.above(box.name)[0]
    if len(above) < 2 and not any(source.protect is not None for source in above):
        return ""
    known = traces(network)
    for field in sorted(box.where.fields()):
        found = ways(network, box.name, field)
        for source in above:
            for on in network.arcs_out_of(source.name):
                if box.name not in below(network, on)[0]:
                    continue
                several = found.get(on, frozenset())
                if not several or any(source_histogram(network, on, way.field, known) is None for way in several):
                    return f"how {field} spreads is not known of {source.name}; all rows are taken to pass alike"
    return ""
