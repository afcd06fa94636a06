"""The plain model of Load-Aware Shedding itself: its state machines, checks and baselines, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.las.settings import LasSettings
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import CarterWegman
from tests.oracles.baselines import Believing
from tests.oracles.check import Absolute, Average, Check, FadingAverage, Gate, SlidingAverage
from tests.oracles.load_aware import Delta, LoadAware, Matrices, Operator, OperatorState, ShedderState
from tests.oracles.queue_model import QueueModel

HASHES = LasSettings().hashes(seed=1)
WAITS = st.lists(st.floats(0, 100, allow_nan=False), max_size=60)


def shedder_of(check: Check, **settings: Any) -> LoadAware:
    return LoadAware(check, LasSettings(**{"resync": 16} | settings))


def known(key: int, cost: int) -> Matrices:
    sketch = CostSketch(HASHES)
    sketch.add(key, cost)
    return Matrices(sketch)


class TestOperator:
    def test_a_steady_stream_is_told_after_two_windows_and_forgotten(self) -> None:
        operator = Operator(HASHES, window=3)
        states = []
        for n in range(1, 7):
            messages = operator.finished(key=5, took=100, now=100.0 * n)
            states.append(operator.state)
            assert [type(message) for message in messages] == ([Matrices] if n == 6 else [])
        start, stabilizing = OperatorState.START, OperatorState.STABILIZING
        assert states == [start, start, stabilizing, stabilizing, stabilizing, start]
        # As in the listing, the row that closes the window is counted in the next.
        assert operator.sketch.seen == 1
        assert messages[0].sketch.seen == 5
        assert messages[0].sketch.estimate(5) == 100.0

    def test_what_was_sent_does_not_change_afterwards(self) -> None:
        operator = Operator(HASHES, window=1)
        messages = [m for n in range(4) for m in operator.finished(5, 100, 100.0 * n)]
        sent = messages[0]
        assert isinstance(sent, Matrices)
        before = sent.sketch.to_bytes()
        operator.finished(6, 7, 500.0)
        assert sent.sketch.to_bytes() == before

    def test_a_changing_stream_is_not_told(self) -> None:
        operator = Operator(HASHES, window=2, tolerance=0.05)
        for n in range(40):
            assert operator.finished(5, took=10 * 2**n, now=float(n)) == ()
        assert operator.state is OperatorState.STABILIZING

    def test_the_error_is_equation_1(self) -> None:
        operator = Operator(CarterWegman(np.array([1]), np.array([0]), 3), window=2)
        operator.finished(0, 10, 0.0)
        operator.finished(1, 40, 0.0)  # closes the window; the snapshot is [10, 10, 10]
        operator.finished(0, 20, 0.0)
        # Now [15, 40, 70/3], the last being the mean: 5 + 30 + 40/3 over 30.
        assert operator.error() == pytest.approx((5 + 30 + 40 / 3) / 30)

    def test_a_question_is_answered_by_the_row_that_carried_it(self) -> None:
        operator = Operator(HASHES)
        assert operator.finished(5, 100, now=150.0, ask=120.0) == (Delta(30.0),)
        assert operator.finished(5, 100, now=250.0) == ()

    def test_the_answer_comes_before_the_matrices(self) -> None:
        operator = Operator(HASHES, window=1)
        operator.finished(5, 100, 100.0)
        operator.finished(5, 100, 200.0)  # the first snapshot was empty, so this is a change
        messages = operator.finished(5, 100, 300.0, ask=290.0)
        assert [type(message) for message in messages] == [Delta, Matrices]


class TestShedder:
    def test_knowing_nothing_it_drops_nothing(self) -> None:
        shedder = shedder_of(Absolute(1.0))
        assert not any(shedder.decide(5, 0.0).shed for _ in range(1000))
        assert shedder.state is ShedderState.NOP
        assert shedder.queue.wait(0.0) == 0.0

    def test_the_first_row_after_matrices_carries_the_question(self) -> None:
        shedder = shedder_of(Absolute(1000.0), epsilon=0.5)
        shedder.receive(known(5, 100))
        assert shedder.state is ShedderState.SEND
        assert shedder.decide(5, 10.0).ask == 10.0 + 150.0
        assert shedder.state is ShedderState.RUN
        assert shedder.decide(5, 10.0).ask is None
        shedder.receive(known(5, 200))
        assert shedder.state is ShedderState.SEND
        assert shedder.decide(5, 10.0).ask == 10.0 + 2 * 150.0 + 300.0

    def test_a_dropped_row_does_not_carry_it(self) -> None:
        shedder = shedder_of(Absolute(10.0), epsilon=0.5)
        shedder.receive(known(5, 100))
        shedder.decide(5, 0.0)
        shedder.receive(known(5, 100))
        assert shedder.decide(5, 0.0).shed
        assert shedder.state is ShedderState.SEND
        assert shedder.decide(5, 150.0).ask == 300.0

    def test_an_answer_moves_the_queue(self) -> None:
        shedder = shedder_of(Absolute(200.0), epsilon=0.5)
        shedder.receive(known(5, 100))
        shedder.decide(5, 0.0)
        assert shedder.queue.wait(0.0) == 150.0
        shedder.receive(Delta(100.0))
        assert shedder.decide(5, 0.0).shed
        shedder.receive(Delta(-20.0))
        assert shedder.queue.wait(0.0) == 130.0

    def test_two_questions_in_flight_correct_once(self) -> None:
        """The operator is 1,000 late; both questions leave before the first answer."""
        shedder = shedder_of(Average(1e9), epsilon=0.5)
        shedder.receive(known(5, 100))
        first = shedder.decide(5, 0.0).ask
        shedder.receive(known(5, 100))
        second = shedder.decide(5, 0.0).ask
        assert first is not None
        assert second is not None
        shedder.receive(Delta((150.0 + 1000.0) - first))
        assert shedder.queue.free_at == 1300.0
        shedder.receive(Delta((300.0 + 1000.0) - second))
        assert shedder.queue.free_at == 1300.0
        # The next question is about what is left, which is nothing.
        shedder.receive(known(5, 100))
        third = shedder.decide(5, 0.0).ask
        assert third is not None
        shedder.receive(Delta(1450.0 - third))
        assert shedder.queue.free_at == 1450.0

    def test_resync_asks_again(self) -> None:
        shedder = shedder_of(Absolute(1e9), resync=3)
        assert shedder.decide(5, 0.0).ask is None
        shedder.receive(known(5, 100))
        asked = [shedder.decide(5, 0.0).ask is not None for _ in range(8)]
        assert asked == [True, False, False, True, False, False, True, False]

    def test_no_credit_in_idle_time(self) -> None:
        shedder = shedder_of(Absolute(100.0), epsilon=0.5)
        shedder.receive(known(5, 100))
        shedder.decide(5, 0.0)
        # After a long rest, a burst: one runs, and the next waits for it.
        assert [shedder.decide(5, 1e6).shed for _ in range(3)] == [False, True, True]

    def test_memory_is_constant(self) -> None:
        shedder, operator = shedder_of(Average(1e3)), Operator(HASHES, window=8)
        for key in range(5_000):
            for message in operator.finished(key, 100, float(key)):
                shedder.receive(message)
            shedder.decide(key, float(key))
        for machine in (shedder, operator):
            for value in vars(machine).values():
                assert not isinstance(value, dict | set | list), "no table of keys"
        assert shedder.sketch is not None
        assert shedder.sketch.frequencies.shape == operator.sketch.frequencies.shape == (4, 55)


class TestChecks:
    @given(WAITS, st.floats(0.1, 50))
    def test_the_average_is_held_after_every_row_and_a_free_row_always_passes(
        self, waits: list[float], threshold: float
    ) -> None:
        check, admitted = Gate(Average(threshold)), []
        for wait in waits:
            would = (sum(admitted) + wait) / (len(admitted) + 1) <= threshold * (1 + 1e-12)
            if check.admits(wait):
                admitted.append(wait)
                assert would
        assert check.admits(0.0)

    @given(WAITS, st.floats(0.1, 50), st.integers(1, 10))
    def test_the_sliding_average_is_held_over_every_span(
        self, waits: list[float], threshold: float, span: int
    ) -> None:
        sliding, admitted = SlidingAverage(threshold, span), []
        check = Gate(sliding)
        for wait in waits:
            if check.admits(wait):
                admitted.append(wait)
                recent = admitted[-span:]
                assert sum(recent) / len(recent) <= threshold * (1 + 1e-9)
        assert check.admits(0.0)
        assert len(sliding.recent) <= span

    def test_a_sliding_average_gives_no_credit_for_calm_times_long_ago(self) -> None:
        whole, sliding, fading = (
            Gate(check) for check in (Average(10.0), SlidingAverage(10.0, span=5), FadingAverage(10.0, span=5))
        )
        for _ in range(1000):
            whole.admits(0.0)
            sliding.admits(0.0)
            fading.admits(0.0)
        assert whole.admits(5_000.0)
        assert not sliding.admits(5_000.0)
        assert not fading.admits(5_000.0)


def test_full_knowledge_is_load_aware_with_true_costs() -> None:
    costs = {0: 10.0, 1: 70.0}
    policy = Believing(Average(30.0), costs.__getitem__)
    queue, total, count = QueueModel(), 0.0, 0
    for n in range(200):
        key, now = n % 2, n * 25.0
        wait = queue.wait(now)
        kept = (total + wait) / (count + 1) <= 30.0
        assert policy.sheds(key, now) is not kept
        if kept:
            queue.push(now, costs[key])
            total, count = total + wait, count + 1
    assert 0 < count < 200
