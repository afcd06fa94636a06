"""Costs, selectivities and rates, and the load that follows from them (LSRM 4.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from streamshed.errors import InvalidArgument
from streamshed.network.check import LARGEST
from streamshed.network.graph import Box, Join, Network, arc


@dataclass(frozen=True)
class Catalog:
    """What is known of a network's boxes and sources, given or measured.

    Load coefficient of an arc: the seconds of work that one row costs from there to the outputs. On a
    chain, with cost cᵢ and selectivity sᵢ of its boxes (LSRM eq. 1)

        L = Σᵢ (Πⱼ₍ⱼ₌₁…ᵢ₋₁₎ sⱼ) · cᵢ

    Fan-out adds the paths. A box with two inputs charges a row of either: rate out = s · Σ rates in.
    Load = Σ Lᵢ·rᵢ over the sources. A join's selectivity is that at the catalog's rates, when nothing is dropped;
    with the shares φ of its sides left, its rate is s · Σ rates in · φ₁ · φ₂, and with one side empty 0.

    >>> from streamshed.network.builder import Builder
    >>> network = (
    ...     Builder("two").source("s", "x DOUBLE", rate=100)
    ...     .filter("a", "s", "x > 1", cost=0.01, selectivity=0.5).filter("b", "a", "x > 2", cost=0.02)
    ...     .output("o", "b").build()
    ... )
    >>> catalog = Catalog.of(network)
    >>> catalog.coefficients["s->a"], catalog.coefficients["a->b"], catalog.load, catalog.limit
    (0.02, 0.02, 2.0, 0.9)
    """

    network: Network
    rates: Mapping[str, float]
    """Rows per second of each source."""
    costs: Mapping[str, float]
    """Seconds per input row of each box."""
    selectivities: Mapping[str, float]
    """Rows out per row in of each box."""
    capacity: float = 1.0
    """Core-seconds per second."""
    headroom: float = 0.9
    """Share of the capacity that may be used."""
    drop_cost: float = 0.0
    """Seconds per row that a drop itself costs (LSRM's D)."""
    parses: Mapping[str, float] = field(default_factory=dict)
    """Of sources whose rows are parsed late, and need not be if they are dropped before: seconds per row parsed.
    What a row costs that is read and dropped before that is no work of the network. See `parse_step`."""

    @staticmethod
    def of(network: Network, *, capacity: float | None = None, drop_cost: float = 0.0) -> Catalog:
        """What the network's own spec says; `capacity` where the spec does not."""
        return Catalog(
            network,
            rates={source.name: source.rate for source in network.sources},
            costs={box.name: box.cost for box in network.boxes},
            selectivities={box.name: box.selectivity for box in network.boxes},
            capacity=network.capacity or capacity or 1.0,
            headroom=network.headroom,
            drop_cost=drop_cost,
            parses={
                source.name: source.parse["cost"]
                for source in network.sources
                # Who is protected is only known of a parsed row: then all are parsed, whatever is dropped.
                if source.parse is not None and source.parse.get("cost") and source.protect is None
            },
        )

    def measured(
        self,
        *,
        rates: Mapping[str, float] | None = None,
        costs: Mapping[str, float] | None = None,
        selectivities: Mapping[str, float] | None = None,
    ) -> Catalog:
        """A catalog with some figures replaced."""
        for what, figure, given, known in (
            ("source", "rate", rates, self.rates),
            ("box", "cost", costs, self.costs),
            ("box", "selectivity", selectivities, self.selectivities),
        ):
            for name, value in (given or {}).items():
                if name not in known:
                    raise InvalidArgument(f"no such {what}", got=repr(name), hint=", ".join(known))
                if not 0 <= value <= LARGEST:
                    raise InvalidArgument(
                        f"the {figure} of {name!r} is out of bounds",
                        got=value,
                        hint=f"0 or more, at most {LARGEST:g}",
                    )
        return replace(
            self,
            rates={**self.rates, **(rates or {})},
            costs={**self.costs, **(costs or {})},
            selectivities={**self.selectivities, **(selectivities or {})},
        )

    def scaled(self, factor: float) -> Catalog:
        """All rates times a factor."""
        return replace(self, rates={name: rate * factor for name, rate in self.rates.items()})

    def at(self, rates: Mapping[str, float]) -> Catalog:
        """The catalog at other rates, where joins find as many partners as there then are.

        Pairs within a window grow with the rates of both sides: s·(a + b) at rates a and b becomes
        s·(a + b) · (a'/a) · (b'/b), and the selectivity is that over a' + b'.
        """
        made = self.measured(rates=rates)
        for box in self.network.order:
            if isinstance(box, Join):
                sides = self.network.arcs_into(box.name)
                before, now = [self.arc_rates[on] for on in sides], [made.arc_rates[on] for on in sides]
                if min(*before, *now) > 0:
                    pairs = self.selectivities[box.name] * sum(before) * math.prod(now) / math.prod(before)
                    made = made.measured(selectivities={box.name: pairs / sum(now)})
        return made

    def overloaded(self, excess: float) -> Catalog:
        """All rates scaled so that the load is `excess` above the limit: 0.5 is 50 % too much."""
        return self.scaled(self.factor(excess))

    def factor(self, excess: float) -> float:
        """What all rates must be multiplied with for a load that is `excess` above the limit."""
        if self.load <= 0:
            raise InvalidArgument("the network has no load to scale", hint="give rates and costs above 0")
        return (1 + excess) * self.limit / self.load

    def true_factor(self, excess: float) -> float:
        """The same where windows stay as they are, so that the pairs of joins grow faster than the rates."""
        straight = self.factor(excess)
        if not any(isinstance(box, Join) for box in self.network.order):
            return straight
        wanted = (1 + excess) * self.limit
        low, high = min(1e-6, straight), max(1.0, straight)
        for _ in range(80):
            middle = (low + high) / 2
            rates = {name: rate * middle for name, rate in self.rates.items()}
            low, high = (middle, high) if self.at(rates).load < wanted else (low, middle)
        return (low + high) / 2

    def parts(self) -> list[Catalog]:
        """The catalogs of those parts of the network between which there are no arcs."""
        return [
            replace(
                self,
                network=part,
                rates={source.name: self.rates[source.name] for source in part.sources},
                costs={box.name: self.costs[box.name] for box in part.boxes},
                selectivities={box.name: self.selectivities[box.name] for box in part.boxes},
                parses={name: cost for name, cost in self.parses.items() if name in part.nodes},
            )
            for part in self.network.parts()
        ]

    @property
    def limit(self) -> float:
        """The load that may be carried: headroom × capacity."""
        return self.headroom * self.capacity

    @property
    def excess(self) -> float:
        """Load above the limit; negative when there is room."""
        return self.load - self.limit

    @cached_property
    def coefficients(self) -> Mapping[str, float]:
        """The load coefficient of every arc. Those of a source share what the parse of its rows costs."""
        through: dict[str, float] = {output.name: 0.0 for output in self.network.outputs}
        found: dict[str, float] = {}
        for box in reversed(self.network.order):
            below = 0.0
            for name in self.network.consumers[box.name]:
                found[arc(box.name, name)] = through[name]
                below += through[name]
            through[box.name] = self.costs[box.name] + self._selectivity(box) * below
        for source in self.network.sources:
            readers = self.network.consumers[source.name]
            for name in readers:
                found[arc(source.name, name)] = through[name] + self.parses.get(source.name, 0.0) / len(readers)
        return {name: found[name] for name in self.network.arcs}

    @cached_property
    def source_coefficients(self) -> Mapping[str, float]:
        """The load coefficient of every source: the sum over its arcs."""
        return {
            source.name: math.fsum(self.coefficients[name] for name in self.network.arcs_out_of(source.name))
            for source in self.network.sources
        }

    @cached_property
    def load(self) -> float:
        """Core-seconds of work per second when nothing is dropped."""
        return math.fsum(self.source_coefficients[name] * rate for name, rate in self.rates.items())

    @cached_property
    def arc_rates(self) -> Mapping[str, float]:
        """Rows per second on every arc when nothing is dropped."""
        return self.flows({})

    def _selectivity(self, box: Box) -> float:
        """Of a join with nobody to pair with on one side, nothing comes."""
        empty = isinstance(box, Join) and min(self.arc_rates[on] for on in self.network.arcs_into(box.name)) <= 0
        return 0.0 if empty else self.selectivities[box.name]

    def flows(self, keeps: Mapping[str, float]) -> dict[str, float]:
        """Rows per second that pass each arc, when of those that reach an arc a fraction is kept."""
        leaving: dict[str, float] = dict(self.rates)
        passing: dict[str, float] = {}
        for box in self.network.order:
            entering = 0.0
            for name in box.inputs:
                on = arc(name, box.name)
                passing[on] = leaving[name] * keeps.get(on, 1.0)
                entering += passing[on]
            if isinstance(box, Join):
                # A pair needs both of its rows.
                sides = self.network.arcs_into(box.name)
                whole = [self.arc_rates[on] if keeps else passing[on] for on in sides]
                left = [passing[on] / rate if rate > 0 else 0.0 for on, rate in zip(sides, whole, strict=True)]
                entering = sum(whole) * math.prod(left)
            leaving[box.name] = entering * self.selectivities[box.name]
        for output in self.network.outputs:
            on = arc(output.input, output.name)
            passing[on] = leaving[output.input] * keeps.get(on, 1.0)
        return passing

    def load_with(self, keeps: Mapping[str, float]) -> float:
        """The load under drops, with what the drops themselves cost."""
        passing = self.flows(keeps)
        work = math.fsum(
            self.costs[box.name] * passing[name]
            for box in self.network.order
            for name in self.network.arcs_into(box.name)
        )
        for source, cost in self.parses.items():
            # What every arc of a source would drop is not parsed.
            kept = max((keeps.get(on, 1.0) for on in self.network.arcs_out_of(source)), default=1.0)
            work += cost * self.rates[source] * kept
        if self.drop_cost:
            reaching = {name: self.arc_rates[name] for name in self.network.arcs}
            for name, keep in keeps.items():
                if keep < 1:
                    reaching[name] = passing[name] / keep if keep > 0 else self._reaching(name, keeps)
                    work += self.drop_cost * reaching[name]
        return work

    def _reaching(self, name: str, keeps: Mapping[str, float]) -> float:
        return self.flows({**keeps, name: 1.0})[name]

    def delivery(self, keeps: Mapping[str, float]) -> dict[str, float]:
        """Percent of its rows that each output gets under drops; 100 for one that gets none anyway."""
        passing = self.flows(keeps)
        found = {}
        for output in self.network.outputs:
            on = arc(output.input, output.name)
            full = self.arc_rates[on]
            found[output.name] = 100.0 * passing[on] / full if full > 0 else 100.0
        return found
