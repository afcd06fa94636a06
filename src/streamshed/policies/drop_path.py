"""Policies that go one way: a path of random drops, each point of which sheds more than the one before.

A path has points 0 … n. Each says, for some candidate arcs, which fraction of the rows not protected is kept;
between two points the fractions change evenly. Keeps only fall along the path, so more excess never leaves more
utility. A decision is the first place of the path at which the load fits.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping

from streamshed.network.value_flow.cells import loss_graphs
from streamshed.network.value_flow.certainty import certainties
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.contract import (
    SLACK,
    Decision,
    Row,
    drop,
    evaluated,
    overload,
    protection,
)

Keeps = Mapping[str, float]
"""By arc; arcs that are not named keep all."""

_HALVINGS = 30


class PathPlanner:
    def __init__(self, policy: str, model: FlowModel, point: Callable[[int], Keeps], points: int) -> None:
        self.policy = policy
        self._model = model
        self._graphs = loss_graphs(model.catalog)
        self._certainty = certainties(model.catalog)
        self._protect = protection(model.network)
        self._point = point
        self._points = points

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        model = self._model.with_rates(rates)
        catalog = model.catalog
        excess = overload(catalog)
        if not excess:
            return Decision(self.policy, catalog.load, catalog.limit, (), None, certainty=self._certainty)
        wanted = excess - SLACK * catalog.limit

        def row_at(keeps: Keeps) -> Row:
            drops = [drop(at, keep, self._protect[at]) for at, keep in keeps.items() if keep < 1.0]
            return evaluated(model, drops, self._graphs)

        def fits(point: int) -> bool:
            return row_at(self._point(point)).saved(catalog.rates) >= wanted

        end = bisect.bisect_left(range(self._points), True, key=fits)
        row = row_at(self._point(end))
        if row.saved(catalog.rates) < wanted:
            remaining = excess - row.saved(catalog.rates)
            return Decision(
                self.policy, catalog.load, catalog.limit, (row,), 0, remaining, certainty=self._certainty
            )
        before, after = self._point(end - 1), self._point(end)
        short, enough = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (short + enough) / 2
            tried = row_at(_between(before, after, middle))
            if tried.saved(catalog.rates) >= wanted:
                enough, row = middle, tried
            else:
                short = middle
        return Decision(self.policy, catalog.load, catalog.limit, (row,), 0, certainty=self._certainty)


def _between(before: Keeps, after: Keeps, part: float) -> Keeps:
    return {name: before.get(name, 1.0) * (1 - part) + keep * part for name, keep in after.items()}
