"""The overload detector: when it speaks, and what it says. And what is in vain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.loop import AffineCost, OverloadDetector
from streamshed.loop.in_vain import InVain
from streamshed.loop.overload import longest
from streamshed.records import Overload, Sample

ROW = 1e-3  # seconds
FIXED = 0.2


def batch(started: float, rows: int, gap: float, keep: float = 1.0, **more: float) -> Sample:
    kept = int(rows * keep)
    took = FIXED + ROW * kept
    return Sample(
        at=started + took, started=started, arrived=rows, kept=kept, gap=gap, waited=gap, keep=keep,
        keep_next=keep, **more,  # type: ignore[arg-type]
    )  # fmt: skip


class Watched:
    """A detector that knows the cost exactly, at a load that fits."""

    def __init__(self, latency: float = 4.0) -> None:
        self.cost = AffineCost()
        self.detector = OverloadDetector(self.cost, latency)
        for second in range(8):
            assert self.see(batch(second, 100 + 200 * (second % 3), 1.0)) is None

    def see(self, sample: Sample) -> Overload | None:
        self.cost.observe(sample.duration, sample.arrived, sample.kept, cut=sample.cut > 0)
        return self.detector.observe(sample, budget=1.9)


def cut(started: float, rows: int, gap: float) -> Sample:
    """A batch that was cut at 1.9 s."""
    kept = int((1.9 - FIXED) / ROW)
    return Sample(at=started + 1.9, started=started, arrived=rows, kept=kept, cut=rows - kept, gap=gap, waited=gap)


def test_a_load_that_fits_is_no_overload() -> None:
    watched = Watched()
    assert watched.see(batch(8, 350, 1.0)) is None
    assert not watched.detector.shedding


def test_a_burst_is_the_budgets_business() -> None:
    watched = Watched()
    assert watched.see(cut(8, 6000, 1.0)) is None
    assert watched.see(batch(10, 600, 1.9)) is None
    assert not watched.detector.shedding


def test_what_lasts_is_an_overload_and_what_fits_is_what_the_bound_allows() -> None:
    watched = Watched()
    found = [watched.see(cut(8 + 1.9 * turn, 5700, 1.9)) for turn in range(4)]
    assert found[0] is None
    last = found[-1]
    assert last is not None
    assert last.rate == pytest.approx(3000, rel=0.01)
    assert last.predicted > last.allowed == longest(4.0, 0.0)
    assert last.share == pytest.approx((1.92 - FIXED) / ROW / (3000 * 1.92), rel=0.1)


@pytest.mark.parametrize(("rate", "batches"), [(1500, 4), (6000, 2)])
def test_far_too_much_is_an_overload_sooner_and_never_at_once(rate: int, batches: int) -> None:
    watched = Watched()
    found = [watched.see(cut(8 + 1.9 * turn, int(1.9 * rate), 1.9)) for turn in range(batches)]
    assert [each is None for each in found] == [True] * (batches - 1) + [False]


def test_slowness_is_not_taken_for_rows() -> None:
    watched = Watched()
    for turn in range(6):
        slow = replace(batch(8 + 3.0 * turn, 300, 3.0), at=8 + 3.0 * turn + 2.5)
        watched.see(slow)
        assert watched.detector.rate == pytest.approx(100, rel=2.5)
        assert watched.detector.rate < 350


def test_leaving_takes_a_lower_load_and_its_time() -> None:
    watched = Watched()
    for turn in range(4):
        watched.see(cut(8 + 1.9 * turn, 5700, 1.9))
    assert watched.detector.shedding
    watched.see(batch(16, 300, 1.0, keep=0.3))
    assert watched.detector.shedding, "one calm batch is not enough"
    for second in range(17, 21):
        watched.see(batch(second, 300, 1.0))
    assert not watched.detector.shedding


@pytest.mark.parametrize("took", [0.0, -5.0])
def test_a_clock_that_is_set_back_in_an_overload_says_nothing_of_what_fits(took: float) -> None:
    watched = Watched()
    found = [watched.see(cut(8 + 1.9 * turn, 5700, 1.9)) for turn in range(4)][-1]
    assert found is not None
    back = replace(cut(15.6, 5700, 1.9), at=15.6 + took)
    after = watched.detector.observe(back, budget=1.9)
    assert after is not None
    # Few rows seem to have come meanwhile, of which half as many again may pass; no fewer do.
    assert found.share <= after.share <= 1.51 * found.share


def test_nothing_known_keeps_everything() -> None:
    detector = OverloadDetector(AffineCost(), 4.0)
    assert detector.observe(Sample(at=5.0, started=0.0, arrived=100, kept=100)) is None


def test_rows_that_a_source_holds_back_have_arrived() -> None:
    watched = Watched()
    for turn in range(5):
        found = watched.see(replace(batch(8 + 1.9 * turn, 1700, 1.9), backlog=2000.0 * (turn + 1)))
    assert found is not None
    assert found.rate > 1900
    assert found.allowed < longest(4.0, 0.0), "what a source gives at most must be asked for the more often"


def test_a_trigger_interval_leaves_less_of_the_bound() -> None:
    assert longest(4.0, 0.0) == longest(4.0, 1.0) > longest(4.0, 3.0) > 0
    assert longest(4.0, 4.0) <= 0


@given(st.integers(2000, 50_000), st.integers(2000, 50_000))
def test_more_arrivals_never_let_a_larger_share_through(one: int, other: int) -> None:
    shares = []
    for rows in sorted((one, other)):
        watched = Watched()
        found = None
        for turn in range(4):
            found = watched.see(cut(8 + 1.9 * turn, max(rows, 1800), 1.0))
        shares.append(1.0 if found is None else found.share)
    assert shares[1] <= shares[0] + 1e-2


def test_a_trigger_interval_longer_than_the_bound_is_nothing_that_dropping_helps() -> None:
    found = InVain(AffineCost(), 4.0).why(batch(10, 3000, 10.0, interval=10.0))
    assert found.startswith("the trigger interval of 10.0 s alone is longer than the bound of 4.0 s")
    found = InVain(AffineCost(), 4.0).why(batch(8, 3000, 1.0, interval=3.9))
    assert found.startswith("the trigger interval of 3.9 s leaves no time of the bound of 4.0 s")


def told(latency: float, fixed: float, turns: int, rows: Callable[[int], int], interval: float = 0.0) -> str:
    cost, found = AffineCost(), ""
    in_vain = InVain(cost, latency)
    for turn in range(turns):
        size = rows(turn)
        sample = Sample(
            at=4.0 * turn + fixed + 1e-5 * size,
            started=4.0 * turn,
            arrived=size,
            kept=size,
            gap=4.0,
            interval=interval,
        )
        cost.observe(sample.duration, size, size)
        found = in_vain.why(sample)
    return found


def test_a_trigger_that_leaves_less_than_a_batch_costs_at_least() -> None:
    found = told(4.0, 1.0, 6, lambda turn: 1000 * (1 + turn % 3), interval=3.0)
    assert "a batch takes 1.0 s whatever is in it, and its rows wait for its trigger (3.0 s)" in found


def test_the_fixed_cost_is_too_much_until_a_batch_takes_less() -> None:
    assert "a batch takes 2.5 s whatever is in it" in told(4.0, 2.5, 6, lambda turn: 1000 * (1 + turn % 3))
    # All of one size from here on: nothing tells the fixed cost from that of rows, and nothing speaks against it.
    assert "whatever is in it" in told(4.0, 2.5, 300, lambda turn: 1000)
    assert told(4.0, 0.3, 6, lambda turn: 1000) == ""


def test_an_overload_is_not_taken_for_a_fixed_cost() -> None:
    """Every batch is far longer than the bound, but the more so the more rows it has."""
    cost, start, rows = AffineCost(), 0.0, 3000
    in_vain = InVain(cost, 4.0)
    for _ in range(6):
        sample = batch(start, rows, 1.0)
        cost.observe(sample.duration, sample.arrived, sample.kept)
        assert in_vain.why(sample) == ""
        start, rows = start + FIXED + ROW * rows, 2 * rows


def test_batches_that_were_cut_say_nothing_of_a_fixed_cost() -> None:
    cost = AffineCost()
    in_vain = InVain(cost, 3.0)
    for turn in range(10):
        sample = cut(2.0 * turn, 9000, 2.0)
        cost.observe(sample.duration, sample.arrived, sample.kept, cut=True)
        assert in_vain.why(sample, budget=1.8) == ""


def test_a_query_that_only_drains_has_no_bound_to_keep() -> None:
    assert "availableNow" in InVain(AffineCost(), 4.0).why(batch(8, 5000, 1.0, draining=True))
