"""A network as numbers: what the kernel and the pool need to know, worked out once.

A *class* of rows is all rows with the same origin (a source, or a box with state) and the same maps behind
them: they have the same columns, meet the same predicates, and stand side by side in the pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np

from streamshed.network.graph import Box, Filter, Map, Network, Output, Source, Udf, ends
from streamshed.network.value_flow.shared_keys import key_places, keys_of
from streamshed.sim.network import kernel


@dataclass(frozen=True, slots=True)
class RowClass:
    index: int
    origin: str
    parent: int | None
    """The class it is mapped from, by `box`; None for one that begins at its origin."""
    box: str | None
    key: tuple[str, ...]
    """The columns that hold its key; none where it has none."""
    filters: tuple[str, ...]
    """Filters its rows may meet, in topological order."""
    outputs: tuple[str, ...]
    """Outputs its rows may reach."""
    arcs: frozenset[str]


@dataclass(frozen=True)
class NumberedNetwork:
    """Positions of everything that has a name."""

    network: Network
    box: Mapping[str, int]
    place: Mapping[str, int]
    """Boxes, then sources: what rows can leave."""
    output: Mapping[str, int]
    arc: Mapping[str, int]
    classes: tuple[RowClass, ...]
    keyed: frozenset[str]
    """The arcs on which whole keys are dropped."""

    @staticmethod
    def of(network: Network) -> NumberedNetwork:
        box = {each.name: index for index, each in enumerate(network.order)}
        place = dict(box)
        for source in network.sources:
            place[source.name] = len(place)
        return NumberedNetwork(
            network,
            box,
            place,
            {each.name: index for index, each in enumerate(network.outputs)},
            {name: index for index, name in enumerate(network.arcs)},
            _classes(network),
            frozenset(key_places(network)),
        )

    def wiring(self, seconds: Mapping[str, float], *, slice: float, exponential: bool, seed: int) -> kernel.Wiring:
        """The kernel's view; `seconds` a row takes at each box."""
        arcs = [self.network.arcs_out_of(place) for place in self.place]
        links = [[kernel.NOWHERE] * 3 for _ in arcs]
        for place, names in enumerate(arcs):
            for number, name in enumerate(names):
                to = ends(name)[1]
                reached = self.box[to] if to in self.box else self.slots + self.output[to]
                link = [self.arc[name], reached, kernel.NOWHERE]
                if number == 0:
                    links[place], last = link, link
                else:
                    last[2] = len(links)
                    links.append(link)
                    last = link
        return kernel.Wiring(
            kind=np.array([_kind(each) for each in self.network.order], dtype=np.uint32),
            cost=np.array([seconds[each.name] for each in self.network.order], dtype=np.float64),
            out=np.array([tuple(link) for link in links], dtype=kernel.LINK),
            fan_out=max(1, *map(len, arcs)),
            slice=slice,
            exponential=exponential,
            seed=np.uint64(seed),
        )

    @property
    def slots(self) -> int:
        """Boxes that the kernel has room for: at least one."""
        return max(1, len(self.box))

    def bits(self) -> kernel.Places:
        """[box]: where a row's card has a filter's answer. Filters that no row can both meet may share a bit."""
        found = np.full(self.slots, kernel.TRUE, dtype=np.uint32)
        taken: list[set[int]] = [set() for _ in self.classes]
        meet: dict[str, list[set[int]]] = {}
        for each in self.classes:
            for name in each.filters:
                meet.setdefault(name, []).append(taken[each.index])
        for name, others in meet.items():
            elsewhere: set[int] = set().union(*others)
            bit = next(bit for bit in count(kernel.TRUE + 1) if bit not in elsewhere)
            found[self.box[name]] = bit
            for other in others:
                other.add(bit)
        return found


def stateful(box: Box | Source | Output) -> bool:
    return isinstance(box, Box) and box.makes_rows


def _kind(box: Box) -> int:
    if isinstance(box, Map | Udf):
        return kernel.SHIFT
    return kernel.SINK if stateful(box) else kernel.TEST


def _classes(network: Network) -> tuple[RowClass, ...]:
    rank = {box.name: index for index, box in enumerate(network.order)}
    starts: list[tuple[str, int | None, str | None]] = [(source.name, None, None) for source in network.sources]
    starts += [(box.name, None, None) for box in network.order if stateful(box)]
    found: list[RowClass] = []
    keys = keys_of(network)
    # `starts` grows while it is walked: every map met makes one more class.
    for index, (origin, parent, through) in enumerate(starts):
        start = through or origin
        filters: set[str] = set()
        outputs: set[str] = set()
        arcs: set[str] = set()
        reached: set[str] = set()
        ahead = [start]
        while ahead:
            tail = ahead.pop()
            arcs.update(network.arcs_out_of(tail))
            for name in network.consumers[tail]:
                node = network.nodes[name]
                if name in reached:
                    continue
                reached.add(name)
                if isinstance(node, Output):
                    outputs.add(name)
                elif isinstance(node, Map | Udf):
                    starts.append((origin, index, name))
                elif not stateful(node):
                    if isinstance(node, Filter):
                        filters.add(name)
                    ahead.append(name)
        found.append(
            RowClass(
                index,
                origin,
                parent,
                through,
                keys.get(start, ()),
                tuple(sorted(filters, key=lambda name: rank[name])),
                tuple(output.name for output in network.outputs if output.name in outputs),
                frozenset(arcs),
            )
        )
    return tuple(found)
