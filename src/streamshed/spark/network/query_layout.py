"""Which outputs of a network run in which streaming query, and what is kept there for several readers.

Stateless outputs that have a source or a box in common run in one query, so that what they share runs once.
Spark holds the state of joins and windows in the plan of a query, so each output below one is a query of its
own, with copies of the boxes above it. Copies cost: `NetworkLayout.copies` is how often each box really runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from streamshed.network.catalog import Catalog
from streamshed.network.graph import Box, Network, Output, Udf, arc, ends, inputs


@dataclass(frozen=True)
class QueryLayout:
    """One streaming query: some outputs with all that is above them."""

    network: Network
    name: str
    outputs: tuple[str, ...]
    stateful: bool

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Sources, boxes and outputs that run in this query."""
        found = set(self.outputs)
        for output in self.outputs:
            sources, boxes = self.network.above(output)
            found.update(source.name for source in sources)
            found.update(box.name for box in boxes)
        return frozenset(found)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(source.name for source in self.network.sources if source.name in self.nodes)

    @cached_property
    def boxes(self) -> tuple[str, ...]:
        return tuple(box.name for box in self.network.order if box.name in self.nodes)

    @cached_property
    def arcs(self) -> tuple[str, ...]:
        return tuple(name for name in self.network.arcs if ends(name)[1] in self.nodes)

    @cached_property
    def heads(self) -> tuple[Box | Output, ...]:
        """Everything that an arc enters: the boxes in order, then the outputs."""
        return tuple(head for head in self.network.heads if head.name in self.nodes)

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Nodes whose rows are kept for as long as a batch lasts, upstream first.

        Those with several readers; and load-aware boxes, whose function must run once, in a stage of its own.
        """
        readers = dict.fromkeys((*self.sources, *self.boxes), 0)
        for name in self.arcs:
            readers[ends(name)[0]] += 1
        return tuple(name for name, count in readers.items() if count > 1 or name in self.load_aware)

    @cached_property
    def load_aware(self) -> frozenset[str]:
        """Boxes that drop rows by themselves."""
        boxes = (self.network.nodes[name] for name in self.boxes)
        return frozenset(box.name for box in boxes if isinstance(box, Udf) and box.load_aware is not None)


@dataclass(frozen=True)
class NetworkLayout:
    """All queries of a network."""

    network: Network
    queries: tuple[QueryLayout, ...]

    @staticmethod
    def of(network: Network) -> NetworkLayout:
        """
        >>> from streamshed.network import Builder
        >>> network = (
        ...     Builder("n").source("s", "x DOUBLE, at TIMESTAMP", arrived="at")
        ...     .filter("f", "s", "x > 0").filter("a", "f", "x > 1").filter("b", "f", "x > 2")
        ...     .aggregate("w", "f", "1 minute", {"n": "count(*)"})
        ...     .output("p", "a").output("q", "b").output("r", "w").build()
        ... )
        >>> layout = NetworkLayout.of(network)
        >>> [(query.outputs, query.shared) for query in layout.queries], layout.copies["f"]
        ([(('p', 'q'), ('f',)), (('r',), ())], 2)
        """
        groups: list[tuple[set[str], list[str]]] = []
        queries: list[tuple[tuple[str, ...], bool]] = []
        for output in network.outputs:
            sources, boxes = network.above(output.name)
            if any(box.makes_rows for box in boxes):
                queries.append(((output.name,), True))
                continue
            nodes, names = {*(source.name for source in sources), *(box.name for box in boxes)}, [output.name]
            for group in [group for group in groups if group[0] & nodes]:
                groups.remove(group)
                nodes, names = nodes | group[0], group[1] + names
            groups.append((nodes, names))
        order = [output.name for output in network.outputs]
        fused = [(tuple(sorted(names, key=order.index)), False) for _, names in groups]
        made = [
            QueryLayout(network, "-".join(outputs[:1]), outputs, stateful)
            for outputs, stateful in sorted([*fused, *queries], key=lambda one: order.index(one[0][0]))
        ]
        return NetworkLayout(network, tuple(made))

    @staticmethod
    def in_real_time(network: Network) -> NetworkLayout:
        """In real-time mode all outputs without windows run in one query, whose tasks hold their slots anyway.

        >>> from streamshed.network import Builder
        >>> network = (
        ...     Builder("n").source("s", "x DOUBLE, at TIMESTAMP", arrived="at")
        ...     .filter("f", "s", "x > 0").aggregate("w", "f", "1 minute", {"n": "count(*)"})
        ...     .output("p", "f").output("r", "w").build()
        ... )
        >>> [(query.name, query.outputs) for query in NetworkLayout.in_real_time(network).queries]
        [('n', ('p',)), ('n-r', ('r',))]
        """
        below = {
            output.name: any(box.makes_rows for box in network.above(output.name)[1]) for output in network.outputs
        }
        made = [
            QueryLayout(network, f"{network.name}-{name}", (name,), True) for name, state in below.items() if state
        ]
        plain = tuple(name for name, state in below.items() if not state)
        first = [QueryLayout(network, network.name, plain, False)] if plain else []
        return NetworkLayout(network, (*first, *made))

    @cached_property
    def copies(self) -> Mapping[str, int]:
        """In how many queries each box runs."""
        return {box.name: sum(box.name in query.nodes for query in self.queries) for box in self.network.boxes}

    def physical(self, catalog: Catalog) -> Catalog:
        """The catalog of what really runs: a box that runs in several queries costs that many times."""
        reading = {name: sum(name in query.nodes for query in self.queries) for name in catalog.parses}
        return replace(
            catalog,
            costs={name: cost * self.copies[name] for name, cost in catalog.costs.items()},
            parses={name: cost * reading[name] for name, cost in catalog.parses.items()},
        )

    def of_query(self, catalog: Catalog, query: QueryLayout) -> Catalog:
        """The catalog of one query alone: what runs elsewhere costs nothing here."""
        return replace(
            catalog,
            costs={name: cost if name in query.nodes else 0.0 for name, cost in catalog.costs.items()},
            parses={name: cost for name, cost in catalog.parses.items() if name in query.nodes},
        )


def candidates(network: Network) -> tuple[str, ...]:
    """Arcs at which a policy may drop: out of sources and out of split points."""
    tails = {source.name for source in network.sources} | set(network.split_points)
    return tuple(arc(name, head.name) for head in network.heads for name in inputs(head) if name in tails)
