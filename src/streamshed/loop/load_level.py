"""The detector of networks whose capacity is known: load against headroom × capacity (LSRM 4.1, 4.2).

Load is the measured rates times the load coefficients; drops come and go with it. What stands in the queues counts
as well: a backlog worth more than an interval of work is extra arrivals until it is worked off, so that a catalog
that is somewhat wrong cannot let queues grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamshed.loop.steady_rate import SteadyRate
from streamshed.loop.time_budget import Allowance
from streamshed.network.catalog import Catalog
from streamshed.records import Flows, Overload, Sample

_PATIENCE = 10.0
"""Intervals in which a backlog is to be worked off."""


class LoadLevel:
    """Samples in; which share of the load can be carried, out. In place of `QueryLoad` where capacity is known."""

    def __init__(self, catalog: Catalog, *, by_latency: bool = False) -> None:
        """`by_latency`: the policy has a say when outputs are late, and sees to the queues itself."""
        self.latency = float("inf")
        self._catalog = catalog
        self._by_latency = by_latency
        self._rates = {name: SteadyRate() for name in catalog.rates}
        self._seen = Sample(at=0.0, started=0.0)

    def observe(self, sample: Sample, *, enforced: bool = True, budget: float | None = None) -> None:
        self._seen = sample
        for name, rate in self._rates.items():
            rate.observe((sample.flows or Flows()).arrived.get(name, 0), sample.gap)

    @property
    def full_share(self) -> float | None:
        """Of all that arrives, the share that fits: above 1 when there is room."""
        load = self._load
        return self._catalog.limit / load if load > 0 else None

    allowance: Allowance | None = None
    """There are no batches whose time could be used up."""
    learning = False
    would_shed = 0.0

    def remember(self) -> dict[str, Any]:
        """Rates are measured anew."""
        return {}

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Nothing was."""

    def overload(self) -> Overload | None:
        load, limit = self._load, self._catalog.limit
        if not self._by_latency:
            load *= 1 + self._backlog()
        has_a_say = self._by_latency and self._seen.flows is not None and self._seen.flows.latencies
        if load <= limit and not has_a_say:
            return None
        return Overload(load, limit, sum(self._measured.values()), load, limit)

    @property
    def _measured(self) -> dict[str, float]:
        return {name: rate.value for name, rate in self._rates.items()}

    @property
    def _load(self) -> float:
        return self._catalog.measured(rates=self._measured).load

    def _backlog(self) -> float:
        """Work in the queues, as a share of the load, if it is spread over the time to get rid of it."""
        queued = (self._seen.flows or Flows()).queued
        coefficients = self._catalog.coefficients
        work = sum(count * coefficients[name] for name, count in queued.items() if count)
        load = sum(self._catalog.source_coefficients[name] * rate for name, rate in self._measured.items())
        if work <= self._catalog.capacity * self._seen.gap or load <= 0:
            return 0.0
        return work / (_PATIENCE * self._seen.gap * load)
