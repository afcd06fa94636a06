"""What a federation is made of: queries and where their boxes run, what befalls nodes, and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamshed.errors import InvalidArgument
from streamshed.network.graph import Network
from streamshed.policies.fair import check_weights
from streamshed.quality.source_time_window import SourceTimeWindow
from streamshed.sim.nodes.node_shedder import DECISION, INTERVAL

FEEDBACK = 1.0
"""Seconds between two messages of a coordinator."""


@dataclass(frozen=True)
class FederatedQuery:
    """A query, and which of its boxes run where."""

    network: Network
    nodes: Mapping[str, str]
    """Box ─► node."""
    weight: float = 1.0
    minimum: float = 0.0
    starts: float = 0.0
    ends: float = float("inf")
    batches: float = 4.0
    """Per second, that each source sends."""

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def places(self) -> tuple[str, ...]:
        """The nodes it runs on."""
        return tuple(dict.fromkeys(self.nodes[box.name] for box in self.network.order))


@dataclass(frozen=True, slots=True)
class Incident:
    """Something happens to a node: it gets another capacity, or with a capacity of 0 it fails."""

    at: float
    node: str
    capacity: float = 0.0


@dataclass(frozen=True)
class FederationSettings:
    shedder: str = "fair"
    window: SourceTimeWindow = field(default_factory=SourceTimeWindow)
    interval: float = INTERVAL
    feedback: float | None = FEEDBACK
    """Seconds between two messages of a coordinator; None: it tells nothing."""
    feedback_delay: float = 0.05
    """Seconds that a message takes."""
    predicting: bool = True
    """Whether nodes count what they let in since; else they take what is told as it is."""
    link: float = 0.02
    """Seconds that a batch takes between nodes."""
    lateness: float = 1.0
    """Seconds that windows wait for rows from other nodes."""
    decision: float = DECISION
    seed: int = 0
    results: bool = False
    """Whether to keep the results themselves."""


def check(
    nodes: Mapping[str, float],
    queries: Sequence[FederatedQuery],
    settings: FederationSettings,
    incidents: Sequence[Incident],
) -> None:
    """All that can be wrong with one, before anything starts."""
    if not nodes or not queries:
        raise InvalidArgument("a federation needs a node and a query", got=f"{len(nodes)} and {len(queries)}")
    for name, capacity in nodes.items():
        if not capacity > 0:
            raise InvalidArgument("a node's capacity must be above 0", got=f"{name}: {capacity}")
    for incident in incidents:
        if incident.node not in nodes:
            raise InvalidArgument("no such node", got=incident.node, hint=", ".join(nodes))
    for name, value in (("interval", settings.interval), ("feedback", settings.feedback or 1.0)):
        if not value > 0:
            raise InvalidArgument(f"{name} must be above 0 seconds", got=value)
    seen: set[str] = set()
    for query in queries:
        if query.name in seen:
            raise InvalidArgument("two queries of one name", got=repr(query.name))
        seen.add(query.name)
        check_weights(np.array([query.weight]))
        if not 0 <= query.minimum <= 1:
            raise InvalidArgument("a minimum SIC lies between 0 and 1", got=f"{query.name}: {query.minimum}")
        if not query.batches > 0:
            raise InvalidArgument("a source sends more than 0 batches a second", got=query.batches)
        for box in query.network.order:
            place = query.nodes.get(box.name)
            if place not in nodes:
                raise InvalidArgument(
                    f"the box {box.name!r} of {query.name!r} is on no node", got=place, hint=", ".join(nodes)
                )
