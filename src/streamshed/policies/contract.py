"""What a policy for networks is given, and what it answers.

    Catalog ─► policy.planner ─► Planner;   rates ─► planner.decide ─► Decision ─► Plan

A policy looks at the network once (`planner`: this may take long) and then answers for any rates
(`decide`: this must be quick, it is used at every interval). All policies keep five promises:

- the planned load fits the limit whenever dropping can make it fit;
- a larger excess never leaves a larger utility;
- protected rows are never dropped;
- no overload, no drop;
- the same catalog, rates and seed give the same decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamshed.network.catalog import Catalog
from streamshed.network.expressions.expression import Expression, Field, Unary
from streamshed.network.graph import Box, Map, Network, arc, inputs
from streamshed.network.parse_step import hoisted
from streamshed.network.qos import LossGraph
from streamshed.network.value_flow.certainty import Certainty
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.records import Drop, Mode, Plan

SLACK = 1e-9
"""Excess below this share of the limit is rounding, not overload."""


@dataclass(frozen=True, slots=True)
class Row:
    """One load-shedding plan: LSRM's triple of savings, drops and delivery cursors."""

    savings: Mapping[str, float]
    """Cycle savings coefficient of each source: core-seconds saved for each row that arrives there."""
    drops: tuple[Drop, ...]
    delivery: Mapping[str, float]
    """Percent of its rows that each output gets."""
    utility: Mapping[str, float]
    """What the loss graph of each output makes of that."""

    def saved(self, rates: Mapping[str, float]) -> float:
        """Core-seconds saved per second."""
        return sum(coefficient * rates[source] for source, coefficient in self.savings.items())

    def as_json(self) -> dict[str, Any]:
        return {
            "savings": dict(self.savings),
            "drops": [{"at": drop.at, "keep": drop.keep, "where": drop.where} for drop in self.drops],
            "delivery": dict(self.delivery),
            "utility": dict(self.utility),
        }


@dataclass(frozen=True)
class Decision:
    """A policy's answer: the rows it can choose from, which one it chose, and what is left over."""

    policy: str
    load: float
    limit: float
    rows: Sequence[Row] = field(repr=False)
    chosen: int | None
    remaining: float = 0.0
    """Load above the limit that no plan of this policy removes; 0 when the chosen one suffices."""
    certainty: Mapping[str, Certainty] = field(default_factory=dict)
    """For each output, whether its delivery is exact, estimated or unknown, and why."""
    gap: float | None = None
    """Of a policy that seeks the best: how much utility it can be away from it, at most. None: not known."""

    @property
    def row(self) -> Row | None:
        """The chosen row; None when nothing needs to be shed."""
        return None if self.chosen is None else self.rows[self.chosen]

    @property
    def drops(self) -> tuple[Drop, ...]:
        row = self.row
        return row.drops if row else ()

    @property
    def feasible(self) -> bool:
        return self.remaining <= SLACK * self.limit

    @property
    def reason(self) -> str:
        """The decision in words."""
        if self.chosen is None:
            return f"load {self.load:.3g} fits {self.limit:.3g}; nothing is shed"
        if not self.feasible:
            return (
                f"load {self.load:.3g} exceeds {self.limit:.3g} and cannot be made to fit: everything that is"
                f" not protected is dropped and {self.remaining:.3g} too much remains"
            )
        return f"load {self.load:.3g} exceeds {self.limit:.3g}: row {self.chosen + 1} of {len(self.rows)}"

    def plan(self, *, version: int = 0, at: float = 0.0, mode: Mode = Mode.ENFORCE) -> Plan:
        """The decision as a plan that a runtime carries out."""
        drops = self.drops if mode is Mode.ENFORCE else ()
        return Plan(drops, f"{self.policy}: {self.reason}", version, at, mode, None, self.drops)

    def as_json(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "load": self.load,
            "limit": self.limit,
            "rows": [row.as_json() for row in self.rows],
            "chosen": self.chosen,
            "remaining": self.remaining,
            "certainty": {name: {"is": each.kind, "why": each.why} for name, each in self.certainty.items()},
            "gap": self.gap,
        }


class Planner(Protocol):
    """A policy that has seen its network."""

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        """What to drop when the sources have these rates (those of the catalog where not given)."""
        ...


class NetworkPolicy(Protocol):
    """A way to choose drops for a network."""

    @property
    def name(self) -> str: ...

    def planner(self, catalog: Catalog) -> Planner: ...


def overload(catalog: Catalog) -> float:
    """Core-seconds per second to shed; 0 when the load fits."""
    excess = catalog.excess
    return excess if excess > SLACK * catalog.limit else 0.0


def with_rates(catalog: Catalog, rates: Mapping[str, float] | None) -> Catalog:
    return catalog if not rates else catalog.measured(rates=rates)


def evaluated(model: FlowModel, drops: Iterable[Drop], graphs: Mapping[str, LossGraph]) -> Row:
    """The row of some drops: what the model says that they do."""
    made = tuple(sorted(hoisted(drops, model.network), key=lambda each: (each.at, each.where is None)))
    state = model.state(model.keeps(made))
    delivery = model.delivery(state)
    return Row(
        savings={name: saved for name, saved in model.savings(state).items() if saved},
        drops=made,
        delivery=delivery,
        utility={name: graphs[name](percent) for name, percent in delivery.items()},
    )


def protection(network: Network) -> dict[str, Expression | None]:
    """For each arc on which protected rows can be told from others, what tells them (None: there are none).

    An arc below a box that changes a field of the predicate, pairs or groups rows, or mixes streams that are
    protected differently, is not in the answer: nothing may be dropped there.
    """
    told: dict[str, tuple[bool, Expression | None]] = {
        source.name: (True, source.protect) for source in network.sources
    }
    for box in network.order:
        above = {told[name] for name in box.inputs}
        tell, predicate = above.pop()
        same = tell and not above
        told[box.name] = (
            same and (predicate is None or predicate.fields() <= _carried(network, box)),
            predicate,
        )
    return {
        arc(name, head.name): told[name][1] for head in network.heads for name in inputs(head) if told[name][0]
    }


def _carried(network: Network, box: Box) -> frozenset[str]:
    """The columns that leave a box, row by row, as they entered it."""
    if box.makes_rows:
        return frozenset()
    if isinstance(box, Map):
        return frozenset(name for name, expression in box.select.items() if expression == Field(name))
    return frozenset(column.name for column in network.schemas[box.inputs[0]])


def drop(at: str, keep: float, protect: Expression | None, where: str | None = None) -> Drop:
    """A drop that leaves protected rows alone."""
    if protect is not None:
        spared = Unary("NOT", protect).sql()
        where = spared if where is None else f"({where}) AND {spared}"
    return Drop(at, min(1.0, max(0.0, keep)), where)
