"""The monitor: at every interval, what was seen becomes the drops of the next one.

LSRM 4.1 and 4.2: load from measured rates and load coefficients against headroom × capacity; drops come and
go with it. "Load" includes what stands in the queues: a backlog worth more than an interval of work counts as
extra arrivals until it is worked off, so that a catalog that is somewhat wrong cannot let queues grow.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamshed.network.catalog import Catalog
from streamshed.policies.contract import Decision, NetworkPolicy
from streamshed.policies.latency import LatencyPlanner
from streamshed.sim.engine import Observation

_SURPRISE = 4.0
"""A count this many standard deviations (of a Poisson count) off the estimate means that the rate changed."""
_PATIENCE = 10.0
"""Intervals in which a backlog is to be worked off."""


class RateEstimate:
    """The mean rate since it last changed: steady while it is steady, and new at once when it jumps.

    >>> estimate = RateEstimate()
    >>> [estimate.update(count, 1.0) for count in (100, 110, 90, 400, 404)]
    [100.0, 105.0, 100.0, 400.0, 402.0]
    """

    def __init__(self) -> None:
        self._rows = 0.0
        self._seconds = 0.0

    def update(self, rows: int, seconds: float) -> float:
        if self._seconds > 0:
            expected = self._rows / self._seconds * seconds
            noise = max(expected, 1.0) * (1 + seconds / self._seconds)
            if abs(rows - expected) > _SURPRISE * noise**0.5:
                self._rows = self._seconds = 0.0
        self._rows += rows
        self._seconds += seconds
        return self._rows / self._seconds


class Monitor:
    """Observation ─► Decision."""

    def __init__(self, policy: NetworkPolicy, catalog: Catalog) -> None:
        self._catalog = catalog
        self._planner = policy.planner(catalog)
        self._estimates = {name: RateEstimate() for name in catalog.rates}

    def look(self, seen: Observation) -> Decision:
        rates = {
            name: estimate.update(seen.arrived[name], seen.seconds) for name, estimate in self._estimates.items()
        }
        if isinstance(self._planner, LatencyPlanner):
            return self._planner.decide(rates, latencies=seen.latency, queues=seen.queued)
        factor = 1 + self._backlog(seen, rates)
        return self._planner.decide({name: rate * factor for name, rate in rates.items()})

    def _backlog(self, seen: Observation, rates: Mapping[str, float]) -> float:
        """Work in the queues, as a share of the load, if it is spread over the time to get rid of it."""
        coefficients = self._catalog.coefficients
        work = sum(count * coefficients[name] for name, count in seen.queued.items() if count)
        load = sum(self._catalog.source_coefficients[name] * rate for name, rate in rates.items())
        if work <= self._catalog.capacity * seen.seconds or load <= 0:
            return 0.0
        return work / (_PATIENCE * seen.seconds * load)
