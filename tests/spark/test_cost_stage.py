"""The load-aware stage without Spark: which rows are let in, and a closed loop with a model of micro-batches."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.las.admit import FORESEEN, ROWS, WAITED, empty_queue
from streamshed.las.admit import admit as compiled_admit
from streamshed.las.check import ABSOLUTE, AVERAGE
from streamshed.las.settings import LasSettings
from streamshed.spark.load_aware.cost_orders import ARRIVED, COST, DIGEST, DRY_RUN, ENFORCE, ORDER, Order
from streamshed.spark.load_aware.cost_stage import CLOCKS_DIFFER, TOO_OLD, CostStage, Tally, Told, _Task

TARGET = 2.0
HASHES = LasSettings().hashes(seed=1)
NOW = 1_800_000_000.0
"""The batch's own time; far from this machine's clock."""
DECIDED = Order(0, 2**52, 1, 0, ENFORCE, ABSOLUTE, TARGET, 0.0, 0.25, 0.0, 0.0)


def queue(free: float = 0.0, waited: float = 0.0, rows: float = 0.0) -> np.ndarray:
    return empty_queue(free, waited=waited, rows=rows)


def admit(
    arrivals: np.ndarray, costs: np.ndarray, state: np.ndarray, kind: float, target: float, window: float
) -> np.ndarray:
    return compiled_admit(arrivals, costs, state, kind, target, window, 0.0)


def by_hand(arrivals: list[float], costs: list[float], kind: float, target: float) -> list[bool]:
    """The check as the paper writes it, from an empty queue."""
    free, waits, answers = 0.0, list[float](), []
    for arrival, cost in zip(arrivals, costs, strict=True):
        wait = max(0.0, free - arrival)
        mean = (sum(waits) + wait) / (len(waits) + 1)
        fits = (mean if kind == AVERAGE else wait) <= target
        answers.append(fits)
        if fits:
            free = max(free, arrival) + cost
            waits.append(wait)
    return answers


@given(
    gaps=st.lists(st.integers(0, 64), min_size=1, max_size=60),
    costs=st.lists(st.integers(0, 256), min_size=60, max_size=60),
    kind=st.sampled_from([AVERAGE, ABSOLUTE]),
)
def test_where_waits_are_as_foreseen_it_is_the_papers_check(
    gaps: list[int], costs: list[int], kind: float
) -> None:
    # Sixteenths are exact in binary, so that both sums are the same number.
    arrivals = np.cumsum(np.array(gaps) / 16.0)
    each = np.array(costs[: len(gaps)]) / 16.0
    state = queue()
    admitted = admit(arrivals, each, state, kind, TARGET, 0.0)
    assert admitted.tolist() == by_hand(arrivals.tolist(), each.tolist(), kind, TARGET)
    assert state[ROWS] == admitted.sum()
    assert state[FORESEEN] == state[WAITED]


@given(
    cut=st.integers(0, 40),
    seed=st.integers(0, 1000),
    kind=st.sampled_from([AVERAGE, ABSOLUTE]),
    window=st.sampled_from([0.0, 10.0]),
)
def test_it_does_not_matter_where_arrow_cuts_the_rows(cut: int, seed: int, kind: float, window: float) -> None:
    rng = np.random.default_rng(seed)
    arrivals, costs = np.cumsum(rng.exponential(0.1, 40)), rng.exponential(0.3, 40)
    whole, parts = queue(), queue()
    once = admit(arrivals, costs, whole, kind, TARGET, window)
    twice = [admit(arrivals[s], costs[s], parts, kind, TARGET, window) for s in (slice(cut), slice(cut, None))]
    assert np.array_equal(once, np.concatenate(twice))
    assert np.array_equal(whole, parts)


def test_a_debt_is_paid_back_and_locks_nothing_out() -> None:
    state = queue(free=1.0, waited=TARGET * 1000 + 500.0, rows=1000.0)
    admitted = admit(np.zeros(3000), np.zeros(3000), state, AVERAGE, TARGET, 0.0)
    assert admitted.all()  # rows that wait half the target
    assert state[WAITED] <= TARGET * state[ROWS]
    # In debt, a row that waits the whole target is not let in.
    assert not admit(np.zeros(1), np.zeros(1), queue(TARGET, TARGET * 10 + 5.0, 10.0), AVERAGE, TARGET, 0.0)[0]


def micro_batches(bias: float = 1.0, overhead: float = 0.3, **goal: Any) -> tuple[float, float, int]:
    """A closed loop: an engine that waits for its batch, two queues, Q corrected by what rows really waited.

    Mean wait and share kept in the second half, and how many batches there were.
    """
    kind, window = goal.get("kind", AVERAGE), goal.get("window", 0.0)
    rng = np.random.default_rng(1)
    arrivals = np.arange(1, 24_000) / 260.0
    costs = rng.choice([0.025, 0.005, 0.001], len(arrivals), p=[0.28, 0.42, 0.3])
    waited = rows = delay = 0.0
    now, first = 0.5, 0
    batches = []
    while now < arrivals[-1]:
        end = int(np.searchsorted(arrivals, now))
        late = overhead + rng.normal(0, 0.03)
        ends, waits = [now + late], []
        for number in range(2):
            mine = np.arange(first, end)[number::2]
            state = queue(now + delay, waited / 2, rows / 2)
            let_in = mine[admit(arrivals[mine], costs[mine] * bias, state, kind, TARGET, window / 2)]
            starts = now + late + np.cumsum(costs[let_in]) - costs[let_in]
            waits += (starts - arrivals[let_in]).tolist()
            ends.append(now + late + float(costs[let_in].sum()))
        waited, rows = waited + sum(waits), rows + len(waits)
        if window and rows > window:
            waited, rows = waited * window / rows, window
        delay = late if delay == 0.0 else 0.7 * delay + 0.3 * late
        batches.append((end - first, waits))
        now, first = max(ends) + 0.1, end
    settled = batches[len(batches) // 2 :]
    kept = [wait for _, waits in settled for wait in waits]
    return float(np.mean(kept)), len(kept) / sum(count for count, _ in settled), len(batches)


@pytest.mark.parametrize(
    ("bias", "kind", "window"),
    [(1.05, AVERAGE, 0.0), (1.05, AVERAGE, 1000.0), (1.05, ABSOLUTE, 0.0), (0.5, AVERAGE, 0.0)],
)
def test_a_micro_batch_engine_is_held_at_the_target(bias: float, kind: float, window: float) -> None:
    wait, kept, count = micro_batches(bias, kind=kind, window=window)
    assert wait == pytest.approx(TARGET, rel=0.05)
    # Two cores at 9.4 ms a row are 213 rows a second of the 260 that come, less 0.4 s of overhead every 2.4 s.
    assert 0.6 < kept < 0.72
    assert count > 30


def test_a_higher_overhead_costs_rows_and_not_the_target() -> None:
    wait, kept, _ = micro_batches(1.05, overhead=0.8)
    assert wait == pytest.approx(TARGET, rel=0.05)
    assert kept < micro_batches(1.05, overhead=0.2)[1]


# Rows whose arrival time cannot be true.


def go_through(
    arrivals: list[float | None], order: Order | None = DECIDED, **more: Any
) -> tuple[list[int], Tally]:
    """Which of these rows, of 1 ms each, came out of a task, and its account."""
    count = len(arrivals)
    stamped = [NOW * 1000.0, *([] if order is None else order.as_row())]
    batch = pa.RecordBatch.from_pydict(
        {
            "id": list(range(count)),
            DIGEST: pa.array([7] * count, pa.int64()),
            ARRIVED: pa.array([None if at is None else round(at * 1e6) for at in arrivals], pa.int64()),
            COST: [0.001] * count,
            ORDER: [more.pop("stamped", stamped)] * count,
        }
    )
    settings: dict[str, Any] = {"by": "row", "check": "ahead", "on_error": "fail", "synchronised": True} | more
    schema = pa.schema([("id", pa.int64())])
    stage = CostStage(
        lambda row: row, columns=["id"], schema=schema, hashes=HASHES, caution=1.0, report=None, **settings
    )
    tally = Tally.empty(HASHES)
    task = _Task(stage, tally)
    # In two parts, as Arrow may cut them.
    parts = [part for part in (batch.slice(0, count // 2), batch.slice(count // 2)) if part.num_rows]
    return [row["id"] for part in parts for out in task.run(part) for row in out.to_pylist()], tally


def test_an_arrival_in_the_future_holds_up_nobody() -> None:
    kept, tally = go_through([NOW - 0.5, NOW + 3600.0, *[NOW - 0.1] * 899])
    assert kept == list(range(901))
    assert (tally.misdated, tally.shed, tally.arrived) == (1, 0, 901)
    # A row that comes from the future counts as arrived when the stage begins, and not before.
    alone, _ = go_through([NOW + 3600.0])
    assert alone == [0]


def test_an_arrival_in_1970_is_no_wait() -> None:
    kept, tally = go_through([0.0, NOW - 0.1])
    assert kept == [0, 1]
    assert tally.misdated == 1
    # Nor does it use up what others may wait: five that begin after 0.25 s, and five that came 0.1 s before them.
    late, told = go_through([0.0] * 5 + [NOW - 0.1] * 5, replace(DECIDED, kind=AVERAGE))
    assert len(late) == 10
    assert told.planned == pytest.approx(5 * 0.25 + 5 * 0.35, abs=0.1)


def test_a_row_may_be_late_by_less_than_a_day_and_early_by_what_clocks_differ() -> None:
    kept, tally = go_through([NOW - TOO_OLD + 1.0, NOW - 2 * TARGET, NOW + CLOCKS_DIFFER, NOW, None])
    assert kept == [2, 3, 4]  # the others have waited too long, by a time that can be true
    assert (tally.misdated, tally.shed) == (0, 2)


def test_without_an_order_arrivals_are_judged_all_the_same() -> None:
    kept, tally = go_through([NOW + 3600.0, NOW, 0.0, None], None)
    assert kept == [0, 1, 2, 3]
    assert (tally.misdated, tally.delay) == (2, None)


def test_a_floor_is_counted_over_the_parts_of_a_task() -> None:
    late = [NOW - 100.0] * 90
    assert go_through(late)[0] == []
    kept, tally = go_through(late, replace(DECIDED, floor=0.1))
    assert 9 <= len(kept) <= 10  # the first, and then each tenth
    assert kept[0] == 0
    assert (tally.arrived, tally.ran, tally.shed) == (90, len(kept), 90 - len(kept))
    assert go_through(late, replace(DECIDED, floor=0.1))[0] == kept
    assert len(go_through(late, replace(DECIDED, floor=1.0))[0]) == 90


def test_rows_whose_turn_comes_after_the_budget_are_cut_and_counted() -> None:
    on_time = [NOW - 0.1] * 60
    kept, tally = go_through(on_time, budget=1e-9)
    assert kept == []
    assert (tally.arrived, tally.shed, tally.cut, tally.ran) == (60, 60, 60, 0)
    kept, tally = go_through(on_time, replace(DECIDED, floor=0.1), budget=1e-9)
    assert (len(kept), tally.cut) == (6, 54)
    assert go_through(on_time, deadline=1.0)[1].cut == 60


def test_nothing_is_cut_in_a_batch_that_runs_again_long_after_its_time_nor_in_dry_run() -> None:
    # The batch's own time is far from this machine's clock: its budget is counted from now.
    assert go_through([NOW - 0.1] * 60, budget=60.0)[1].cut == 0
    kept, tally = go_through([NOW - 0.1] * 60, replace(DECIDED, mode=DRY_RUN), budget=1e-9)
    assert (len(kept), tally.cut) == (60, 0)
    # Without an order nobody has said that anything may be dropped.
    assert go_through([NOW - 0.1] * 60, None, budget=1e-9)[1].cut == 0


def test_completion_is_the_wait_and_the_work() -> None:
    _, tally = go_through([NOW - 1.0] * 5)
    assert tally.ran == 5
    assert tally.waited_worst < tally.latencies.worst <= tally.waited_worst + tally.worked


def test_an_order_saved_before_there_was_a_floor_has_none() -> None:
    row = replace(DECIDED, floor=0.1).as_row()
    assert Order.from_row(row) == replace(DECIDED, floor=0.1)
    assert Order.from_row(row[:11]) == DECIDED
    both = replace(DECIDED, floor=0.1, free=(1.0, 2.0))
    assert Order.from_row(both.as_row()) == both


@given(
    arrivals=st.lists(
        st.one_of(st.none(), st.floats(-4.0, 1.0), st.sampled_from([-1e9, -90_000.0, 60.0, 3600.0, 1e9])),
        min_size=1,
        max_size=40,
    ),
)
def test_a_task_that_runs_again_lets_in_the_same_rows(arrivals: list[float | None]) -> None:
    at = [None if each is None else NOW + each for each in arrivals]
    assert go_through(at)[0] == go_through(at)[0]
    # A box is told the order beside its rows: nothing else may come of it.
    told = Told(int(NOW * 1000), DECIDED, None)
    assert go_through(at, told=told)[1].misdated == go_through(at)[1].misdated


@pytest.mark.parametrize(
    "order", [[], [0.0], [None] * 11, [0.0] * 10, [0.0, math.inf, *[0.0] * 9], [math.nan] * 11]
)
def test_an_order_that_is_none_keeps_rows(order: list[float | None]) -> None:
    kept, tally = go_through([NOW - 100.0] * 6, stamped=[NOW * 1000.0, *order])
    assert kept == list(range(6))
    assert not tally.checked
