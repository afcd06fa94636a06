"""The query network: sources, boxes and outputs, and the arcs between them.

A network is frozen and does nothing when built; runtimes compile it. An arc is named `from->to`.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from streamshed.network.check import Draft, check, schemas, topological
from streamshed.network.nodes import (
    BOXES,
    DEFAULT_COST,
    WINDOWS,
    Aggregate,
    Box,
    Column,
    CountWindow,
    Filter,
    InvalidNetwork,
    Join,
    LoadAware,
    Map,
    Node,
    Output,
    Problem,
    Schema,
    Source,
    TopK,
    Udf,
    Union,
    arc,
    ddl,
    ends,
    inputs,
    schema_of,
)

__all__ = [
    "BOXES",
    "DEFAULT_COST",
    "WINDOWS",
    "Aggregate",
    "Box",
    "Column",
    "CountWindow",
    "Filter",
    "InvalidNetwork",
    "Join",
    "LoadAware",
    "Map",
    "Network",
    "Node",
    "Output",
    "Problem",
    "Schema",
    "Source",
    "TopK",
    "Udf",
    "Union",
    "arc",
    "ddl",
    "ends",
    "inputs",
    "schema_of",
]


@dataclass(frozen=True)
class Network:
    """A directed acyclic graph of sources, boxes and outputs; checked when built."""

    name: str
    sources: tuple[Source, ...]
    boxes: tuple[Box, ...]
    outputs: tuple[Output, ...]
    capacity: float | None = None
    """Core-seconds per second; None: as many as the runtime has."""
    headroom: float = 0.9

    def __post_init__(self) -> None:
        draft = Draft(self.sources, self.boxes, self.outputs, self.capacity, self.headroom, name=self.name)
        problems = check(draft)
        if problems:
            raise InvalidNetwork(problems, f"the network {self.name!r}")

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        everything: list[Node] = [*self.sources, *self.boxes, *self.outputs]
        return {node.name: node for node in everything}

    @cached_property
    def heads(self) -> tuple[Box | Output, ...]:
        """Everything that an arc enters: the boxes in order, then the outputs."""
        return (*self.order, *self.outputs)

    @cached_property
    def arcs(self) -> tuple[str, ...]:
        """Every arc, in topological order of the boxes and outputs they enter."""
        return tuple(arc(name, node.name) for node in self.heads for name in inputs(node))

    @cached_property
    def order(self) -> tuple[Box, ...]:
        """The boxes, each after all of its inputs."""
        return topological(self.boxes)[0]

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The place of each box and output in `heads`."""
        return {node.name: index for index, node in enumerate(self.heads)}

    def above(self, name: str) -> tuple[tuple[Source, ...], tuple[Box, ...]]:
        """The sources and the boxes, in order, whose rows can reach a node."""
        seen: set[str] = set()
        stack = [name]
        while stack:
            for above in inputs(self.nodes[stack.pop()]):
                if above not in seen:
                    seen.add(above)
                    stack.append(above)
        nodes = [self.nodes[one] for one in seen]
        sources = sorted((node for node in nodes if isinstance(node, Source)), key=lambda node: node.name)
        boxes = [node for node in nodes if isinstance(node, Box)]
        return tuple(sources), tuple(sorted(boxes, key=lambda box: self.positions[box.name]))

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """For each node, the boxes and outputs that its rows go to."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for node in self.heads:
            for name in inputs(node):
                found[name].append(node.name)
        return {name: tuple(names) for name, names in found.items()}

    @cached_property
    def split_points(self) -> tuple[str, ...]:
        """Boxes whose output goes to several places."""
        return tuple(box.name for box in self.order if len(self.consumers[box.name]) > 1)

    @cached_property
    def schemas(self) -> Mapping[str, Schema]:
        """The columns that leave each node (of an output: that reach it)."""
        return schemas(self.sources, self.order, self.outputs, [])

    @cached_property
    def times(self) -> Mapping[str, str | None]:
        """For each node, the column by which its rows are windowed: the arrival column of its sources."""
        found: dict[str, str | None] = {source.name: source.arrived for source in self.sources}
        for box in self.order:
            above = found[box.inputs[0]]
            names = {column.name for column in self.schemas[box.name]}
            windows = isinstance(box, Aggregate | CountWindow | TopK)
            found[box.name] = "window_end" if windows else above if above in names else None
        for output in self.outputs:
            found[output.name] = found[output.input]
        return found

    def arcs_into(self, node: str) -> tuple[str, ...]:
        return self._arcs[0][node]

    def arcs_out_of(self, node: str) -> tuple[str, ...]:
        return self._arcs[1][node]

    @cached_property
    def _arcs(self) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
        into = {name: tuple(arc(above, name) for above in inputs(node)) for name, node in self.nodes.items()}
        out_of = {name: tuple(arc(name, below) for below in self.consumers[name]) for name in self.nodes}
        return into, out_of

    @cached_property
    def part_of(self) -> Mapping[str, str]:
        """For each node, one that stands for all between which there are ways, up or down."""
        name_of = {name: name for name in self.nodes}

        def root(name: str) -> str:
            while name_of[name] != name:
                name_of[name] = name = name_of[name_of[name]]
            return name

        for head in self.heads:
            for above in inputs(head):
                name_of[root(head.name)] = root(above)
        return {name: root(name) for name in self.nodes}

    def parts(self) -> list[Network]:
        """The network in parts between which there are no arcs; in the order of their first sources."""
        roots = list(dict.fromkeys(self.part_of[source.name] for source in self.sources))
        if len(roots) == 1:
            return [self]
        sources: dict[str, list[Source]] = {root: [] for root in roots}
        boxes: dict[str, list[Box]] = {root: [] for root in roots}
        outputs: dict[str, list[Output]] = {root: [] for root in roots}
        for source in self.sources:
            sources[self.part_of[source.name]].append(source)
        for box in self.boxes:
            boxes[self.part_of[box.name]].append(box)
        for output in self.outputs:
            outputs[self.part_of[output.name]].append(output)
        return [
            replace(self, sources=tuple(sources[root]), boxes=tuple(boxes[root]), outputs=tuple(outputs[root]))
            for root in roots
            if outputs[root]
        ]

    def column(self, node: str, name: str) -> Column:
        """A column of the rows that leave a node."""
        return next(column for column in self.schemas[node] if column.name == name)

    def draw(self, style: str = "text") -> str:
        """The network as text, or with `style="mermaid"` as a Mermaid flowchart."""
        from streamshed.network.spec import draw

        return draw.mermaid(self) if style == "mermaid" else draw.text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.draw())}</pre>"
