"""What the SIC experiments share: a run of a federation, and what is read off when it has settled.

DISSP = chapters 4 and 5 on source information content and fair shedding; see `docs/sic.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamshed.quality.sic import jain
from streamshed.sim.nodes.deployment import FederatedQuery, FederationSettings, Incident
from streamshed.sim.nodes.federation import Federation

ALGORITHMS = ("fair", "random", "input-uniform")
SECONDS = 40.0
SETTLED = 20.0
"""Two source time windows: what is measured begins then."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A settled federation: the mean over its moments."""

    jain: float
    sic_mean: float
    sic_min: float
    """Of the query that has least, at each moment."""
    sic_max: float
    throughput: float
    """Tuples worked on per second."""
    by_query: dict[str, float]

    @staticmethod
    def mean(readings: Sequence[Reading]) -> Reading:
        """Of several runs; least and most are the least and the most of any."""
        return Reading(
            float(np.mean([each.jain for each in readings])),
            float(np.mean([each.sic_mean for each in readings])),
            min(each.sic_min for each in readings),
            max(each.sic_max for each in readings),
            float(np.mean([each.throughput for each in readings])),
            {},
        )


def read(
    nodes: Sequence[str],
    queries: Sequence[FederatedQuery],
    settings: FederationSettings,
    *,
    seconds: float = SECONDS,
    settled: float = SETTLED,
    incidents: Sequence[Incident] = (),
) -> Reading:
    """Run a federation of nodes of capacity 1, and read off what it settles to."""
    federation = Federation(dict.fromkeys(nodes, 1.0), queries, settings, incidents)
    federation.run(seconds)
    moments = [moment.sic for moment in federation.history if moment.at >= settled]
    return Reading(
        jain=float(np.mean([jain(sic.values()) for sic in moments])),
        sic_mean=float(np.mean([np.mean([*sic.values()]) for sic in moments])),
        sic_min=float(np.mean([min(sic.values()) for sic in moments])),
        sic_max=float(np.mean([max(sic.values()) for sic in moments])),
        throughput=federation.throughput,
        by_query={name: float(np.mean([sic[name] for sic in moments])) for name in moments[-1]},
    )
