"""The shedder's cycle: what it looks at stands still, nothing that arrives meanwhile is lost, and C_T is
followed."""

from __future__ import annotations

import numpy as np
import pytest

from streamshed.sim.network.rows import Rows
from streamshed.sim.nodes.batch import Batch
from streamshed.sim.nodes.events import Events
from streamshed.sim.nodes.input_buffer import InputBuffer
from streamshed.sim.nodes.node_shedder import NodeShedder
from streamshed.sim.nodes.operator_runner import OperatorRunner


def batch(tuples: int, query: int = 0) -> Batch:
    return Batch(query, "box", 0, Rows({}, np.zeros(tuples), np.zeros(tuples, np.uint64)), {}, 0.0, 0.0)


class Bench:
    """A node whose tuples take a millisecond each; its shedder keeps the newest batches and needs long to
    decide."""

    def __init__(self, decision: float) -> None:
        self.events = Events()
        self.buffer = InputBuffer()
        self.begun: list[tuple[float, Batch]] = []
        self.seen: list[tuple[Batch, ...]] = []
        self.kept: list[Batch] = []
        self.looks: list[float] = []
        self.runner = OperatorRunner(self.events, self.buffer, self._work, 1.0)
        self.shedder = NodeShedder(self.events, self.buffer, self.runner, self._choose, decision=decision)

    def _work(self, batch: Batch, now: float):
        self.begun.append((now, batch))
        return batch.tuples * 1e-3, lambda: None

    def _choose(self, waiting: tuple[Batch, ...], tuples: float) -> np.ndarray:
        self.seen.append(waiting)
        self.looks.append(self.events.now)
        total = np.cumsum([each.tuples for each in reversed(waiting)])[::-1]
        chosen = total <= tuples
        self.kept += [each for each, keep in zip(waiting, chosen, strict=True) if keep]
        return chosen

    def feed(self, every: float, tuples: int, until: float) -> list[Batch]:
        sent = []
        for at in np.arange(0.0, until, every):
            each = batch(tuples)
            sent.append(each)

            def arrive(each: Batch = each) -> None:
                each.received = self.events.now
                self.buffer.put(each)
                self.runner.poke()

            self.events.at(float(at), arrive)
        return sent


@pytest.fixture
def slow() -> Bench:
    """It takes 1 ms for each batch that waits: with some 50 of them, a fifth of the interval."""
    bench = Bench(decision=1e-3)
    bench.sent = bench.feed(every=0.005, tuples=10, until=10.0)  # twice what it can do
    bench.events.at(0.2, bench.shedder.cycle)
    bench.events.run(10.0)
    return bench


def test_what_arrives_while_it_decides_waits_in_the_secondary_buffer_and_is_not_lost(slow):
    assert slow.shedder.sheds > 30
    begun = {id(each) for _, each in slow.begun}
    waiting = {id(each) for each in slow.buffer.lock()} | {id(each) for each in slow.buffer._secondary}
    shed = {id(each) for seen in slow.seen for each in seen} - begun - waiting
    assert len(begun) + len(waiting) + len(shed) == len(slow.sent)
    # What came during a decision was in no earlier look, and in the next one, or was begun before it.
    for look, seen in zip(slow.looks, slow.seen, strict=True):
        during = [each for each in slow.sent if look < each.received <= look + 1e-3 * len(seen)]
        assert during
        assert not {id(each) for each in during} & {id(each) for each in seen}


def test_nothing_is_begun_while_it_decides(slow):
    for look, seen in zip(slow.looks, slow.seen, strict=True):
        inside = [at for at, _ in slow.begun if look < at < look + 1e-3 * len(seen) - 1e-9]
        assert inside == []


def test_no_batch_is_both_worked_on_and_shed(slow):
    kept = {id(each) for each in slow.kept}
    looked_at = {id(each) for seen in slow.seen for each in seen}
    begun = [id(each) for _, each in slow.begun]
    assert len(begun) == len(set(begun))
    assert all(each in kept or each not in looked_at for each in begun)


def test_batches_stay_in_the_order_in_which_they_came(slow):
    times = [each.received for _, each in slow.begun]
    assert times == sorted(times)


def test_without_the_secondary_buffer_the_set_would_change_under_the_choice():
    buffer = InputBuffer()
    buffer.put(batch(1))
    assert len(buffer.lock()) == 1
    buffer._locked = False  # as if there were none
    buffer.put(batch(1))
    with pytest.raises(ValueError, match="shorter"):
        buffer.keep(np.array([True]))


def test_without_a_pause_the_runner_would_take_from_under_the_choice():
    bench = Bench(decision=1e-3)
    bench.feed(every=0.005, tuples=10, until=3.0)
    bench.runner.pause = lambda: None  # type: ignore[method-assign]
    bench.events.at(0.2, bench.shedder.cycle)
    with pytest.raises(ValueError, match="longer"):
        bench.events.run(3.0)


def test_the_cost_of_a_tuple_is_the_mean_over_40_intervals_of_time_worked(slow):
    assert slow.shedder.cost.cost == pytest.approx(1e-3)
    slow.runner.capacity = 0.5
    for each in range(2000):
        slow.events.at(10.0 + each * 0.005, lambda: (slow.buffer.put(batch(10)), slow.runner.poke()))
    slow.events.run(15.0)
    assert 1.2e-3 < slow.shedder.cost.cost < 1.8e-3  # half of the 40 are new
    slow.events.run(20.0 + 0.25)
    assert slow.shedder.cost.cost == pytest.approx(2e-3, rel=0.03)


def test_a_node_with_little_to_do_does_not_hold_its_tuples_for_costly():
    bench = Bench(decision=0.0)
    bench.feed(every=0.1, tuples=10, until=20.0)  # a tenth of what it can do
    bench.events.at(0.2, bench.shedder.cycle)
    bench.events.run(20.0)
    assert bench.shedder.cost.cost == pytest.approx(1e-3)
    assert bench.shedder.shed == 0


def test_a_large_batch_that_comes_alone_is_not_overload():
    bench = Bench(decision=0.0)
    bench.feed(every=0.05, tuples=10, until=20.0)
    for _ in range(20):  # a second's work at once, on top of a load of a fifth
        bench.events.at(10.1, lambda: (bench.buffer.put(batch(50)), bench.runner.poke()))
    bench.events.at(0.2, bench.shedder.cycle)
    bench.events.run(20.0)
    assert bench.shedder.shed == 0
    assert len(bench.buffer) == 0
