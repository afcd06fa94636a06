"""What drops do to a network: the rows on every arc, the load, what outputs get, and what one row more would cost.

Rows are followed by strata of their sources (`strata`): values that filters tell apart, and protected rows, go
their own ways.

    filter      passes the strata that match; where the catalog has another selectivity than the values imply, as
                much more or less of them. Of values that nobody knows it passes the same share of all strata.
    join        a pair needs both of its rows: with the shares φ of its sides that are left,
                pairs = selectivity · (rows of both sides, undropped) · φ_left · φ_right
                and min(φ_left, φ_right) where both sides lose the same keys (`shared_keys`, `key_match`)
    others      as many rows out per row in as the catalog says. What an aggregate gives is counted by what went
                in: half of its rows, half of what it gives.

A row that leaves a join is of the stratum of the side whose fields are used below (its first, if both are).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from streamshed.network.catalog import Catalog
from streamshed.network.expressions.analysis import invert, passing
from streamshed.network.expressions.expression import Expression, Field, parse
from streamshed.network.graph import Aggregate, Box, CountWindow, Filter, Join, Map, Output, Udf, arc, ends
from streamshed.network.value_flow.key_match import KeyMatch, Side
from streamshed.network.value_flow.shared_keys import key_places, sharing_joins
from streamshed.network.value_flow.spared import protecting, without_protection
from streamshed.network.value_flow.strata import Mask, Vector, strata
from streamshed.records import Drop

Keeps = Mapping[str, Vector]
"""By arc, the share of each stratum that passes; arcs that are not named let everything pass."""


@dataclass(frozen=True)
class Bounds:
    """The values that a field has in each stratum; not a number where that is not known."""

    low: Vector
    high: Vector
    middle: Vector

    def merged(self, other: Bounds) -> Bounds:
        """Of rows that come two ways; a stratum that has two different values has none."""
        parts = []
        for mine, theirs in ((self.low, other.low), (self.high, other.high), (self.middle, other.middle)):
            either = np.where(np.isnan(mine), theirs, mine)
            parts.append(np.where(np.isnan(mine) | np.isnan(theirs) | (mine == theirs), either, np.nan))
        return Bounds(*parts)


@dataclass(frozen=True)
class Pairing:
    """A join, as the model has it."""

    carried: str
    """The arc of the side whose strata its rows have."""
    other: str
    times: float
    """Pairs for each row of the carried side when the other is whole."""
    selectivity: float
    whole: Mapping[str, float]
    """Rows of both sides when nothing is dropped, by arc."""


@dataclass(frozen=True)
class FlowState:
    """What flows under some drops."""

    keeps: Keeps
    reaching: dict[str, Vector]
    """Rows per second that come to each arc, by stratum."""
    passing: dict[str, Vector]
    """And that pass it."""
    load: float
    kept: Mapping[str, Vector] = field(default_factory=dict)
    """By arc, the share of its keys that each stratum has left; only if a join's sides lose the same."""
    drawn: Mapping[str, float] = field(default_factory=dict)
    """By arc on which keys are dropped, the share that it keeps, of the largest share left above it."""
    pairs: Mapping[str, Vector] = field(default_factory=dict)
    """What leaves such joins."""

    def rows(self, on: str) -> float:
        return float(self.passing[on].sum())


@dataclass(frozen=True)
class Island:
    """A part of a network that has no arcs to the rest."""

    size: int
    """Strata of its sources."""
    free: Mask
    """Strata that may be dropped: not protected."""
    spans: Mapping[str, slice]
    """For each of its sources, where its strata stand."""
    heads: tuple[Box | Output, ...]

    @cached_property
    def weights(self) -> Vector:
        """1 for strata that may be dropped, 0 for others: a product is quicker than a selection."""
        return self.free.astype(np.float64)


class FlowModel:
    """A catalog with the strata of its sources.

    >>> from streamshed.network.builder import Builder
    >>> network = (
    ...     Builder("n").source("a", "k INT", rate=100).source("b", "k INT, y INT", rate=100)
    ...     .join("pair", ["a", "b"], ["k"], 1.0, cost=0.001, selectivity=0.5).output("o", "pair").build()
    ... )
    >>> model = FlowModel(Catalog.of(network))
    >>> half = model.state(model.keeps([Drop("a->pair", 0.5), Drop("b->pair", 0.5)]))
    >>> round(half.load, 3), model.delivery(half)
    (0.1, {'o': 25.0})
    """

    def __init__(self, catalog: Catalog, step: float | None = None, chunk: float | None = None) -> None:
        """`step` and `chunk`: how finely values are cut, for drops by value (`strata`)."""
        self.catalog = catalog
        self.network = catalog.network
        self.strata = {part.source: part for part in strata(catalog, step, chunk)}
        self._islands = self._parted()
        self.fields: dict[str, dict[str, Bounds]] = {}
        """For each node, the fields of the rows that leave it whose values are known."""
        self._sides = {box.name: self._carried(box) for box in self.network.order if isinstance(box, Join)}
        self._matches: dict[str, tuple[Vector, Mask]] = {}
        self._sharing = sharing_joins(self.network)
        self.keyed = frozenset(key_places(self.network))
        """The arcs on which whole keys are dropped."""
        for source in self.network.sources:
            self.fields[source.name] = self._source_fields(source.name)
        for box in self.network.order:
            self.fields[box.name] = self._box_fields(box)
            if isinstance(box, Filter):
                self._matches[box.name] = self._match(box.where, box.inputs[0])
        self._settle()

    def island(self, name: str) -> Island:
        """The part of the network that a node or an arc is in."""
        return self._islands[name]

    def _parted(self) -> dict[str, Island]:
        """The network in parts between which there are no arcs; a vector is as long as its part has strata."""
        network, root = self.network, self.network.part_of
        heads: dict[str, list[Box | Output]] = {}
        for head in network.heads:
            heads.setdefault(root[head.name], []).append(head)
        sources: dict[str, list[str]] = {}
        for source in network.sources:
            sources.setdefault(root[source.name], []).append(source.name)
        made = {}
        for name, mine in sources.items():
            edges = np.cumsum([0, *(len(self.strata[source].share) for source in mine)]).tolist()
            spans = {source: slice(*span) for source, *span in zip(mine, edges, edges[1:], strict=False)}
            free = np.concatenate([~self.strata[source].protected for source in mine])
            made[name] = Island(edges[-1], free, spans, tuple(heads.get(name, ())))
        of_arcs = {on: made[root[ends(on)[0]]] for on in network.arcs}
        return {name: made[root[name]] for name in network.nodes} | of_arcs

    def with_rates(self, rates: Mapping[str, float] | None) -> FlowModel:
        """The same network at other rates."""
        if not rates:
            return self
        made = copy.copy(self)
        made.catalog = self.catalog.measured(rates=rates)
        made._settle()
        return made

    # ── what values are where ────────────────────────────────────────────────────────────────────

    def _source_fields(self, source: str) -> dict[str, Bounds]:
        part, island = self.strata[source], self.island(source)
        mine = island.spans[source]
        found = {}
        for by in part.low:
            low, high, middle = (np.full(island.size, np.nan) for _ in range(3))
            low[mine], high[mine], middle[mine] = part.low[by], part.high[by], (part.low[by] + part.high[by]) / 2
            found[by] = Bounds(low, high, middle)
        return found

    def _carried(self, join: Join) -> int:
        """The side of a join whose fields are used below."""
        used = _used_below(self.network.consumers, self.network.nodes, join.name)
        left = {column.name for column in self.network.schemas[join.inputs[0]]}
        return 1 if used and not used & left else 0

    def _box_fields(self, box: Box) -> dict[str, Bounds]:
        if isinstance(box, Join):
            return self.fields[box.inputs[self._sides[box.name]]]
        above = dict(self.fields[box.inputs[0]])
        for name in box.inputs[1:]:
            for by, bounds in self.fields[name].items():
                above[by] = above[by].merged(bounds) if by in above else bounds
        if isinstance(box, Aggregate | CountWindow):
            return {by: bounds for by, bounds in above.items() if by in box.by}
        if isinstance(box, Map):
            made = {name: self._image(box, name, each, above) for name, each in box.select.items()}
            return {name: bounds for name, bounds in made.items() if bounds is not None}
        return above

    def _image(self, box: Map, name: str, expression: Expression, above: Mapping[str, Bounds]) -> Bounds | None:
        if isinstance(expression, Field):
            return above.get(expression.name)
        needs = expression.fields()
        if not needs or not needs <= above.keys():
            return None

        def of(which: str) -> Vector:
            with np.errstate(all="ignore"):
                values = expression.evaluate({by: getattr(above[by], which) for by in needs})
            return np.broadcast_to(np.asarray(values, dtype=np.float64), (size,))

        size = self.island(box.name).size
        inverse = box.inverse.get(name) or invert(expression, name)
        if inverse is None:
            nowhere = np.full(size, np.nan)
            return Bounds(nowhere, nowhere, of("middle"))
        low, high = of("low"), of("high")
        return Bounds(np.fmin(low, high), np.fmax(low, high), of("middle"))

    def _match(self, where: Expression, tail: str) -> tuple[Vector, Mask]:
        """Which strata of what leaves a node match, as far as values tell; and which strata it is known of."""
        known, size = self.fields[tail], self.island(tail).size
        needs = where.fields()
        limits = {by: ranges for by, ranges in passing(where).ranges.items() if by in known}
        if needs and needs <= known.keys():
            told = np.logical_and.reduce([~np.isnan(known[by].middle) for by in needs])
            with np.errstate(all="ignore"):
                answer = where.evaluate({by: known[by].middle for by in needs})
            matches = np.broadcast_to(np.asarray(answer, dtype=bool), (size,)).astype(np.float64)
        elif limits:
            told = np.logical_and.reduce([~np.isnan(known[by].middle) for by in limits])
            matches = np.ones(size)
            for by, ranges in limits.items():
                matches *= _overlap(known[by], ranges)
        else:
            return np.ones(size), np.zeros(size, dtype=bool)
        return matches, told

    # ── what flows when nothing is dropped ───────────────────────────────────────────────────────

    def _settle(self) -> None:
        """How much of each stratum every box passes, so that in all it is as much as the catalog says."""
        catalog, network = self.catalog, self.network
        self.through: dict[str, Vector] = {}
        self.pairs: dict[str, Pairing] = {}
        leaving = {source.name: self._of_source(source.name) for source in network.sources}
        reaching: dict[str, Vector] = {}
        work = 0.0
        for box in network.order:
            selectivity = catalog.selectivities[box.name]
            for name in box.inputs:
                reaching[arc(name, box.name)] = leaving[name]
                work += catalog.costs[box.name] * float(leaving[name].sum())
            if isinstance(box, Join):
                leaving[box.name] = self._pair(box, reaching, selectivity)
                continue
            size = self.island(box.name).size
            entering = sum((leaving[name] for name in box.inputs), np.zeros(size))
            passes = np.full(size, selectivity)
            if isinstance(box, Filter):
                matches, told = self._matches[box.name]
                mass, all_told = float(entering @ (matches * told)), float(entering @ told)
                if mass > 0:
                    passes = np.where(told, matches * (selectivity * all_told / mass), selectivity)
                elif all_told <= 0:
                    passes = np.where(told & (matches <= 0), 0.0, selectivity)
            self.through[box.name] = passes
            leaving[box.name] = entering * passes
        for output in network.outputs:
            reaching[arc(output.input, output.name)] = leaving[output.input]
        self.whole = FlowState({}, reaching, reaching, work)
        """When nothing is dropped."""
        self.full = {name: float(rows.sum()) for name, rows in reaching.items()}
        self.source_coefficients = self._coefficients(self.whole)

    def _of_source(self, source: str) -> Vector:
        island = self.island(source)
        found = np.zeros(island.size)
        found[island.spans[source]] = self.catalog.rates[source] * self.strata[source].share
        return found

    def _pair(self, box: Join, reaching: Mapping[str, Vector], selectivity: float) -> Vector:
        sides = [arc(name, box.name) for name in box.inputs]
        side = self._sides[box.name]
        whole = {name: float(reaching[name].sum()) for name in sides}
        carried = whole[sides[side]]
        both = min(whole.values()) > 0
        times = selectivity * sum(whole.values()) / carried if both else 0.0
        self.pairs[box.name] = Pairing(sides[side], sides[1 - side], times, selectivity, whole)
        return reaching[sides[side]] * times

    # ── under drops ──────────────────────────────────────────────────────────────────────────────

    def keeps(self, drops: Iterable[Drop]) -> dict[str, Vector]:
        """What drops let pass, by stratum. Several at one arc are carried out one after the other."""
        found: dict[str, Vector] = {}
        for drop in drops:
            tail = drop.at.partition("->")[0]
            island = self.island(tail)
            taken = self.taken(tail, drop.where) * island.free
            passes = 1.0 - (1.0 - drop.keep) * taken
            if drop.at in self.keyed:
                # Of a stratum that is taken in part, some rows go and not some keys.
                whole = (taken <= 0) | (taken >= 1)
                rows = _by_row(drop.at)
                found[rows] = found.get(rows, np.ones(island.size)) * np.where(whole, 1.0, passes)
                passes = np.where(whole, passes, 1.0)
            found[drop.at] = found.get(drop.at, np.ones(island.size)) * passes
        return found

    def taken(self, tail: str, where: str | None) -> Vector:
        """The share of each stratum of the rows that leave a node that a predicate matches."""
        size = self.island(tail).size
        if where is None:
            return np.ones(size)
        predicate = without_protection(parse(where), protecting(self.network))
        if predicate is None:
            return np.ones(size)
        found, known = passing(predicate), self.fields[tail]
        if found.exact and len(found.ranges) == 1 and found.ranges.keys() <= known.keys():
            ((by, ranges),) = found.ranges.items()
            return _overlap(known[by], ranges)
        matches, told = self._match(predicate, tail)
        return np.where(told, matches, 1.0)

    def state(self, keeps: Keeps, at_most: Mapping[str, float] | None = None) -> FlowState:
        """What flows when of the rows that reach an arc these shares pass.

        at_most: of the rows that may be dropped, so many per second pass an arc at most; the others are dropped
            at random
        """
        keeps, at_most = dict(keeps), at_most or {}
        catalog, network = self.catalog, self.network
        leaving = {
            source.name: self.whole.reaching[on]
            for source in network.sources
            for on in network.arcs_out_of(source.name)
        }
        reaching: dict[str, Vector] = {}
        passes: dict[str, Vector] = {}
        kept: dict[str, Vector] = {}
        left: dict[str, Vector] = {}
        largest: dict[str, float] = {}
        drawn: dict[str, float] = {}
        pairs: dict[str, Vector] = {}
        work = 0.0
        for head in network.heads:
            total: Vector | None = None
            for on in network.arcs_into(head.name):
                tail = on.partition("->")[0]
                reaching[on] = passes[on] = leaving[tail]
                if tail in left:
                    kept[on] = left[tail]
                if on in self.keyed and (on in keeps or on in at_most):
                    free, top = self.island(on).free, largest.get(tail, 1.0)
                    before = kept.get(on, np.ones(len(free)))
                    share = keeps.get(on, np.ones(len(free)))
                    if on in at_most:
                        drawn[on] = _filled_to(at_most[on], reaching[on][free], before[free], share[free], top)
                        share = np.where(free, share * drawn[on], share)
                    kept[on] = np.where(free, np.minimum(before, share * top), before)
                    keeps[on] = np.divide(kept[on], before, out=np.ones(len(free)), where=before > 0)
                    keeps[on] = keeps[on] * keeps.pop(_by_row(on), 1.0)
                    largest[on] = top * float(share[free].max(initial=0.0))
                elif on in at_most:
                    keeps[on] = self._thinned(on, reaching[on], keeps.get(on), at_most[on])
                if on in keeps:
                    passes[on] = reaching[on] * keeps[on]
                    work += catalog.drop_cost * float(reaching[on].sum())
                total = passes[on] if total is None else total + passes[on]
            if isinstance(head, Output) or total is None:
                continue
            work += catalog.costs[head.name] * float(total.sum())
            if head.name in self._sharing:
                sides = self._sides_of(head.name, passes, kept, by_key=False)
                leaving[head.name] = pairs[head.name] = passes[self.pairs[head.name].carried] * self._times(
                    self.pairs[head.name], sides.partners()
                )
                left[head.name] = sides.left()
            elif head.name in self.pairs:
                pair = self.pairs[head.name]
                leaving[head.name] = passes[pair.carried] * (pair.times * self._left(pair, pair.other, passes))
            else:
                leaving[head.name] = total * self.through[head.name]
                if kept:
                    left[head.name] = self._merged(head.name, kept)
            if largest:
                arcs = network.arcs_into(head.name)
                largest[head.name] = max(largest.get(on, largest.get(ends(on)[0], 1.0)) for on in arcs)
        return FlowState(keeps, reaching, passes, work, kept, drawn, pairs)

    def _merged(self, box: str, kept: Mapping[str, Vector]) -> Vector:
        """The keys that the rows of a box have left, whichever way they came."""
        arcs = self.network.arcs_into(box)
        nothing_lost = np.ones(self.island(box).size)
        if len(arcs) == 1:
            return kept.get(arcs[0], nothing_lost)
        total, some = np.zeros(len(nothing_lost)), np.zeros(len(nothing_lost))
        for on in arcs:
            total = total + self.whole.reaching[on]
            some = some + self.whole.reaching[on] * kept.get(on, nothing_lost)
        return np.divide(some, total, out=nothing_lost, where=total > 0)

    def _sides_of(
        self,
        join: str,
        passes: Mapping[str, Vector],
        kept: Mapping[str, Vector],
        *,
        by_key: bool,
        turned: bool = False,
    ) -> KeyMatch:
        """The sides of a join that lose the same keys: the carried one first, or the other if turned."""
        pair = self.pairs[join]
        first, second = (pair.other, pair.carried) if turned else (pair.carried, pair.other)
        nothing_lost = np.ones(len(passes[first]))
        mine, theirs = (Side(passes[on], kept.get(on, nothing_lost)) for on in (first, second))
        return KeyMatch(mine, theirs, by_key)

    @staticmethod
    def _times(pair: Pairing, partners: Vector) -> Vector:
        """Pairs for rows that can meet so many of the other side."""
        whole = pair.whole[pair.other]
        return partners * (pair.times / whole if whole > 0 else 0.0)

    def _thinned(self, on: str, rows: Vector, keep: Vector | None, at_most: float) -> Vector:
        free = self.island(on).free
        total = float((rows if keep is None else rows * keep) @ self.island(on).weights)
        thinned = np.where(free, min(1.0, at_most / total) if total > 0 else 1.0, 1.0)
        return thinned if keep is None else keep * thinned

    @staticmethod
    def _left(pair: Pairing, side: str, passes: Mapping[str, Vector]) -> float:
        """The share of one side of a join that is left."""
        return float(passes[side].sum()) / pair.whole[side] if pair.whole[side] > 0 else 0.0

    def paired(self, join: str, more: Mapping[str, Vector], state: FlowState, *, by_key: bool = False) -> Vector:
        """The pairs that some more rows on either side of a join would make, with what flows now.

        by_key: whether they come and go with their keys
        """
        pair = self.pairs[join]
        found = np.zeros(self.island(join).size)
        if join in self._sharing:
            if pair.carried in more:
                match = self._sides_of(join, state.passing, state.kept, by_key=by_key)
                found = more[pair.carried] * self._times(pair, match.partners())
            if pair.other in more:
                match = self._sides_of(join, state.passing, state.kept, by_key=by_key, turned=True)
                found = found + self._times(pair, match.met(more[pair.other]))
            return found
        if pair.carried in more:
            found = more[pair.carried] * (pair.times * self._left(pair, pair.other, state.passing))
        if pair.other in more and pair.whole[pair.other] > 0:
            others = float(more[pair.other].sum()) / pair.whole[pair.other]
            found = found + state.passing[pair.carried] * (pair.times * others)
        return found

    def delivery(self, state: FlowState) -> dict[str, float]:
        """Percent of its rows that each output gets; 100 for one that gets none anyway."""
        found = {}
        for output in self.network.outputs:
            (on,) = self.network.arcs_into(output.name)
            percent = 100.0 * state.rows(on) / self.full[on] if self.full[on] > 0 else 100.0
            found[output.name] = min(100.0, max(0.0, percent))
        return found

    def savings(self, state: FlowState) -> dict[str, float]:
        """Core-seconds saved for each row of a source."""
        left = self._coefficients(state)
        return {name: whole - left[name] for name, whole in self.source_coefficients.items()}

    def _coefficients(self, state: FlowState) -> dict[str, float]:
        """Work for each row that arrives at a source."""
        price = self.prices(state)
        found = {}
        for source in self.network.sources:
            mine = self.island(source.name).spans[source.name]
            each = sum((price[on][mine] for on in self.network.arcs_out_of(source.name)), np.zeros(1))
            found[source.name] = float((self.strata[source.name].share * each).sum())
        return found

    def prices(self, state: FlowState) -> dict[str, Vector]:
        """Work for each row that reaches an arc. A row from either side pays its part of a join's pairs."""
        catalog, network = self.catalog, self.network
        price: dict[str, Vector] = {}
        for head in reversed(network.heads):
            below = np.zeros(self.island(head.name).size)
            if not isinstance(head, Output):
                for on in network.arcs_out_of(head.name):
                    below = below + price[on]
            for on in network.arcs_into(head.name):
                each = self._price(head, on, below, state)
                if on in state.keeps:
                    each = each * state.keeps[on] + catalog.drop_cost
                price[on] = each
        return price

    def _price(self, head: Box | Output, on: str, below: Vector, state: FlowState) -> Vector:
        if isinstance(head, Output):
            return below
        cost = self.catalog.costs[head.name]
        if head.name not in self.pairs:
            priced: Vector = cost + self.through[head.name] * below
            return priced
        pair = self.pairs[head.name]
        if head.name in state.pairs:
            mine = float(state.passing[on].sum())
            share = pair.whole[on] / sum(pair.whole.values()) if mine > 0 else 0.0
            worth = float(state.pairs[head.name] @ below)
            return np.full(len(below), cost + (worth * share / mine if mine > 0 else 0.0))
        carried = state.passing[pair.carried]
        mean = float(carried @ below) / float(carried.sum()) if carried.sum() > 0 else 0.0
        partner = pair.other if on == pair.carried else pair.carried
        return np.full(len(below), cost + pair.selectivity * self._left(pair, partner, state.passing) * mean)

    # ── what one row more would cost ─────────────────────────────────────────────────────────────

    def marginals(
        self,
        state: FlowState,
        worth: Mapping[str, Vector | float],
        held: Collection[str] = (),
        *,
        by_row: bool = False,
    ) -> tuple[dict[str, Vector], dict[str, Vector]]:
        """For a row of each stratum that passes an arc: what outputs would lose without it, and the work saved.

        worth: what a row is worth to an output
        held: arcs whose flow does not fall when less reaches them, as they would only drop less
        by_row: of rows that go by their values, not by their keys
        """
        loss, gain = self._marginals(state, worth, held, by_key=False)
        if self.keyed and not by_row:
            keyed = self._marginals(state, worth, held, by_key=True)
            for on in self.keyed:
                loss[on], gain[on] = keyed[0][on], keyed[1][on]
        return loss, gain

    def _marginals(
        self, state: FlowState, worth: Mapping[str, Vector | float], held: Collection[str], *, by_key: bool
    ) -> tuple[dict[str, Vector], dict[str, Vector]]:
        """For rows that are dropped by themselves, or with their keys."""
        catalog, network = self.catalog, self.network
        loss: dict[str, Vector] = {}
        gain: dict[str, Vector] = {}
        for head in reversed(network.heads):
            size = self.island(head.name).size
            if isinstance(head, Output):
                (on,) = network.arcs_into(head.name)
                loss[on] = np.broadcast_to(np.asarray(worth.get(head.name, 0.0), dtype=np.float64), (size,))
                gain[on] = np.zeros(size)
                continue
            lost, saved = np.zeros(size), np.zeros(size)
            for on in network.arcs_out_of(head.name):
                if on in held:
                    continue
                keep = state.keeps.get(on)
                lost = lost + (loss[on] if keep is None else keep * loss[on])
                saved = saved + (gain[on] if keep is None else keep * gain[on] + catalog.drop_cost)
            cost = catalog.costs[head.name]
            if head.name not in self.pairs:
                through = self.through[head.name]
                for on in network.arcs_into(head.name):
                    loss[on], gain[on] = through * lost, cost + through * saved
                continue
            pair = self.pairs[head.name]
            if head.name in self._sharing:
                match = self._sides_of(head.name, state.passing, state.kept, by_key=by_key)
                own = self._times(pair, match.partners())
                loss[pair.carried], gain[pair.carried] = own * lost, cost + own * saved
                match = self._sides_of(head.name, state.passing, state.kept, by_key=by_key, turned=True)
                loss[pair.other] = self._times(pair, match.partners(lost))
                gain[pair.other] = cost + self._times(pair, match.partners(saved))
                continue
            carried = state.passing[pair.carried]
            each = pair.times * self._left(pair, pair.other, state.passing)
            loss[pair.carried], gain[pair.carried] = each * lost, cost + each * saved
            per_other = pair.times / pair.whole[pair.other] if pair.whole[pair.other] > 0 else 0.0
            loss[pair.other] = np.full(size, per_other * float(carried @ lost))
            gain[pair.other] = np.full(size, cost + per_other * float(carried @ saved))
        return loss, gain

    @property
    def least(self) -> float:
        """The load that no drop takes away: protected rows alone."""
        # What the drops themselves cost is not counted: it is theirs to weigh.
        free = copy.copy(self)
        free.catalog = replace(self.catalog, drop_cost=0.0)
        return free.state(self.protected_only()).load

    def free_rows(self, rows: Mapping[str, Vector], on: str) -> float:
        """Of rows by arc, those on one arc that may be dropped."""
        return float(rows[on] @ self.island(on).weights)

    def protected_only(self) -> dict[str, Vector]:
        """Keeps that drop all that may be dropped, at the sources."""
        return {
            on: (~self.island(on).free).astype(np.float64)
            for source in self.network.sources
            for on in self.network.arcs_out_of(source.name)
        }


def _by_row(on: str) -> str:
    """Under which name keeps have, of an arc on which keys are dropped, what is dropped row by row."""
    return f"{on} by row"


def _filled_to(at_most: float, rows: Vector, before: Vector, share: Vector, top: float) -> float:
    """The share of keys, of the largest left, with which so many rows per second pass; 1 if no drop is needed.

    rows: that come, of which `before` of the keys are left; of each stratum `share` of `top` may pass anyway
    """
    unkeyed = np.divide(rows, before, out=np.zeros(len(rows)), where=before > 0)

    def passing_with(drawn: float) -> float:
        return float(unkeyed @ np.minimum(before, share * (top * drawn)))

    whole = passing_with(1.0)
    if whole <= at_most * (1 + 1e-12) or whole <= 0:
        return 1.0
    bound = share * top
    if np.all(bound[rows > 0] <= before[rows > 0] * (1 + 1e-12)):
        return at_most / whole  # every stratum loses the same share
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if passing_with(middle) < at_most else (low, middle)
    return low


def _overlap(bounds: Bounds, ranges: Iterable[tuple[float, float]]) -> Vector:
    """The share of each stratum's values that lie in some ranges."""
    found = np.zeros(len(bounds.low))
    width = bounds.high - bounds.low
    known = ~np.isnan(width)
    with np.errstate(all="ignore"):
        for low, high in ranges:
            inside = np.minimum(bounds.high, high) - np.maximum(bounds.low, low)
            by_middle = (bounds.middle >= low) & (bounds.middle < high)
            part = np.where(known & (width > 0), np.clip(inside / width, 0.0, 1.0), by_middle)
            found += np.where(np.isnan(bounds.middle), 0.0, part)
    # Ends of ranges and of strata that differ by rounding only are the same.
    found = np.where(found < 1e-9, 0.0, np.where(found > 1 - 1e-9, 1.0, found))
    return np.minimum(found, 1.0)


def _used_below(consumers: Mapping[str, tuple[str, ...]], nodes: Mapping[str, object], name: str) -> set[str]:
    """The fields that boxes and outputs below a node tell rows apart by, as they are called at the node."""
    used: set[str] = set()
    ahead = [name]
    seen = set(ahead)
    while ahead:
        for after in consumers[ahead.pop()]:
            node = nodes[after]
            if isinstance(node, Filter):
                used |= node.where.fields()
            elif isinstance(node, Output) and node.qos.value is not None:
                used.add(node.qos.value.field)
            elif isinstance(node, Map):
                for expression in node.select.values():
                    used |= expression.fields()
                continue
            elif isinstance(node, Udf | Aggregate | Join):
                continue
            if after not in seen:
                seen.add(after)
                ahead.append(after)
    return used
