"""Boxes that shed by themselves, in the network simulator: the one load-aware rule, in the event loop."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import InvalidArgument
from streamshed.las.settings import RESYNC, LasSettings
from streamshed.network.builder import Builder
from streamshed.network.graph import LoadAware, Network
from streamshed.policies.registry import network_policy
from streamshed.records import Drop
from streamshed.sim.arrivals import Trace
from streamshed.sim.network.aware import SEED, key_digests
from streamshed.sim.network.engine import Simulation
from streamshed.sim.scenario import Scenario
from streamshed.sim.simulate import expected, simulate
from streamshed.sketch.hashing import digest
from tests.oracles import check as oracle
from tests.oracles.load_aware import LoadAware as PlainShedder
from tests.oracles.load_aware import Matrices
from tests.oracles.load_aware import Operator as PlainOperator

COST = 2e-3


def network(other: float = 0.0, key: str = "k", **asked: Any) -> Network:
    """An expensive box that asks for more than twice what there is; `other` is the cost of a box beside it."""
    how = LoadAware(key=(key,), **asked) if asked else None
    builder = (
        Builder("roots", capacity=1.0)
        .source("s", "x DOUBLE, k INT, word STRING", rate=1000)
        .udf("root", "s", "math:sqrt", ["x"], "root DOUBLE", load_aware=how, cost=COST)
        .output("roots", "root")
    )
    if other:
        builder = builder.filter("beside", "s", "x >= 0", cost=other).output("others", "beside")
    return builder.build()


def run(what: Network, seconds: float = 60.0, exponential: bool = False, *plans: tuple[Drop, ...]) -> Simulation:
    simulation = Simulation(replace(Scenario.of(what, seconds=seconds, seed=3), exponential=exponential))
    turns = iter(plans)
    while not simulation.over:
        simulation.advance()
        simulation.use(next(turns, ()))
    return simulation


def wait_between(what: Network, begin: float, end: float, *, exponential: bool = False) -> float:
    """Mean queuing latency of the rows whose turn was in a stretch of time."""
    sums = []
    simulation = Simulation(replace(Scenario.of(what, seconds=end, seed=3), exponential=exponential))
    while not simulation.over:
        seen = simulation.advance()
        if seen.at in (begin, end):
            told = simulation.box_latencies()["root"]
            sums.append((told.queue_mean * told.served, told.served))
    (early, before), (late, after) = sums
    return (late - early) / (after - before)


@pytest.mark.parametrize("other", [0.0, 4e-4])
@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("latency", ["avg 500 ms over 1000 rows", "max 500 ms"])
def test_it_holds_its_target(latency: str, exponential: bool, other: float) -> None:
    """Less the caution of 1 + ε; also where another box takes its turns of the same server."""
    wait = wait_between(network(other, latency=latency, window=256), 30.0, 60.0, exponential=exponential)
    assert wait == pytest.approx(0.5 / 1.05, rel=0.05)


def test_without_it_the_queue_grows() -> None:
    simulation = run(network(), 20.0)
    assert simulation.balance().shed == 0
    assert simulation.box_latencies() == {}
    assert simulation.balance().queued > 5_000


def test_what_fits_is_not_touched() -> None:
    simulation = Simulation(Scenario.of(network(latency="avg 500 ms"), overload=0.4, seconds=30.0, seed=3))
    while not simulation.over:
        simulation.advance()
    assert simulation.balance().shed == 0


def test_rows_are_conserved_and_counted_at_the_arc() -> None:
    drops = (Drop("s->root", 0.9), Drop("root->roots", 0.9))
    simulation = run(network(4e-4, latency="max 200 ms", window=64), 10.0, False, drops, (), drops)
    simulation.drain()
    assert simulation.unbalanced() == []
    assert simulation.balance().missing == 0
    came, passed = simulation.passed()["s->root"]
    assert passed < 0.7 * came
    assert simulation.box_latencies()["root"].served == passed


def test_completion_is_the_wait_and_the_work() -> None:
    simulation = run(network(latency="max 200 ms", window=64), 10.0)
    simulation.drain()
    told = simulation.box_latencies()["root"]
    assert told.completion_mean == pytest.approx(told.queue_mean + COST)
    assert told.completion_worst == pytest.approx(told.queue_worst + COST)
    # The box is the last one: its rows' completion is their latency at the output.
    assert told.completion_mean == pytest.approx(simulation.latencies("roots").mean())


def test_the_floor_is_kept_whatever_the_target() -> None:
    simulation = run(network(latency="max 1 ms", window=64, floor=0.7), 10.0)
    came, passed = simulation.passed()["s->root"]
    assert 0.7 <= passed / came < 0.72


class EarlyShedder:
    """The plain model's two machines, with what Spark and the network simulator add: costs are put to use before
    they are first found stable. Nanoseconds; every row costs the same."""

    def __init__(self, check: oracle.Check, las: LasSettings) -> None:
        self.shedder = PlainShedder(check, las)
        self.operator = PlainOperator(las.hashes(SEED), las.window, las.tolerance)
        self.pending: list[tuple[float, float | None]] = []
        self.done = [0.0]
        self.stable = False

    def lets_in(self, now: float) -> bool:
        while self.pending and self.pending[0][0] <= now:
            done, ask = self.pending.pop(0)
            messages = self.operator.finished(0, round(COST * 1e9), done, ask)
            self.stable |= any(isinstance(message, Matrices) for message in messages)
            for message in messages:
                self.shedder.receive(message)
            if self.operator.executed % self.operator.window == 0 and not self.stable:
                self.shedder.receive(Matrices(self.operator.sketch.copy()))
        verdict = self.shedder.decide(0, now)
        if not verdict.shed:
            self.done.append(max(self.done[-1], now) + COST * 1e9)
            self.pending.append((self.done[-1], verdict.ask))
        return not verdict.shed


@settings(max_examples=25, deadline=None)
@given(gap=st.floats(0.2, 3.0), latency=st.sampled_from(["avg 6 ms", "max 6 ms"]), seed=st.integers(0, 999))
def test_alone_on_a_server_it_decides_as_the_plain_model(gap: float, latency: str, seed: int) -> None:
    times = np.cumsum(np.random.default_rng(seed).exponential(gap / 1000.0, 300))
    what = network(latency=latency, window=8, tolerance=0.5, epsilon=0.5)
    scenario = Scenario.of(what, seconds=float(times[-1]) + 0.01, seed=seed)
    simulation = Simulation(replace(scenario, arrivals={"s": Trace(tuple(times.tolist()))}))
    while not simulation.over:
        simulation.advance()
    simulation.drain()

    las = LasSettings(window=8, tolerance=0.5, epsilon=0.5, resync=RESYNC)
    model = EarlyShedder(oracle.Absolute(6e6) if latency.startswith("max") else oracle.Average(6e6), las)
    kept = np.array([model.lets_in(now * 1e9) for now in times.tolist()])
    assert simulation.box_latencies()["root"].served == kept.sum()
    # One output, one server: rows leave in the order in which they came.
    assert times[kept] + simulation.latencies("roots") == pytest.approx(np.array(model.done[1:]) / 1e9)


def test_keys_are_hashed_as_on_spark() -> None:
    words, numbers = np.array(["b", "a", "b"]), np.array([7, 8, 7])
    assert key_digests([numbers]).tolist() == [digest(7), digest(8), digest(7)]
    assert key_digests([words]).tolist() == [digest("b"), digest("a"), digest("b")]
    both = key_digests([words, numbers.astype(np.float64)])
    assert both.tolist() == [digest("b", 7.0), digest("a", 8.0), digest("b", 7.0)]
    assert len(key_digests([words[:0]])) == 0


def test_an_outcome_tells_and_the_reference_loses_nothing() -> None:
    scenario = Scenario.of(network(key="word", latency="max 200 ms", window=64), seconds=8.0, seed=3)
    reference = expected(scenario)
    assert int(reference.delivered.sum()) == pytest.approx(8_000, rel=0.05)
    outcome = simulate(scenario, network_policy("none"), reference=reference)
    assert outcome.dropped > 0.3 * outcome.arrived
    told = json.loads(json.dumps(outcome.as_json()))["load_aware"]["root"]
    assert 0 < told["queue_mean"] < told["completion_mean"] < told["completion_worst"]


def test_a_target_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="a latency target"):
        Simulation(Scenario.of(network(latency="soon")))
