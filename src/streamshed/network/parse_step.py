"""The parse of a source's rows as a step of its own, so that drops in front of it and behind it can be weighed.

A row that is dropped at random need not be parsed; one that is dropped for its value has been. So plans are made
for a network in which the parse is a box that costs what a row's parse costs:

    s ─► r          becomes          s ─► s parse ─► r

On the arc in front of it rows can only be dropped at random, and behind it also by value. What comes out is said
in the arcs of the network itself, where a drop at random and one by value may stand side by side: a share that all
arcs of a source keep at random is kept before the parse, and the rest behind it. `lifted` and `lowered` go from
the one to the other.

    early of s     max over its arcs of what they keep at random

A source with protected rows has no such step: only the parsed row tells who is protected, so all are parsed.

>>> from streamshed.network.builder import Builder
>>> network = (
...     Builder("n").source("s", "v INT", rate=100, parse={"format": "json", "cost": 0.004})
...     .filter("f", "s", "v > 0", cost=0.001).filter("g", "s", "v > 5", cost=0.001)
...     .output("o", "f").output("p", "g").build()
... )
>>> catalog = Catalog.of(network)
>>> with_parse_boxes(catalog).network.arcs[:3], catalog.load == with_parse_boxes(catalog).load
(('s->s parse', 's parse->f', 's parse->g'), True)
>>> lifted([Drop("s->f", 0.2), Drop("s->g", 0.5), Drop("s->g", 0.0, "v < 9")], catalog)
(Drop(at='s->s parse', keep=0.5, where=None), Drop(at='s parse->f', keep=0.4, where=None), \
Drop(at='s parse->g', keep=0.0, where='v < 9'))
>>> lowered(_, catalog)
(Drop(at='s->f', keep=0.2, where=None), Drop(at='s->g', keep=0.0, where='v < 9'), \
Drop(at='s->g', keep=0.5, where=None))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from streamshed.network.catalog import Catalog
from streamshed.network.expressions.expression import Field
from streamshed.network.graph import Box, Map, Network, Output, arc, ends
from streamshed.records import Drop


@dataclass(frozen=True, kw_only=True)
class Parse(Map):
    """Raw rows become rows with columns."""

    op: ClassVar[str] = "parse"


def parse_box(source: str) -> str:
    """The name of a source's parse; the names of other boxes have no space."""
    return f"{source} parse"


def raw_arcs(network: Network) -> list[str]:
    """The arcs in front of parses: a row has no values there yet."""
    return [arc(box.inputs[0], box.name) for box in network.boxes if isinstance(box, Parse)]


def arcs_behind_parse(network: Network) -> list[str]:
    """The arcs behind parses: the first at which a row can be dropped for its value."""
    return [on for box in network.boxes if isinstance(box, Parse) for on in network.arcs_out_of(box.name)]


def with_parse_boxes(catalog: Catalog) -> Catalog:
    """The same with the parses as boxes; the catalog itself if none is known to cost anything."""
    parses = {name: cost for name, cost in catalog.parses.items() if cost > 0}
    if not parses:
        return replace(catalog, parses={}) if catalog.parses else catalog
    network = catalog.network

    def moved(name: str) -> str:
        return parse_box(name) if name in parses else name

    boxes: list[Box] = [
        Parse(
            name=parse_box(source.name),
            inputs=(source.name,),
            cost=parses[source.name],
            select={column.name: Field(column.name) for column in source.schema},
        )
        for source in network.sources
        if source.name in parses
    ]
    boxes += [replace(box, inputs=tuple(map(moved, box.inputs))) for box in network.boxes]
    outputs: list[Output] = [replace(output, input=moved(output.input)) for output in network.outputs]
    made = replace(network, boxes=tuple(boxes), outputs=tuple(outputs))
    return replace(
        catalog,
        network=made,
        costs={**catalog.costs, **{parse_box(name): cost for name, cost in parses.items()}},
        selectivities={**catalog.selectivities, **dict.fromkeys(map(parse_box, parses), 1.0)},
        parses={},
    )


def at_random(drops: Iterable[Drop], arcs: Iterable[str]) -> dict[str, float]:
    """Which share drops keep on each of some arcs whatever a row is."""
    found = dict.fromkeys(arcs, 1.0)
    for drop in drops:
        if drop.at in found and drop.where is None:
            found[drop.at] *= drop.keep
    return found


def early(drops: Iterable[Drop], arcs: Iterable[str]) -> float:
    """Which share of a source's rows is kept before they are parsed, by the drops on its arcs."""
    return max(at_random(drops, arcs).values(), default=1.0)


def lifted(drops: Iterable[Drop], catalog: Catalog) -> tuple[Drop, ...]:
    """Drops of a catalog's network as drops of the network `with_parse_boxes`."""
    network, drops = catalog.network, list(drops)
    parsed = {name for name, cost in catalog.parses.items() if cost > 0}
    found = [drop for drop in drops if ends(drop.at)[0] not in parsed]
    for source in network.sources:
        if source.name not in parsed:
            continue
        arcs = network.arcs_out_of(source.name)
        random, first = at_random(drops, arcs), early(drops, arcs)
        if first < 1.0:
            found.append(Drop(arc(source.name, parse_box(source.name)), first))
        for on in arcs:
            behind = arc(parse_box(source.name), ends(on)[1])
            found += [replace(drop, at=behind) for drop in drops if drop.at == on and drop.where is not None]
            left = random[on] / first if first > 0 else 1.0
            if left < 1.0:
                found.append(Drop(behind, left))
    return tuple(found)


def lowered(drops: Iterable[Drop], catalog: Catalog) -> tuple[Drop, ...]:
    """The other way round: drops of the network `with_parse_boxes` as drops of the catalog's own."""
    drops = list(drops)
    places = {parse_box(name): name for name, cost in catalog.parses.items() if cost > 0}
    found = [drop for drop in drops if not places.keys() & set(ends(drop.at))]
    for box, source in places.items():
        before = math.prod(drop.keep for drop in drops if drop.at == arc(source, box))
        for on in catalog.network.arcs_out_of(source):
            behind = arc(box, ends(on)[1])
            found += [replace(drop, at=on) for drop in drops if drop.at == behind and drop.where is not None]
            keep = before * at_random(drops, [behind])[behind]
            if keep < 1.0:
                found.append(Drop(on, keep))
    return tuple(found)


def hoisted(drops: Iterable[Drop], network: Network) -> tuple[Drop, ...]:
    """Drops of a network with parses as boxes: what all arcs behind a parse drop at random goes before it."""
    drops = tuple(drops)
    for box in network.boxes:
        arcs = network.arcs_out_of(box.name) if isinstance(box, Parse) else ()
        share = early(drops, arcs)
        if share < 1.0:
            (before,) = network.arcs_into(box.name)
            random = at_random(drops, [before, *arcs])
            keeps = {on: random[on] / share if share > 0 else 1.0 for on in arcs} | {
                before: random[before] * share
            }
            drops = tuple(drop for drop in drops if drop.at not in random or drop.where is not None)
            drops += tuple(Drop(on, keep) for on, keep in keeps.items() if keep < 1.0)
    return drops


def lowered_counts(counts: Mapping[str, tuple[int, int]], catalog: Catalog) -> dict[str, tuple[int, int]]:
    """Rows that reached and passed each arc of the network `with_parse_boxes`, by the catalog's own arcs."""
    places = {parse_box(name): name for name, cost in catalog.parses.items() if cost > 0}
    found = {}
    for on, (reached, passed) in counts.items():
        tail, head = ends(on)
        if head in places:
            continue
        if tail in places:
            source = places[tail]
            on, reached = arc(source, head), counts[arc(source, tail)][0]
        found[on] = (reached, passed)
    return found


def lowered_queues(queued: Mapping[str, int], catalog: Catalog) -> dict[str, int]:
    """Rows that wait on each arc, likewise: what waits to be parsed waits in front of all arcs of its source."""
    places = {parse_box(name): name for name, cost in catalog.parses.items() if cost > 0}
    found = {on: rows for on, rows in queued.items() if not places.keys() & set(ends(on))}
    for box, source in places.items():
        for on in catalog.network.arcs_out_of(source):
            found[on] = queued.get(arc(source, box), 0) + queued.get(arc(box, ends(on)[1]), 0)
    return found


def lifted_queues(queued: Mapping[str, float], catalog: Catalog) -> dict[str, float]:
    """The other way round: what waits in front of the arcs of a source waits to be parsed."""
    parsed = {name for name, cost in catalog.parses.items() if cost > 0}
    found: dict[str, float] = {}
    for on, rows in queued.items():
        source = ends(on)[0]
        place = arc(source, parse_box(source)) if source in parsed else on
        found[place] = max(found.get(place, 0.0), rows)
    return found
