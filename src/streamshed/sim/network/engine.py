"""The simulation itself: interval by interval, under whatever drops are in force.

Within a step the kernel moves rows exactly, event by event. Between steps the pool is laid out anew, and
the boxes with state give their results: what a join or an aggregate finds in a step enters the network at
its end. Networks without such boxes have one step an interval; others have ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamshed.errors import InvalidArgument
from streamshed.network.expressions.expression import parse
from streamshed.network.graph import Network, inputs
from streamshed.network.parse_step import lifted, lowered_counts, lowered_queues, with_parse_boxes
from streamshed.network.texts import texts
from streamshed.records import Drop
from streamshed.sim.network import kernel
from streamshed.sim.network.aware import BoxLatency, aware_boxes, aware_of, latencies
from streamshed.sim.network.kernel import Floats, Ints, Places
from streamshed.sim.network.numbered import NumberedNetwork
from streamshed.sim.network.rows import EMPTY, Array, Pool, Rows, Test, joined
from streamshed.sim.network.state import StatefulBox, state_of
from streamshed.sim.network.values import Values
from streamshed.sim.scenario import Scenario

_STEPS_WITH_STATE = 10
_QUEUE = 1 << 4
"""Rows that a queue first has room for: a power of two."""
_DELIVERIES = 1 << 14
_SALT_STRIDE = 64


@dataclass(frozen=True, slots=True)
class Balance:
    """Where all rows are. A row that goes to several places counts once for each.

    arrived + copied + produced = delivered + filtered + shed + absorbed + queued
    """

    arrived: int
    copied: int
    """More rows out of split points than into them."""
    produced: int
    """Results of boxes with state."""
    delivered: int
    filtered: int
    shed: int
    absorbed: int
    """Rows that went into boxes with state."""
    queued: int

    @property
    def missing(self) -> int:
        """Rows unaccounted for: 0."""
        came = self.arrived + self.copied + self.produced
        return came - self.delivered - self.filtered - self.shed - self.absorbed - self.queued


@dataclass(frozen=True, slots=True)
class Observation:
    """What the monitor sees at the end of an interval."""

    at: float
    seconds: float
    arrived: Mapping[str, int]
    """Rows of each source in the interval."""
    queued: Mapping[str, int]
    """Rows waiting now, by the arc they came along."""
    latency: Mapping[str, float]
    """Mean seconds of the rows delivered in the interval; outputs that got none are left out."""
    busy: float
    """Share of the interval that the node worked."""
    balance: Balance

    @property
    def rates(self) -> dict[str, float]:
        """Rows per second of each source."""
        return {name: count / self.seconds for name, count in self.arrived.items()}


class Simulation:
    """A network in virtual time.

    >>> from streamshed.network.builder import Builder
    >>> network = (
    ...     Builder("one", capacity=1.0).source("s", "x DOUBLE", rate=1000)
    ...     .filter("half", "s", "x > 50", cost=1e-4, selectivity=0.5).output("o", "half").build()
    ... )
    >>> simulation = Simulation(Scenario.of(network, seed=7))
    >>> simulation.advance().balance.missing
    0
    """

    def __init__(self, scenario: Scenario, *, unlimited: bool = False) -> None:
        """`unlimited`: on a node that takes no time for anything, to learn what nothing lost would be."""
        self.scenario = scenario
        # Rows are parsed in a box of its own; from outside, drops and counts are on the network's own arcs.
        inner = with_parse_boxes(scenario.catalog)
        network = self._network = inner.network
        self.layout = NumberedNetwork.of(network)
        speed = scenario.catalog.capacity
        costs = {name: 0.0 if unlimited else cost / speed for name, cost in inner.costs.items()}
        self._drop_cost = 0.0 if unlimited else scenario.catalog.drop_cost / speed
        # Coins have a seed of their own; arrivals and values one for each source, whatever the others do.
        coins, *seeds = np.random.SeedSequence(scenario.seed).spawn(1 + len(network.sources))
        self._wiring = self.layout.wiring(
            costs,
            slice=scenario.slice,
            exponential=scenario.exponential,
            seed=int(coins.generate_state(1, np.uint64)[0]),
        )
        self._arrivals = {}
        self._values: dict[str, Values | _Recorded] = {}
        asked = texts(network)
        for source, seed in zip(network.sources, seeds, strict=True):
            gaps, values = seed.spawn(2)
            self._arrivals[source.name] = scenario.arrivals[source.name].start(np.random.default_rng(gaps))
            recorded = scenario.recorded.get(source.name)
            self._values[source.name] = (
                Values(source, values, asked[source.name]) if recorded is None else _Recorded(recorded)
            )
        self._boxes: dict[str, StatefulBox] = {box.name: state_of(box) for box in network.order if box.makes_rows}
        self._above = {name: _upstream(network, name) & set(self._boxes) for name in self._boxes}
        self._pending: dict[str, Rows] = {}
        """Results that enter the network at the next step."""
        self._served: dict[str, list[Rows]] = {}
        """Rows for a box with state, by input."""
        self._pool = Pool(self.layout)
        # Where nothing takes any time, nothing is to be lost either.
        self.load_aware = [] if unlimited else aware_boxes(network.order)
        """Boxes that shed by themselves."""
        self._aware = aware_of(self.layout.box, self.load_aware)
        self._state = _new_state(self.layout, asking=bool(self.load_aware))
        self._drops: tuple[Drop, ...] = ()
        self._changed = False
        self._intervals = 0
        self._serial = dict.fromkeys(scenario.arrivals, 0)
        self._produced = 0
        width = int(np.ceil(scenario.seconds / scenario.interval)) + 1
        self.delivered: Ints = np.zeros((len(network.outputs), width), np.int64)
        """[output, interval in which the row arrived]"""
        self.value: Floats = np.zeros((len(network.outputs), width))
        """The same, each row weighed with its value utility (1 where the output has no value graph)."""
        self._latencies: list[tuple[Places, Floats]] = []
        self._recent: Floats = np.zeros((len(network.outputs), 2))
        """Of the rows delivered since the last observation: sum of latencies, count."""

    # ── running ──────────────────────────────────────────────────────────────────────────────────

    @property
    def now(self) -> float:
        return float(self._state.clock[kernel.CLOCK])

    def use(self, drops: Sequence[Drop]) -> None:
        """Put these drops in force, instead of those that were, from the next interval on.

        They also take their share of the rows that wait on their arcs by then.
        """
        arcs = self.scenario.network.arcs
        for drop in drops:
            if drop.at not in arcs:
                raise InvalidArgument("no such arc", got=drop.at, hint=", ".join(arcs))
        inside = lifted(drops, self.scenario.catalog)
        ordered = tuple(sorted(inside, key=lambda drop: self.layout.arc[drop.at]))
        self._changed |= ordered != self._drops
        self._drops = ordered

    def advance(self) -> Observation:
        """One interval, with arrivals."""
        start = self._intervals * self.scenario.interval
        self._intervals += 1
        end = min(self._intervals * self.scenario.interval, self.scenario.seconds)
        before = dict(self._serial)
        busy = float(self._state.clock[kernel.BUSY])
        steps = _STEPS_WITH_STATE if self._boxes else 1
        for step in range(1, steps + 1):
            self._step(start + (end - start) * step / steps, arriving=True)
        return Observation(
            at=end,
            seconds=end - start,
            arrived={name: count - before[name] for name, count in self._serial.items()},
            queued=self._queued(),
            latency=self._recent_latency(),
            busy=(float(self._state.clock[kernel.BUSY]) - busy) / (end - start),
            balance=self.balance(),
        )

    def drain(self) -> None:
        """Let the queues run empty, with no more arrivals."""
        while self._state.at[kernel.INSIDE] or self._pending:
            # Long enough for many rows, short enough for boxes with state to give theirs.
            self._step(max(self.now, self.scenario.seconds) + self.scenario.interval, arriving=False)
        if self._boxes:
            self._results(np.inf)
            while self._state.at[kernel.INSIDE] or self._pending:
                self._step(self.now + self.scenario.interval, arriving=False)
                self._results(np.inf)

    @property
    def over(self) -> bool:
        """Whether all arrivals have been simulated."""
        return self._intervals * self.scenario.interval >= self.scenario.seconds

    # ── what happened ────────────────────────────────────────────────────────────────────────────

    def balance(self) -> Balance:
        state = self._state
        arrived = sum(self._serial.values())
        kinds = self._wiring.kind
        sinks = kinds == kernel.SINK
        left = int((state.served - state.filtered)[~sinks].sum())
        queued = int(state.at[kernel.INSIDE])
        fed = self._produced - sum(map(len, self._pending.values()))
        return Balance(
            arrived=arrived,
            copied=int(state.offered.sum()) - left - arrived - fed,
            produced=fed,
            delivered=int(self.delivered.sum()),
            filtered=int(state.filtered.sum()),
            shed=int(state.shed.sum()),
            absorbed=int(state.served[sinks].sum()),
            queued=queued,
        )

    def unbalanced(self) -> list[str]:
        """Places where rows appeared or vanished: none. Checks every box and output by itself."""
        state, network = self._state, self._network
        offered, passed = state.offered.sum(axis=0), (state.offered - state.shed).sum(axis=0)
        wrong = []
        for name, index in self.layout.box.items():
            entered = sum(int(passed[self.layout.arc[each]]) for each in network.arcs_into(name))
            if entered != state.served[index] + state.queue[index]["waiting"]:
                wrong.append(f"{name}: entered {entered}")
            if self._wiring.kind[index] != kernel.SINK:
                left = int(state.served[index] - state.filtered[index])
                wrong += [
                    f"{each}: {left} left"
                    for each in network.arcs_out_of(name)
                    if offered[self.layout.arc[each]] != left
                ]
        for name, count in self._serial.items():
            wrong += [
                f"{each}: {count} arrived"
                for each in network.arcs_out_of(name)
                if offered[self.layout.arc[each]] != count
            ]
        for name, index in self.layout.output.items():
            entered = sum(int(passed[self.layout.arc[each]]) for each in network.arcs_into(name))
            if entered != self.delivered[index].sum():
                wrong.append(f"{name}: entered {entered}")
        return wrong

    def arrived(self) -> dict[str, int]:
        return dict(self._serial)

    def latencies(self, output: str) -> Floats:
        """Seconds from arrival to delivery, of every row, in order of delivery."""
        index = self.layout.output[output]
        parts = [latency[outputs == index] for outputs, latency in self._latencies]
        return np.concatenate(parts) if parts else np.empty(0)

    def box_latencies(self) -> dict[str, BoxLatency]:
        """Queuing and completion latencies at the load-aware boxes."""
        return latencies(self._aware, self.load_aware)

    def mean_inside(self) -> float:
        """Time average of the rows waiting or in service: Little's L."""
        return float(self._state.clock[kernel.AREA] / self._state.clock[kernel.SEEN])

    def work(self) -> float:
        """Core-seconds of service given so far."""
        return float(self._state.clock[kernel.BUSY]) * self.scenario.catalog.capacity

    def passed(self) -> dict[str, tuple[int, int]]:
        """For each arc, the rows that reached its drops and those that passed them."""
        offered, shed = self._state.offered.sum(axis=0), self._state.shed.sum(axis=0)
        inside = {name: (int(offered[i]), int(offered[i] - shed[i])) for name, i in self.layout.arc.items()}
        return lowered_counts(inside, self.scenario.catalog)

    def passed_by_origin(self) -> dict[tuple[str, str], tuple[int, int]]:
        """The same for each (origin of the rows, arc)."""
        inside: dict[str, dict[str, tuple[int, int]]] = {}
        for each in self.layout.classes:
            found = inside.setdefault(each.origin, {})
            for name in each.arcs:
                index = self.layout.arc[name]
                reached, shed = self._state.offered[each.index, index], self._state.shed[each.index, index]
                before = found.get(name, (0, 0))
                found[name] = (before[0] + int(reached), before[1] + int(reached - shed))
        return {
            (origin, name): rows
            for origin, counts in inside.items()
            for name, rows in lowered_counts(counts, self.scenario.catalog).items()
        }

    def _queued(self) -> dict[str, int]:
        arcs = self._state.entry[kernel.entries(self._state)]["arc"]
        counts = np.bincount(arcs, minlength=len(self.layout.arc))
        inside = {name: int(counts[index]) for name, index in self.layout.arc.items()}
        return lowered_queues(inside, self.scenario.catalog)

    def _recent_latency(self) -> dict[str, float]:
        sums, counts = self._recent.T.copy()
        self._recent[:] = 0.0
        return {name: float(sums[i] / counts[i]) for name, i in self.layout.output.items() if counts[i]}

    # ── one step ─────────────────────────────────────────────────────────────────────────────────

    def _step(self, end: float, *, arriving: bool) -> None:
        state = self._state
        fresh = dict(self._pending)
        times = {name: np.full(len(rows), self.now) for name, rows in fresh.items()}
        self._pending = {}
        if arriving:
            for name in self._arrivals:
                times[name] = self._arrivals[name].until(end)
                fresh[name] = self._rows(name, times[name])
        first: Mapping[str, int] = {}
        if fresh:
            waiting = kernel.entries(state)
            positions = state.entry["row"][waiting]
            moved, first = self._pool.refill(np.unique(positions), fresh)
            state.entry["row"][waiting] = moved[positions]
        feed = self._feed(fresh, times, first)
        drops = self._in_force()
        if self._changed:
            kernel.thin(self._wiring, drops, self._pool.view, state)
            self._changed = False
        state.at[kernel.FED] = 0
        sunk: list[kernel.Records] = []
        reason = -1
        while reason != kernel.DONE:
            reason = kernel.run(end, self._wiring, drops, self._pool.view, feed, self._state, self._aware)
            if reason == kernel.GROW:
                self._state = _grown(self._state)
            self._note_deliveries()
            count = self._state.at[kernel.SUNK]
            sunk.append(self._state.sunk[:count].copy())
            self._state.at[kernel.SUNK] = 0
        if self._boxes:
            self._absorb(sunk)
            self._results(self._horizon())

    def _rows(self, source: str, arrived: Floats) -> Rows:
        columns = self._values[source].draw(arrived)
        serial = self._serial[source]
        self._serial[source] += len(arrived)
        base = (self.layout.place[source] + 1) << 40
        protect = next(each.protect for each in self.scenario.network.sources if each.name == source)
        return Rows(
            columns,
            arrived,
            np.arange(base + serial, base + serial + len(arrived), dtype=np.uint64),
            None if protect is None else np.asarray(protect.evaluate(columns), bool),
        )

    def _feed(
        self, fresh: Mapping[str, Rows], times: Mapping[str, Floats], first: Mapping[str, int]
    ) -> kernel.Feed:
        sizes = [len(rows) for rows in fresh.values()]
        return kernel.merge(
            np.concatenate([np.empty(0), *(times[name] for name in fresh)]),
            np.cumsum([0, *sizes], dtype=np.int64),
            np.array([first[name] for name in fresh], dtype=np.int64),
            np.array([self.layout.place[name] for name in fresh], dtype=np.int64),
        )

    def _in_force(self) -> kernel.Drops:
        arcs = [self.layout.arc[drop.at] for drop in self._drops]
        counts = np.bincount(arcs, minlength=len(self.layout.arc)) if arcs else np.zeros(len(self.layout.arc))
        of_arc_from = np.cumsum([0, *counts], dtype=np.int64)
        salts = [2 * (at * _SALT_STRIDE + number - int(of_arc_from[at])) + 2 for number, at in enumerate(arcs)]
        tests = [Test(drop.at, None if drop.where is None else parse(drop.where)) for drop in self._drops]
        return kernel.Drops(
            of_arc_from=of_arc_from,
            keep=np.array([drop.keep for drop in self._drops], dtype=np.float64),
            salt=np.array(salts, dtype=np.uint64),
            match=self._pool.match(tests),
            cost=self._drop_cost,
        )

    def _note_deliveries(self) -> None:
        state, pool = self._state, self._pool
        count = int(state.at[kernel.DELIVERED])
        if not count:
            return
        deliveries, latency = state.delivered[:count], np.empty(count)
        kernel.tally(
            deliveries,
            pool.arrived,
            pool.view.card,
            pool.worth_line,
            pool.worth,
            self.scenario.interval,
            self.delivered,
            self.value,
            latency,
            self._recent,
        )
        self._latencies.append((deliveries["output"].copy(), latency))
        state.at[kernel.DELIVERED] = 0

    # ── boxes with state ─────────────────────────────────────────────────────────────────────────

    def _absorb(self, sunk: Sequence[kernel.Records]) -> None:
        """Hand the rows that were served at boxes with state over to them; results come by `_results`."""
        entries = np.concatenate(sunk)
        for name in self._boxes:
            sides = []
            for each in self._network.arcs_into(name):
                positions = entries["row"][entries["arc"] == self.layout.arc[each]]
                sides.append(joined([part for _, part in self._pool.rows_at(positions)]))
            self._served[name] = sides

    def _horizon(self) -> float:
        """No row that arrived before this is still under way."""
        positions = self._state.entry[kernel.entries(self._state)]["row"]
        oldest = float(self._pool.arrived[positions].min()) if len(positions) else np.inf
        return min(oldest, self.now)

    def _results(self, horizon: float) -> None:
        for name, box in self._boxes.items():
            sides = self._served.pop(name, None) or [EMPTY for _ in self._network.arcs_into(name)]
            above = [float(self._pending[n].arrived.min()) for n in self._above[name] if n in self._pending]
            made = box.take(sides, min([horizon, *above]), self.now)
            if len(made):
                self._produced += len(made)
                self._pending[name] = joined([self._pending.get(name, EMPTY), made])


class _Recorded:
    """Columns of a recording, handed out in order."""

    def __init__(self, columns: Mapping[str, Array]) -> None:
        self._columns = columns
        self._next = 0

    def draw(self, arrived: Floats) -> dict[str, Array]:
        start = self._next
        self._next += len(arrived)
        return {name: column[start : self._next] for name, column in self._columns.items()}


def _upstream(network: Network, name: str) -> set[str]:
    """The boxes whose rows can come to a box."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for above in inputs(network.nodes[ahead.pop()]):
            if above not in found:
                found.add(above)
                ahead.append(above)
    return found


def _new_state(layout: NumberedNetwork, *, asking: bool) -> kernel.ServerState:
    boxes, arcs, classes = layout.slots, len(layout.arc), len(layout.classes)
    at = np.zeros(8, np.int64)
    at[kernel.VISITED] = boxes
    queue = np.zeros(boxes + 1, kernel.QUEUE)
    queue["begin"][:boxes] = np.arange(boxes) * _QUEUE
    queue["mask"][:boxes] = _QUEUE - 1
    fan_out = max((len(names) for names in layout.network.consumers.values()), default=1)
    return kernel.ServerState(
        clock=np.zeros(6),
        at=at,
        queue=queue,
        ring=np.zeros(1 << boxes.bit_length(), np.uint32),
        entry=np.zeros(boxes * _QUEUE, kernel.ENTRY),
        delivered=np.zeros(_DELIVERIES + fan_out, kernel.DELIVERY),
        sunk=np.zeros(_DELIVERIES, kernel.ENTRY),
        served=np.zeros(boxes, np.int64),
        filtered=np.zeros(boxes, np.int64),
        offered=np.zeros((classes, arcs), np.int64),
        shed=np.zeros((classes, arcs), np.int64),
        asked=np.full(boxes * _QUEUE if asking else 0, np.nan),
    )


def _grown(state: kernel.ServerState) -> kernel.ServerState:
    """With twice as much room for every queue that is full: a new circle behind all others.

    A row that leaves a split point can fill several queues at once.
    """
    parts, end = [state.entry], len(state.entry)
    asked = [state.asked]
    for box, queue in enumerate(state.queue):
        begin, mask, head, waiting = queue.tolist()
        if waiting > mask:
            order = begin + ((head + np.arange(waiting)) & mask)
            parts += [state.entry[order], np.zeros(waiting, kernel.ENTRY)]
            if len(state.asked):
                asked += [state.asked[order], np.full(waiting, np.nan)]
            state.queue[box] = end, 2 * waiting - 1, 0, waiting
            end += 2 * waiting
    return state._replace(entry=np.concatenate(parts), asked=np.concatenate(asked))
