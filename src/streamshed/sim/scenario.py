"""What is simulated: a network, its arrivals, and the node it runs on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Network
from streamshed.sim.arrivals import ArrivalProcess, Poisson, Trace

MOST_ROWS, MOST_INTERVALS = 500_000_000, 1_000_000
"""Of one simulation: some minutes of work."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Everything that a run depends on; equal scenarios give equal results, bit for bit.

    >>> from streamshed.network.builder import Builder
    >>> network = Builder("one", capacity=1.0).source("s", "x DOUBLE", rate=100).output("o", "s").build()
    >>> Scenario.of(network, overload=2.0).arrivals["s"].rate
    200.0
    """

    catalog: Catalog
    """The network with its costs, and the node's capacity and headroom."""
    arrivals: Mapping[str, ArrivalProcess]
    seconds: float = 60.0
    """How long rows arrive; the queues are then emptied."""
    seed: int = 1
    interval: float = 1.0
    """Seconds between two looks of the monitor."""
    slice: float = 0.01
    """Seconds of service a box gets at one visit of the scheduler."""
    exponential: bool = False
    """Service times exponential with mean `cost` instead of fixed."""
    recorded: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict, hash=False)
    """Columns of recorded rows, by source; other sources draw theirs as their histograms say."""

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("interval", self.interval), ("slice", self.slice)):
            if not 0 < value < math.inf:
                raise InvalidArgument(f"{name} must be positive and finite", got=value)
        if self.rows > MOST_ROWS or self.seconds / self.interval > MOST_INTERVALS:
            raise InvalidArgument(
                f"more than can be simulated: {MOST_ROWS:,} rows, {MOST_INTERVALS:,} intervals",
                got=f"{self.rows:.3g} rows, {self.seconds / self.interval:.3g} intervals",
                hint="fewer seconds, or a smaller overload",
            )
        missing = {source.name for source in self.network.sources} ^ set(self.arrivals)
        if missing:
            raise InvalidArgument(
                "every source needs arrivals, and nothing else does",
                got=", ".join(sorted(self.arrivals)) or "none",
                hint="check " + ", ".join(sorted(missing)),
            )

    @property
    def rows(self) -> float:
        """Rows that will arrive, about; 0 for recordings, which are as long as they are."""
        return self.seconds * sum(float(getattr(process, "rate", 0.0)) for process in self.arrivals.values())

    @property
    def network(self) -> Network:
        return self.catalog.network

    @staticmethod
    def of(
        network: Network,
        *,
        overload: float = 1.0,
        seconds: float = 60.0,
        seed: int = 1,
        capacity: float | None = None,
        process: Callable[[float], ArrivalProcess] = Poisson,
    ) -> Scenario:
        """Arrivals at the rates of the spec times `overload`, by a process that is made from a rate."""
        if not overload > 0:
            raise InvalidArgument("overload must be positive", got=overload, hint="1.0 is the spec's own rates")
        catalog = Catalog.of(network, capacity=capacity)
        arrivals: dict[str, ArrivalProcess] = {
            name: process(rate * overload) if rate > 0 else Trace(()) for name, rate in catalog.rates.items()
        }
        # What joins find at these rates; the rates that are measured against are the spec's own.
        then = catalog.at({name: rate * overload for name, rate in catalog.rates.items()})
        catalog = catalog.measured(selectivities=then.selectivities)
        return Scenario(catalog=catalog, arrivals=arrivals, seconds=seconds, seed=seed)

    def with_seed(self, seed: int) -> Scenario:
        return replace(self, seed=seed)
