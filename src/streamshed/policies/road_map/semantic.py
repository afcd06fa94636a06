"""Policy `lsrm-semantic`: the Load Shedding Road Map with semantic drops.

LSRM 4.3.4 (Tatbul et al., Load Shedding in a Data Stream Manager, VLDB 2003). As in `lsrm-random` a table is
built once, and each row of it takes the candidate arc of least Loss/Gain a step further; but where every output
below an arc has a value graph, a drop there is a predicate. Values are followed by strata (`network.value_flow`).
At an arc c, for the values v of the field by which it drops,

    loss(v) = Σ over the outputs o below of u_o(v) · (rows of value v that reach o) / (all that o has)
    gain(v) = work for these rows from c on, under the drops further down

so the loss at an arc above a split is the cumulative one, and candidates upstream and downstream are weighed
alike. The values of least loss/gain go first; of equals, the lowest, so that the predicate stays a range. Values
that no output would miss have loss 0: rows that a later filter removes anyway, and rows that all branches drop.
Those make the first rows of the table.

An output without a value graph asked for a share of its rows, any rows. So a drop above it is at random, and takes
by value only what never reaches it: it gets an unbiased sample.

Where random drops leave more utility, as `lsrm-random` or `input-uniform` would make them, those are taken: what
this policy decides is never worse. Utility is here what outputs really have: Σ u(v) of the rows delivered over
Σ u(v) of all rows.

Where rows are parsed late (`network.parse_step`) it weighs drops at random before the parse, which save that too,
against drops by value behind it.

>>> from streamshed.network import Builder, Catalog
>>> network = (
...     Builder("n").source("s", "v INT", rate=150, values={"v": (0, 100)})
...     .filter("f", "s", "v >= 20", cost=0.004, selectivity=0.8).map("m", "f", {"v": "v"}, cost=0.01)
...     .output("o", "m", value=("v", [[0, 60, 0.1], [60, 100, 1.0]])).build()
... )
>>> decision = SemanticRoadMap(step=0.1).planner(Catalog.of(network)).decide()
>>> decision.drops[0].where, round(decision.row.utility["o"], 3)
('v < 60', 0.909)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.expressions.ranges import Ranges
from streamshed.network.graph import ends
from streamshed.network.parse_step import arcs_behind_parse, raw_arcs
from streamshed.network.qos import LossGraph
from streamshed.network.value_flow.cells import below, loss_graphs
from streamshed.network.value_flow.drop_fields import drop_fields
from streamshed.network.value_flow.flow_model import FlowModel, FlowState
from streamshed.network.value_flow.strata import Mask, Vector
from streamshed.policies.admission import InputUniform
from streamshed.policies.contract import Decision, Row, drop, overload, protection, with_rates
from streamshed.policies.parse_planner import weighing_parse
from streamshed.policies.road_map.bent import NOTHING, TableStep, at_bend, merged
from streamshed.policies.road_map.random import STEP_SIZE, build
from streamshed.policies.road_map.segments import candidates
from streamshed.policies.road_map.table import RoadMap, TablePlanner
from streamshed.records import Drop

Places = npt.NDArray[np.intp]
RANGES = 4
"""Of one predicate, at most: what a running plan has room for."""
_ALIKE = 1e-6
"""Ratios that differ by less, relatively, are equal."""


@dataclass(frozen=True)
class SemanticRoadMap:
    """`lsrm-semantic`. `step` is the share of an arc's useful rows that one row of the table drops more."""

    step: float = STEP_SIZE
    chunk: float | None = None
    """Width of the chunks in which intervals of non-constant utility are dropped; None: a tenth each."""
    name: str = "lsrm-semantic"

    def __post_init__(self) -> None:
        if not 0 < self.step <= 1:
            raise InvalidArgument("a step is a share above 0, at most 1", got=self.step)

    @weighing_parse
    def planner(self, catalog: Catalog) -> TablePlanner:
        by_random = build(catalog, self.step)
        fields, graphs = drop_fields(catalog.network), loss_graphs(catalog)
        for on in raw_arcs(catalog.network):
            fields.pop(on, None)
        behind = arcs_behind_parse(catalog.network)
        builders = []
        for part in catalog.parts():
            model = FlowModel(part, self.step, self.chunk)
            places = [_place(model, on, fields.get(on)) for on in candidates(model, behind)]
            builders.append(_Builder(model, Worth(model, graphs), places, self.step))
        if not any(place.bins is not None for builder in builders for place in builder.places):
            return TablePlanner(self.name, catalog, by_random)
        table = merged(RoadMap(catalog, graphs), (builder.steps() for builder in builders))
        return _Planner(self.name, catalog, table, by_random, [builder.worth for builder in builders])


class _Planner(TablePlanner):
    """A table by value, one at random, and the same share of every source; each time what leaves most."""

    def __init__(
        self, name: str, catalog: Catalog, table: RoadMap, by_random: RoadMap, worth: Sequence[Worth]
    ) -> None:
        super().__init__(name, catalog, table)
        self._by_random = TablePlanner(name, catalog, by_random)
        self._uniform = InputUniform(name).planner(catalog)
        self._worth = worth
        self._wins: dict[float, bool] = {}
        """With joins: by load, as a multiple of the limit, whether the same share of every source left more."""

    def decide(self, rates: Mapping[str, float] | None = None) -> Decision:
        chosen = super().decide(rates)
        catalog = with_rates(self.catalog, rates)
        if not overload(catalog):
            return chosen
        chosen = self._better(chosen, self._by_random.decide(rates))
        return self._better(chosen, self._uniform.decide(rates)) if self._uniform_may_win(catalog) else chosen

    def _uniform_may_win(self, catalog: Catalog) -> bool:
        """Whether the same share of every source is worth a look.

        With joins that share has to be sought, which is too much for every batch. So it is looked at where it
        leaves most at the rates that this planner was made for, at about this load.
        """
        if not any(part.model.pairs for part in self._worth):
            return True
        level = max(1.05, round(catalog.load / catalog.limit, 1))
        if level not in self._wins:
            rates = self.catalog.scaled(level * self.catalog.limit / self.catalog.load).rates
            cursor = self.cursor
            ours = self._better(super().decide(rates), self._by_random.decide(rates))
            self._wins[level] = self._better(ours, self._uniform.decide(rates)) is not ours
            self.cursor = cursor
        return self._wins[level]

    def _better(self, chosen: Decision, other: Decision) -> Decision:
        """The other one, if it leaves more utility by what rows are truly worth, and no more load."""
        if other.row is None:
            return chosen
        truly = replace(other.row, utility=dict(other.row.utility))
        for part in self._worth:
            truly = part.row(truly)
        fits, mine = other.remaining <= chosen.remaining + 1e-9 * chosen.limit, chosen.row
        if mine is not None and (not fits or sum(mine.utility.values()) >= sum(truly.utility.values()) - 1e-9):
            return chosen
        return replace(other, rows=(truly,), chosen=0)


class Worth:
    """What rows are worth to outputs: by value where they have a value graph, else by their loss graph."""

    def __init__(self, model: FlowModel, graphs: Mapping[str, LossGraph]) -> None:
        self.model, self.graphs = model, graphs
        self.arcs = {output.name: model.network.arcs_into(output.name)[0] for output in model.network.outputs}
        self.of_value: dict[str, Vector] = {}
        """Of one row of each stratum, to outputs that have a value graph."""
        for output in model.network.outputs:
            graph = output.qos.value
            if graph is None:
                continue
            rows = model.whole.passing[self.arcs[output.name]]
            known = model.fields[output.input].get(graph.field)
            told = rows * 0 > 0 if known is None else ~np.isnan(known.middle)
            if not rows[told].sum() > 0:
                continue  # nobody knows its values: any row is worth as much as any other
            assert known is not None
            each = np.zeros(len(rows))
            each[told] = graph.in_chunks(None).many(known.middle[told])
            each[~told] = float(rows[told] @ each[told]) / float(rows[told].sum())
            whole = float(rows @ each)
            if whole > 0:
                self.of_value[output.name] = each / whole

    def marginal(self, delivery: Mapping[str, float]) -> dict[str, Vector | float]:
        """What one row more or less is worth to each output now."""
        found: dict[str, Vector | float] = {}
        for name, on in self.arcs.items():
            if name in self.of_value:
                found[name] = self.of_value[name]
            else:
                full = self.model.full[on]
                slope = self.graphs[name].piece_below(delivery[name]).slope
                found[name] = slope * 100.0 / full if full > 0 else 0.0
        return found

    def utility(self, state: FlowState) -> dict[str, float]:
        delivery = self.model.delivery(state)
        return {
            name: min(1.0, float(state.passing[on] @ self.of_value[name]))
            if name in self.of_value
            else self.graphs[name](delivery[name])
            for name, on in self.arcs.items()
        }

    def row(self, row: Row) -> Row:
        """A row with the true utility of the outputs of this part."""
        drops = [each for each in row.drops if each.at in self.model.full]
        truly = self.utility(self.model.state(self.model.keeps(drops)))
        return replace(row, utility={**row.utility, **truly})


@dataclass
class _Place:
    """A candidate arc: the values that it can drop, and those that it drops."""

    arc: str
    by: str | None
    bins: Vector | None
    """For each stratum, which of the values that are told apart here it has; −1: none. None: at random only."""
    low: Vector
    high: Vector
    """Where the values of each bin begin and end."""
    gone: Mask
    """Bins that are dropped."""
    may_go: Mask
    """Bins that may be: none of which an output without a value graph would get rows."""
    coin: bool
    """Whether it also drops at random."""
    live: float
    """Rows per second that some output gets something of."""
    order: Vector
    """Of each bin, what its values become at an output: of equals, those that become lowest go first."""


def _place(model: FlowModel, on: str, by: str | None) -> _Place:
    network = model.network
    plain = {output.name for output in network.outputs if output.qos.value is None}
    outputs = below(network, on)[1]
    rows = model.whole.reaching[on] * model.island(on).free
    reached, _ = model.marginals(model.whole, dict.fromkeys(outputs, 1.0))
    live = float(rows[reached[on] > 0].sum())
    nothing = np.zeros(0)
    none: Mask = np.zeros(0, dtype=bool)
    bounds = None if by is None else model.fields[ends(on)[0]].get(by)
    random_only = _Place(on, None, None, nothing, nothing, none, none, True, live, nothing)
    if bounds is None:
        return random_only
    told = ~np.isnan(bounds.low) & (model.whole.reaching[on] > 0)
    if not told.any() or (rows[~told] > 0).any():
        return random_only  # rows whose values are not known can only be dropped at random
    low, index = np.unique(bounds.low[told], return_inverse=True)
    high = np.full(len(low), -np.inf)
    np.maximum.at(high, index, bounds.high[told])
    if (high[:-1] > low[1:] + 1e-9 * (high[-1] - low[0])).any():
        return random_only  # streams that are cut differently meet here
    bins = np.full(len(rows), -1.0)
    bins[told] = index
    missed, _ = model.marginals(model.whole, {name: 1.0 for name in outputs if name in plain})
    wanted = np.bincount(index, (missed[on] * rows)[told], minlength=len(low))
    may_go: Mask = wanted <= 0
    if not may_go.any():
        return random_only
    return _Place(
        on,
        by,
        bins,
        low,
        high,
        np.zeros(len(low), bool),
        may_go,
        bool(set(outputs) & plain),
        live,
        _order(model, outputs, told, index, low),
    )


def _order(model: FlowModel, outputs: list[str], told: Mask, index: Places, low: Vector) -> Vector:
    for name in outputs:
        output = next(each for each in model.network.outputs if each.name == name)
        graph = output.qos.value
        bounds = None if graph is None else model.fields[output.input].get(graph.field)
        if bounds is not None and not np.isnan(bounds.middle[told]).any():
            whole = np.bincount(index, bounds.middle[told], minlength=len(low))
            mean: Vector = whole / np.bincount(index, minlength=len(low))
            return mean
    return low


@dataclass(frozen=True)
class _Move:
    ratio: float
    saved: float
    place: int
    bins: tuple[int, ...] | None
    """What is dropped by value, in this order; None: a step at random."""

    @property
    def rank(self) -> tuple[float, float]:
        return (float(f"{self.ratio:.9g}"), -self.saved)


class _Builder:
    def __init__(self, model: FlowModel, worth: Worth, places: list[_Place], step: float) -> None:
        self.model, self.worth, self.places, self.step = model, worth, places, step
        self.full = [model.free_rows(model.whole.reaching, place.arc) for place in places]
        self.protect = protection(model.network)
        self.limits: dict[str, float] = {}
        """Rows per second that drops at random let pass, at most."""
        self.delivery = dict.fromkeys(worth.arcs, 100.0)
        self.drops: dict[tuple[str, bool], Drop] = {}

    def steps(self) -> Iterator[TableStep]:
        state = self.model.whole
        while (move := self._cheapest(state)) is not None:
            for chunk in self._chunks(move, state):
                if chunk is None:
                    place = self.places[move.place]
                    self.limits[place.arc] = self._less(move.place, state)
                else:
                    self.places[move.place].gone[list(chunk)] = True
                state = self._state()
                yield self._step(move.rank[0], state)

    def _state(self) -> FlowState:
        keeps = {place.arc: np.where(self._goes(place), 0.0, 1.0) for place in self.places if place.gone.any()}
        return self.model.state(keeps, self.limits)

    def _goes(self, place: _Place) -> Mask:
        assert place.bins is not None
        known = place.bins >= 0
        goes: Mask = np.zeros(len(known), dtype=bool)
        goes[known] = place.gone[place.bins[known].astype(int)]
        return goes & self.model.island(place.arc).free

    # ── the choice ───────────────────────────────────────────────────────────────────────────────

    def _cheapest(self, state: FlowState) -> _Move | None:
        worth = self.worth.marginal(self.delivery)
        held = {on for on in self.limits if self._coin(state, on) < 1.0}
        loss, gain = self.model.marginals(state, worth, held)
        best: _Move | None = None
        for index, place in enumerate(self.places):
            rows = state.passing[place.arc] * self.model.island(place.arc).free
            if rows.sum() <= NOTHING * self.full[index]:
                continue
            lost, saved = rows * np.maximum(loss[place.arc], 0.0), rows * gain[place.arc]
            moves = []
            if place.bins is not None:
                moves.append(self._by_value(index, lost, saved))
            if place.coin and saved.sum() > 0:
                moves.append(_Move(float(lost.sum() / saved.sum()), float(saved.sum()), index, None))
            for move in moves:
                if move is not None and (best is None or move.rank < best.rank):
                    best = move
        return best

    def _by_value(self, index: int, lost: Vector, saved: Vector) -> _Move | None:
        """The values of least loss/gain at an arc, as long as they are few enough ranges."""
        place = self.places[index]
        assert place.bins is not None
        known = place.bins >= 0
        at = place.bins[known].astype(int)
        losses = np.bincount(at, lost[known], minlength=len(place.low))
        gains = np.bincount(at, saved[known], minlength=len(place.low))
        total = float(gains.sum())
        possible = place.may_go & ~place.gone & (gains > 1e-12 * total)
        if not possible.any():
            return None
        ratios = np.full(len(place.low), np.inf)
        ratios[possible] = losses[possible] / gains[possible]
        least = float(ratios.min())
        alike = np.flatnonzero(possible & (ratios <= least * (1 + _ALIKE) + 1e-15))
        alike = alike[np.argsort(place.order[alike], kind="stable")]
        bins = self._in_few_ranges(place, alike, gains <= 0)
        if not bins:
            # They would make too many ranges: what lies beside what is gone already, dearer as it is.
            order = np.argsort(ratios, kind="stable")[: int(possible.sum())]
            for one in order:
                bins = self._in_few_ranges(place, np.array([one]), gains <= 0)
                if bins:
                    break
        if not bins:
            return None
        chosen = list(bins)
        return _Move(float(losses[chosen].sum() / gains[chosen].sum()), float(gains[chosen].sum()), index, bins)

    def _in_few_ranges(self, place: _Place, bins: Places, empty: Mask) -> tuple[int, ...]:
        """Of some bins, those that can go, one after the other, without there being too many ranges."""
        gone = place.gone.copy()
        gone[bins] = True
        if _count(gone, empty) <= RANGES:
            return tuple(bins.tolist())
        gone = place.gone.copy()
        taken: list[int] = []
        for one in bins.tolist():
            gone[one] = True
            if _count(gone, empty) <= RANGES:
                taken.append(one)
            else:
                gone[one] = False
        return tuple(taken)

    def _chunks(self, move: _Move, state: FlowState) -> list[tuple[int, ...] | None]:
        """A move in steps; what costs nothing goes at once."""
        if move.bins is None:
            return [None]
        place = self.places[move.place]
        if move.ratio <= 0:
            return [move.bins]
        assert place.bins is not None
        rows = state.passing[place.arc] * self.model.island(place.arc).free
        known = place.bins >= 0
        count = np.bincount(place.bins[known].astype(int), rows[known], minlength=len(place.low))
        chunks: list[tuple[int, ...] | None] = []
        now: list[int] = []
        for one in move.bins:
            now.append(one)
            if count[now].sum() >= self.step * place.live * (1 - 1e-6):
                chunks.append(tuple(now))
                now = []
        if now:
            chunks.append(tuple(now))
        return chunks

    def _less(self, index: int, state: FlowState) -> float:
        """One step less at random, or as far as the next bend of a loss graph."""
        on = self.places[index].arc
        before = self.model.free_rows(state.passing, on)
        rows = min(before, self.step * self.full[index])
        if before - rows <= NOTHING * self.full[index]:
            rows = before
        graphs, kept = self.worth.graphs, dict(self.limits)
        for _ in range(4):
            self.limits[on] = before - rows
            delivery = self.model.delivery(self._state())
            part = 1.0
            for name, percent in self.delivery.items():
                end = graphs[name].piece_below(percent).low
                plain = name not in self.worth.of_value
                if plain and delivery[name] < end - 1e-6 and percent > end + 1e-6:
                    part = min(part, (percent - end) / (percent - delivery[name]))
            if part > 1 - 1e-6:
                break
            rows *= part
        self.limits = kept
        return before - rows

    # ── what a row of the table says ─────────────────────────────────────────────────────────────

    def _coin(self, state: FlowState, on: str) -> float:
        """Share of the rows not gone by value that an arc lets pass."""
        place = next(place for place in self.places if place.arc == on)
        reaching = state.reaching[on] * self.model.island(on).free
        if place.gone.any():
            reaching = reaching * ~self._goes(place)
        total = float(reaching.sum())
        whole = self.model.free_rows(self.model.whole.reaching, on)
        if total <= NOTHING * whole:
            return 1.0
        keep = self.model.free_rows(state.passing, on) / total
        return 1.0 if keep > 1 - NOTHING else keep

    def _made(self, state: FlowState) -> dict[tuple[str, bool], Drop]:
        made: dict[tuple[str, bool], Drop] = {}
        for place in self.places:
            on = place.arc
            if place.gone.any() and place.by is not None and place.bins is not None:
                rows = state.reaching[on] * self.model.island(on).free
                known = place.bins >= 0
                at = place.bins[known].astype(int)
                count = np.bincount(at, rows[known], minlength=len(place.low))
                if count[place.gone].sum() > 0:
                    ranges = _ranges(place, place.gone, count <= 0)
                    column = self.model.network.column(ends(on)[0], place.by)
                    where = None
                    if ranges != Ranges.everything():
                        where = ranges.render(place.by, integers=column.whole)
                    made[on, False] = drop(on, 0.0, self.protect[on], where)
            if on in self.limits and (keep := self._coin(state, on)) < 1.0:
                made[on, True] = drop(on, keep, self.protect[on])
        return made

    def _step(self, ratio: float, state: FlowState) -> TableStep:
        made = self._made(state)
        changes: dict[tuple[str, bool], Drop | None] = {key: None for key in self.drops if key not in made}
        changes |= {key: each for key, each in made.items() if self.drops.get(key) != each}
        self.drops = made
        delivery, utility = self.model.delivery(state), self.worth.utility(state)
        # A step that ends at a bend, but for rounding, must not be followed by one of the piece before it.
        self.delivery = {name: at_bend(self.worth.graphs[name], percent) for name, percent in delivery.items()}
        return TableStep(
            ratio,
            {f"{on}{' at random' if coin else ''}": each for (on, coin), each in changes.items()},
            delivery,
            self.model.savings(state),
            utility,
        )


def _filled(gone: Mask, empty: Mask) -> Mask:
    """What is dropped, where values of which there are no rows go with their lower neighbours, or the upper ones
    if they are the lowest."""
    known = np.flatnonzero(gone | ~empty)
    if not len(known):
        return gone
    before = np.searchsorted(known, np.arange(len(gone)), side="right") - 1
    filled: Mask = gone[known[np.maximum(before, 0)]]
    return filled


def _count(gone: Mask, empty: Mask) -> int:
    """How many ranges make up what is dropped."""
    filled = _filled(gone, empty)
    return int(filled[0]) + int((filled[1:] & ~filled[:-1]).sum())


def _ranges(place: _Place, gone: Mask, empty: Mask) -> Ranges:
    """The values that are dropped."""
    if not gone.any():
        return Ranges.nothing()
    filled = _filled(gone, empty)
    # Beyond the outermost values the set is open: a value never seen before goes with its neighbours.
    lows = [-np.inf, *place.low[1:].tolist(), np.inf]
    steps = np.flatnonzero(np.diff(filled, prepend=False, append=False)).tolist()
    return Ranges(tuple((lows[begin], lows[end]) for begin, end in zip(steps[::2], steps[1::2], strict=True)))
