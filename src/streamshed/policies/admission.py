"""Admission control: shed at the sources, blind to QoS (LSRM 5.3). The base lines.

`input-random`        shed one source after the other, in random order, each as far as needed
`input-cost-top`      the same, the source with the largest load first
`input-uniform`       the same load from every source; what one cannot give is asked of the others
`input-cost-uniform`  load from every source in proportion to its own

With the load lᵢ = Lᵢ·rᵢ that source i may lose and the excess E, shedding eᵢ of it (Σ eᵢ = E, eᵢ ≤ lᵢ) keeps
1 − eᵢ/lᵢ of its rows. Uniform is eᵢ = min(lᵢ, t) with t such that the sum is E.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("pair").source("a", "x INT", rate=100).source("b", "x INT", rate=20)
...     .filter("f", "a", "x > 0", cost=0.01).filter("g", "b", "x > 0", cost=0.01)
...     .output("o", "f").output("p", "g").build()
... )
>>> for policy in (InputCostTop(), InputUniform(), InputCostUniform()):
...     decision = policy.planner(Catalog.of(network)).decide()
...     print(policy.name, [(drop.at, round(drop.keep, 3)) for drop in decision.drops])
input-cost-top [('a->f', 0.7)]
input-uniform [('a->f', 0.85), ('b->g', 0.25)]
input-cost-uniform [('a->f', 0.75), ('b->g', 0.75)]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamshed.network.catalog import Catalog
from streamshed.network.graph import ends
from streamshed.network.qos import LossGraph
from streamshed.network.value_flow.cells import loss_graphs
from streamshed.network.value_flow.certainty import certainties
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.contract import SLACK, Decision, Row, drop, evaluated, overload
from streamshed.policies.parse_planner import weighing_parse

Amounts = dict[str, float]
"""Load by source."""


class _Planner:
    def __init__(self, name: str, catalog: Catalog, share_out: Callable[[Amounts, float], Amounts]) -> None:
        self.name = name
        self._share_out = share_out
        self._model = FlowModel(catalog)
        self._graphs = loss_graphs(catalog)
        self._certainty = certainties(catalog)

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        model = self._model.with_rates(rates)
        catalog = model.catalog
        excess = overload(catalog)
        if not excess:
            return Decision(self.name, catalog.load, catalog.limit, (), None, certainty=self._certainty)
        network = catalog.network
        arcs = {source.name: network.arcs_out_of(source.name) for source in network.sources}
        price = {name: catalog.drop_cost * len(arcs[name]) * catalog.rates[name] for name in arcs}
        sheddable = _sheddable(model)
        # A drop costs its own price on every row: a source gives its load less that, or is left alone.
        gives = {name: load - price[name] for name, load in sheddable.items() if load > price[name]}

        def row_for(amount: float) -> Row:
            keeps: dict[str, float] = {}
            for name, load in self._share_out(gives, amount).items():
                if load > 0:
                    loss = (load + price[name]) / (gives[name] + price[name])
                    keeps.update(dict.fromkeys(arcs[name], max(0.0, 1.0 - loss)))
            return row_of(model, keeps, self._graphs)

        most = sum(gives.values())
        row = row_for(min(excess, most))
        # Below joins sources do not give load independently of each other: the amount is sought.
        enough, short = most, 0.0
        for _ in range(50 if model.pairs else 0):
            middle = (enough + short) / 2
            tried = row_for(middle)
            if tried.saved(catalog.rates) >= excess - SLACK * catalog.limit:
                enough, row = middle, tried
            else:
                short = middle
        remaining = excess - row.saved(catalog.rates)
        if remaining <= SLACK * catalog.limit:
            remaining = 0.0
        return Decision(self.name, catalog.load, catalog.limit, (row,), 0, remaining, certainty=self._certainty)


def _sheddable(model: FlowModel) -> Amounts:
    """The load of each source's rows that may be dropped, by what a row costs when nothing is."""
    prices = model.prices(model.whole)
    found: Amounts = {}
    for source in model.network.sources:
        found[source.name] = sum(
            float((model.whole.reaching[on] * model.island(on).free) @ prices[on])
            for on in model.network.arcs_out_of(source.name)
        )
    return found


def row_of(model: FlowModel, keeps: Mapping[str, float], graphs: Mapping[str, LossGraph]) -> Row:
    """The row for drops at the arcs of sources that keep these fractions of the rows not protected."""
    protect = {source.name: source.protect for source in model.network.sources}
    return evaluated(model, [drop(on, keep, protect[ends(on)[0]]) for on, keep in keeps.items()], graphs)


def one_after_another(order: list[str], gives: Amounts, excess: float) -> Amounts:
    """Take all that each gives, in order, until there is enough."""
    taken: Amounts = {}
    for name in order:
        taken[name] = min(gives[name], excess)
        excess -= taken[name]
    return taken


def evenly(gives: Amounts, excess: float) -> Amounts:
    """Take the same from each; what one cannot give, the others give in equal parts."""
    taken: Amounts = {}
    waiting = sorted(gives, key=lambda name: (gives[name], name))
    while waiting:  # those that give least first: their shortfall is known when the others are asked
        name, asked = waiting[0], excess / len(waiting)
        taken[name] = min(gives[name], asked)
        excess -= taken[name]
        waiting.pop(0)
    return taken


@dataclass(frozen=True)
class InputRandom:
    """`input-random`: the order of the sources is drawn once, from the seed."""

    seed: int = 0
    name: str = "input-random"

    @weighing_parse
    def planner(self, catalog: Catalog) -> _Planner:
        order = list(catalog.rates)
        random.Random(self.seed).shuffle(order)

        def share_out(gives: Amounts, excess: float) -> Amounts:
            return one_after_another([name for name in order if name in gives], gives, excess)

        return _Planner(self.name, catalog, share_out)


@dataclass(frozen=True)
class InputCostTop:
    name: str = "input-cost-top"

    @weighing_parse
    def planner(self, catalog: Catalog) -> _Planner:
        def share_out(gives: Amounts, excess: float) -> Amounts:
            return one_after_another(sorted(gives, key=lambda name: (-gives[name], name)), gives, excess)

        return _Planner(self.name, catalog, share_out)


@dataclass(frozen=True)
class InputUniform:
    name: str = "input-uniform"

    @weighing_parse
    def planner(self, catalog: Catalog) -> _Planner:
        return _Planner(self.name, catalog, evenly)


@dataclass(frozen=True)
class InputCostUniform:
    name: str = "input-cost-uniform"

    @weighing_parse
    def planner(self, catalog: Catalog) -> _Planner:
        def share_out(gives: Amounts, excess: float) -> Amounts:
            whole = sum(gives.values())
            return {name: load * excess / whole for name, load in gives.items()}

        return _Planner(self.name, catalog, share_out)
