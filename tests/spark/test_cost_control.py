"""From tasks' accounts to orders, without Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamshed.errors import InvalidArgument
from streamshed.las.learn import STABILIZING, START, Operator
from streamshed.las.settings import LasSettings
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import digests
from streamshed.spark.load_aware.cost_control import CostControl, Goal
from streamshed.spark.load_aware.cost_orders import KEPT_ORDERS, KEPT_TABLES, CostTable, Order, OrderHistory
from streamshed.spark.load_aware.cost_stage import Tally

HASHES = LasSettings().hashes(seed=1)
GOAL = Goal.parse("avg 2 seconds")
CELLS = HASHES.rows * HASHES.columns


def tally(keys: int = 10, rows: int = 100, ms: float = 5.0, **more: Any) -> Tally:
    told = Tally.empty(HASHES)
    drawn = digests(np.arange(rows) % keys)
    CostSketch(HASHES, told.frequencies, told.durations).add_many(drawn, np.full(rows, int(ms * 1e6)))
    told.arrived = told.ran = rows
    for name, value in more.items():
        setattr(told, name, value)
    return told


def test_the_machine_moves_at_the_end_of_a_batch_and_sends_what_is_stable() -> None:
    operator = Operator(HASHES, LasSettings(window=250))

    def absorb(ms: float) -> CostSketch | None:
        told = tally(ms=ms)
        return operator.absorb(CostSketch(HASHES, told.frequencies, told.durations))

    assert [absorb(5.0) for _ in range(2)] == [None, None]
    assert operator.state == START
    assert absorb(5.0) is None  # 300 rows: the first snapshot
    assert operator.state == STABILIZING
    assert absorb(5.0) is None
    stable = absorb(5.0)  # 500 rows, and nothing has changed since the snapshot
    assert stable is not None
    assert (stable.seen, stable.mean) == (500, 5e6)
    assert operator.state == START
    assert operator.sketch.seen == 0
    # Costs that change are no stable costs: a new snapshot instead.
    assert [absorb(ms) for ms in (5.0, 5.0, 5.0, 20.0, 20.0)] == [None] * 5
    assert operator.state == STABILIZING


def test_what_is_known_is_used_until_it_is_stable_and_then_until_the_next_is() -> None:
    control = CostControl(HASHES, LasSettings(window=250))
    assert control.order(0, 60.0, 1, 2.0, GOAL).table == 0
    tables = []
    for ms in (5.0, 5.0, 5.0, 5.0, 5.0, 20.0, 20.0):
        control.learn({0: tally(ms=ms)}, 0, object())
        assert control.table is not None
        tables.append((control.table.number, control.stable, round(float(control.table.costs.mean()), 4)))
    # Number five is the stable one; the dearer rows after it wait for their own.
    assert (
        tables
        == [(1, False, 0.005), (2, False, 0.005), (3, False, 0.005), (4, False, 0.005)] + [(5, True, 0.005)] * 3
    )


def test_queues_share_what_rows_have_waited() -> None:
    control = CostControl(HASHES, LasSettings(window=1000))
    control.queues = 2
    for batch, waited in enumerate((100.0, 50.0)):
        told = {n: tally(rows=50, checked=True, waited=waited, delay=0.2 + 0.2 * n) for n in range(2)}
        control.learn(told, 0, batch)
    order = control.order(1000, 60.0, 3, 2.0, GOAL)
    assert (order.waited, order.rows, order.delay) == (150.0, 100.0, pytest.approx(0.3))
    assert (order.start, order.until, order.version) == (1000, 61_000, 3)
    # Rows that ran without a check do not count: there was nothing to keep to.
    control.learn({0: tally(waited=9999.0)}, 0, object())
    assert control.order(0, 60.0, 4, 2.0, GOAL).waited == 150.0
    # A window of rows forgets the rest, at the same mean.
    control.learn({}, 50, object())
    order = control.order(0, 60.0, 5, 2.0, GOAL)
    assert (order.rows, order.waited) == (25.0, 37.5)


def test_one_slow_start_is_not_the_usual_delay() -> None:
    control = CostControl(HASHES, LasSettings(window=1000))
    usual = []
    # Python workers start in the first batch; later the garbage is collected once; then the cluster gets slower.
    for batch, delay in enumerate((20.0, 0.3, 0.4, 0.3, 9.0, 0.4, 0.3, 0.4, 2.0, 2.0, 2.0)):
        # Its tasks do not end all at once; it is one batch all the same.
        for partition in range(4):
            control.learn({partition: tally(delay=delay)}, 0, batch)
        usual.append(control.delay)
    assert usual == [0.0, 0.3, 0.3, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 2.0]
    # The next run begins with what was usual.
    again = CostControl(HASHES, LasSettings(window=1000))
    again.resume(control.order(0, 60.0, 1, 2.0, GOAL), None, 1)
    assert again.delay == 2.0


def test_without_the_clock_it_goes_by_what_was_foreseen() -> None:
    control = CostControl(HASHES, LasSettings(window=1000), synchronised=False)
    told = tally(checked=True, waited=900.0, planned=80.0, shed=20, would_shed=20, free=12.5)
    control.learn({1: told}, 0, object())
    order = control.order(0, 60.0, 1, 2.0, GOAL)
    assert (order.waited, order.rows, order.free) == (80.0, 80.0, (0.0, 12.5))
    assert Order.from_row(order.as_row()) == order


def test_memory_does_not_grow_with_the_keys() -> None:
    few, many = tally(keys=10, rows=200_000), tally(keys=200_000, rows=200_000)
    assert len(pickle.dumps(few)) == len(pickle.dumps(many))
    cells = HASHES.rows * HASHES.columns
    sizes = []
    for told in (few, many):
        control = CostControl(HASHES, LasSettings(window=1000))
        history = OrderHistory(cells)
        for version in range(100):
            control.learn({0: told}, 0, object())
            assert control.table is not None
            history = history.with_table(control.table)
            history = history.add(control.order(version, 60.0, version, 2.0, GOAL))
        sizes.append(len(history.encode()))
        assert OrderHistory.decode(cells, history.encode()).tables[-1].number == control.table.number
    # Some orders and 3 tables, whatever came: some 20 KB.
    assert max(sizes) < 32 * 150 + 3 * 2 * cells * 13


def test_an_order_holds_for_its_span() -> None:
    orders = [
        Order(start, start + 500, n, 0, 2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0) for n, start in enumerate((100, 200))
    ]
    history = OrderHistory(220).add(orders[0]).add(orders[1])
    assert [history.at(t) for t in (50, 150, 250, 750)] == [None, orders[0], orders[1], None]
    assert OrderHistory(220).add(orders[1]).merge(OrderHistory(220).add(orders[0])) == history
    # A table of another size, of other settings, is not taken over.
    table = CostTable.of(1, CostSketch(LasSettings(epsilon=0.5).hashes(seed=1)))
    assert OrderHistory.decode(220, OrderHistory(24).with_table(table).encode()).tables == ()


def made(start: int, table: int = 0, **more: Any) -> Order:
    return Order(start, start + 500, start, table, 2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, **more)


def table(number: int, ms: float = 5.0) -> CostTable:
    told = tally(ms=ms)
    return CostTable.of(number, CostSketch(HASHES, told.frequencies, told.durations))


def busy(history: OrderHistory, starts: range, *, tables: bool = True) -> OrderHistory:
    """As it is after so many more orders, each with a table of its own."""
    for start in starts:
        number = start if tables else 0
        history = (history.with_table(table(number)) if tables else history).add(made(start, number))
    return history


def test_an_order_never_outlives_its_table() -> None:
    history = OrderHistory(CELLS)
    for start in range(1, 60):
        history = busy(history, range(start, start + 1))
        numbers = [each.number for each in history.tables]
        assert {order.table for order in history.spans} <= set(numbers)
        assert len(numbers) <= KEPT_TABLES
        # At any time, the table of the order in force, or no order.
        for time in range(start + 600):
            order = history.at(time)
            assert order is None or history.table(order.table) is not None
    assert OrderHistory.decode(CELLS, history.encode()) == history


def test_orders_without_tables_are_the_newest() -> None:
    history = busy(OrderHistory(CELLS), range(1, 100), tables=False)
    assert [order.start for order in history.spans] == list(range(100 - KEPT_ORDERS, 100))


def test_what_is_held_stays_and_speaks_for_its_own_time_only() -> None:
    history = busy(OrderHistory(CELLS), range(1, 4))
    before = {time: history.at(time) for time in range(3)}
    history = busy(history.holding({2}), range(4, 80))
    assert history.at(2) == replace(made(2, 2), until=3)
    assert history.table(2) is not None
    assert (before[1], history.at(1)) == (made(1, 1), None)
    # Not for the time of those that went, though it would have lasted until 502.
    assert [history.at(time) for time in range(3, 77)] == [None] * 74
    assert history.at(78) == made(78, 78)
    # What a crash leaves is what was held.
    again = OrderHistory.decode(CELLS, history.encode())
    assert again.at(2) == history.at(2)
    assert again.table(2) is not None
    # Let go, it goes with the next order.
    history = busy(history.holding(()), range(80, 81))
    assert history.at(2) is None
    assert history.table(2) is None


def test_what_another_run_saved_comes_with_its_own_tables() -> None:
    """Two queries that ran in different processes have numbered their tables each from 1."""
    mine = OrderHistory(CELLS).with_table(table(1, ms=5.0)).add(made(1000, 1))
    theirs = OrderHistory(CELLS).with_table(table(1, ms=40.0)).add(made(10, 1))
    both = mine.merge(theirs.holding({10}))
    both = busy(both, range(2000, 2100))
    order = both.at(10)
    assert order is not None
    costs = both.table(order.table)
    assert costs is not None
    assert costs.same_as(table(1, ms=40.0))
    # Parts of the same history are not doubled.
    same = mine.merge(mine)
    assert (same.spans, len(same.tables)) == (mine.spans, 1)
    # The next table of either is a third one.
    control = CostControl(HASHES, LasSettings(window=250))
    control.numbered = both.newest_table
    control.learn({0: tally()}, 0, object())
    assert control.table is not None
    assert both.table(control.table.number) is None


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'{"orders":[[1e999]],"tables":[]}', b'{"orders":[[null]],"tables":[]}', b"[" * 200_000],
)
def test_a_broken_file_is_an_empty_history(text: bytes) -> None:
    assert OrderHistory.decode(CELLS, text) == OrderHistory(CELLS)


def test_an_order_is_the_same_when_it_is_read_again() -> None:
    control = CostControl(HASHES, LasSettings(window=1000))
    control.queues = 3
    control.learn({n: tally(checked=True, waited=100.0 / 3, delay=0.1 / 3) for n in range(3)}, 0, object())
    order = control.order(1000, 60.0, 3, 2.0, Goal.parse("avg 2 seconds over 1000 rows"))
    assert Order.from_row(order.as_row()) == order


@pytest.mark.parametrize("latency", [None, 3, "", "fast", "avg", "avg -2 s", "max 2 seconds over 10 rows"])
def test_a_latency_that_says_nothing(latency: object) -> None:
    with pytest.raises(InvalidArgument):
        Goal.parse(latency)
