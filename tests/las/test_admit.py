"""The load-aware rule against its plain model, decision by decision; compiled, and as plain Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamshed.las.admit import FREE, OWED, ROWS, WAITED, admit, correct, empty_queue
from streamshed.las.check import ABSOLUTE, AVERAGE
from streamshed.las.learn import STABILIZING, START, Operator, window_closed
from streamshed.las.settings import LasSettings
from streamshed.sketch.cost import CostSketch
from tests.oracles import check as oracle
from tests.oracles.baselines import Believing
from tests.oracles.load_aware import Matrices
from tests.oracles.load_aware import Operator as PlainOperator

TARGET = 2.0
ROWS_DRAWN = st.lists(st.tuples(st.floats(0, 4), st.floats(0, 4)), min_size=1, max_size=80)
FLOORS = st.sampled_from([0.0, 0.05, 0.3, 1.0])


@given(
    rows=ROWS_DRAWN,
    kind=st.sampled_from(["average", "sliding", "fading", "absolute"]),
    floor=FLOORS,
    before=st.tuples(st.floats(0, 100), st.integers(1, 20)),
    span=st.integers(1, 9),
)
def test_it_decides_as_the_plain_model(
    rows: list[tuple[float, float]], kind: str, floor: float, before: tuple[float, int], span: int
) -> None:
    """Also where Q and ℓ are what earlier rows have really waited, in debt or not."""
    gaps, costs = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    arrivals = np.cumsum(gaps)
    waited, count = (before[0], float(before[1])) if kind in ("average", "fading") else (0.0, 0.0)
    count = min(count, float(span)) if kind == "fading" else count
    plain: dict[str, Callable[[], oracle.Check]] = {
        "average": lambda: oracle.Average(TARGET, waited, count),
        "fading": lambda: oracle.FadingAverage(TARGET, span, waited, count),
        "sliding": lambda: oracle.SlidingAverage(TARGET, span),
        "absolute": lambda: oracle.Absolute(TARGET),
    }
    each = iter(costs.tolist())
    model = Believing(plain[kind](), lambda key: 0.0, floor)
    expected = []
    for now in arrivals.tolist():
        cost = next(each)
        model.cost = lambda key, cost=cost: cost  # type: ignore[misc]
        expected.append(not model.sheds(0, now))
    queue = empty_queue(waited=waited, rows=count, span=span if kind == "sliding" else 0)
    over = float(span) if kind in ("sliding", "fading") else 0.0
    found = admit(arrivals, costs, queue, ABSOLUTE if kind == "absolute" else AVERAGE, TARGET, over, floor)
    assert found.tolist() == expected
    assert queue[FREE] == model.queue.free_at
    if kind in ("average", "fading"):
        check = model.gate.check
        assert isinstance(check, oracle.Average)
        assert (queue[WAITED], queue[ROWS]) == (check.total, check.rows)


@given(
    rows=ROWS_DRAWN, cut=st.integers(0, 80), kind=st.sampled_from([AVERAGE, ABSOLUTE]), floor=FLOORS,
    span=st.integers(0, 9), remembers=st.booleans(),
)  # fmt: skip
def test_it_does_not_matter_where_the_rows_are_cut(
    rows: list[tuple[float, float]], cut: int, kind: float, floor: float, span: int, remembers: bool
) -> None:
    gaps, costs = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    arrivals = np.cumsum(gaps)
    whole, parts = (empty_queue(span=span if remembers else 0) for _ in range(2))
    once = admit(arrivals, costs, whole, kind, TARGET, float(span), floor)
    halves = slice(0, cut), slice(cut, None)
    twice = [admit(arrivals[half], costs[half], parts, kind, TARGET, float(span), floor) for half in halves]
    assert np.array_equal(once, np.concatenate(twice))
    assert np.array_equal(whole, parts)


@given(rows=ROWS_DRAWN, kind=st.sampled_from([AVERAGE, ABSOLUTE]), floor=st.floats(0.01, 1.0))
def test_the_floor_holds_in_every_stretch(rows: list[tuple[float, float]], kind: float, floor: float) -> None:
    gaps, costs = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    admitted = admit(np.cumsum(gaps), costs, empty_queue(), kind, 0.01, 0.0, floor)
    for first in range(len(rows)):
        lost = np.cumsum(floor - admitted[first:])
        assert (lost < 1.0 + 1e-9).all()
    assert admitted.sum() >= floor * len(rows) - 1e-9  # and from the beginning, nothing at all is missing


def test_a_floor_of_0_owes_nothing() -> None:
    queue = empty_queue(free=100.0)
    assert not admit(np.zeros(500), np.zeros(500), queue, ABSOLUTE, TARGET, 0.0, 0.0).any()
    assert queue[OWED] == 1.0


def test_an_answer_takes_the_place_of_the_one_before() -> None:
    queue = empty_queue(free=10.0)
    correct(queue, 4.0)
    assert queue[FREE] == 14.0
    correct(queue, 4.0)  # the same skew, told twice
    assert queue[FREE] == 14.0
    correct(queue, -1.0)
    assert queue[FREE] == 9.0


@given(
    timed=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 1000)), min_size=1, max_size=80),
    window=st.integers(1, 5),
)
def test_windows_close_as_in_the_plain_model(timed: list[tuple[int, int]], window: int) -> None:
    las = LasSettings(epsilon=0.5, tolerance=0.5, window=window)
    hashes = las.hashes(seed=3)
    plain, sketch, state = PlainOperator(hashes, window, 0.5), CostSketch(hashes), START
    snapshot = sketch.ratios()
    for number, (key, took) in enumerate(timed, 1):
        told = [message for message in plain.finished(key, took, 0.0) if isinstance(message, Matrices)]
        if number % window == 0:
            sends = window_closed(sketch.frequencies, sketch.durations, snapshot, state, 0.5)
            assert sends is bool(told)
            state = START if sends else STABILIZING
            if sends:
                assert sketch.to_bytes() == told[0].sketch.to_bytes()
                sketch.clear()
        sketch.add(key, took)


def test_whole_sketches_move_the_machine_at_their_end() -> None:
    las = LasSettings(window=10)
    hashes = las.hashes(seed=3)
    operator, timed = Operator(hashes, las), CostSketch(hashes)
    for _ in range(7):
        timed.add(5, 100)
    states = []
    for _ in range(4):
        sent = operator.absorb(timed)
        states.append((operator.state, None if sent is None else sent.seen))
    assert states == [(START, None), (STABILIZING, None), (START, 21), (START, None)]
    assert operator.sketch.seen == 7


PROGRAM = """
import hashlib, numpy as np
from streamshed.las.admit import admit, empty_queue
from streamshed.las.learn import window_closed
from streamshed.sketch.cost import CostSketch
rng, told = np.random.default_rng(5), hashlib.sha256()
for kind, span, memory, floor in ((0.0, 0, 0, 0.0), (0.0, 30, 30, 0.1), (0.0, 30, 0, 0.0), (1.0, 0, 0, 0.2)):
    queue = empty_queue(waited=4.0, rows=1.0, span=memory)
    arrivals, costs = np.cumsum(rng.exponential(1.0, 400)), rng.exponential(1.5, 400)
    told.update(admit(arrivals, costs, queue, kind, 2.0, float(span), floor).tobytes() + queue.tobytes())
sketch = CostSketch.sized(0.2, 0.1, seed=1)
keys = rng.integers(0, 2**31 - 1, 300)
sketch.add_many(keys, rng.integers(1, 10**9, 300))
told.update(sketch.to_bytes() + sketch.estimate_many(keys).tobytes())
snapshot = sketch.ratios() * 1.01
told.update(repr([bool(window_closed(sketch.frequencies, sketch.durations, snapshot, 1, mu))
                  for mu in (0.5, 0.001, 0.5)]).encode() + snapshot.tobytes())
print(told.hexdigest())
"""


def test_without_numba_the_same_source_gives_the_same_bits() -> None:
    told = []
    for without in ("", "import sys; sys.modules['numba'] = None\n"):
        program = [sys.executable, "-W", "error", "-c", without + PROGRAM]
        ran = subprocess.run(program, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        told.append(ran.stdout)
    assert told[0] == told[1]
