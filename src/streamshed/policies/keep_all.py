"""Policy `none`: keep everything, to see what happens then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.network.catalog import Catalog
from streamshed.policies.contract import Decision, overload, with_rates


@dataclass(frozen=True)
class KeepAll:
    """Says how much too much there is, and drops nothing."""

    name: str = "none"

    def planner(self, catalog: Catalog) -> _Planner:
        return _Planner(self.name, catalog)


@dataclass(frozen=True)
class _Planner:
    policy: str
    catalog: Catalog

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        catalog = with_rates(self.catalog, rates)
        return Decision(self.policy, catalog.load, catalog.limit, (), None, overload(catalog))
