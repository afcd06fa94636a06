"""The ledger adds up, once each."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.quality import Ledger
from streamshed.records import Drop, Mode, Plan, Sample


def entry(batch: int, arrived: int, kept: int, query: str = "q", took: float = 1.0) -> Sample:
    return Sample(
        at=batch + took,
        started=batch,
        arrived=arrived,
        kept=kept,
        gap=1.0,
        waited=1.0,
        query=query,
        batch=batch,
    )


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1), st.sampled_from("ab")), max_size=50))
def test_totals_are_those_of_the_query_that_has_read_most_and_arrived_is_kept_and_shed(
    rows: list[tuple[int, float, str]],
) -> None:
    ledger = Ledger()
    samples = [entry(i, n, int(n * keep), q) for i, (n, keep, q) in enumerate(rows)]
    for sample in samples:
        ledger.record(sample, Plan(), bound=4.0)
        report = ledger.report()
        assert report.arrived == report.kept + report.shed
    arrived = {query: sum(s.arrived for s in samples if s.query == query) for query in "ab"}
    assert ledger.report().arrived == max(arrived.values())
    assert ledger.report().batches == sum(s.arrived > 0 for s in samples)
    for query, part in ledger.report().by_query.items():
        assert part.kept == sum(s.kept for s in samples if s.query == query)


def test_a_batch_that_is_told_twice_counts_once() -> None:
    ledger = Ledger()
    assert ledger.record(entry(0, 10, 5), Plan(), bound=4.0)
    assert not ledger.record(entry(0, 10, 5), Plan(), bound=4.0)
    assert ledger.report().arrived == 10


def test_a_restart_continues_the_totals_and_owns_up_to_what_it_missed() -> None:
    before = Ledger()
    before.record(entry(0, 10, 5), Plan(), bound=4.0)
    before.record(entry(1, 10, 10), Plan(), bound=1.5)
    after = Ledger()
    after.restore("q", before.totals("q"))
    assert after.report() == before.report()
    assert not after.record(entry(1, 10, 10), Plan(), bound=4.0)
    after.record(entry(3, 7, 7), Plan(), bound=4.0)
    report = after.report()
    assert (report.arrived, report.kept, report.unseen, report.over_bound) == (27, 22, 1, 1)


def test_latencies() -> None:
    ledger = Ledger()
    for batch, took in enumerate((1.0, 2.0, 4.0)):
        ledger.record(entry(batch, 10, 10, took=took), Plan(), bound=4.0)
    report = ledger.report()
    assert report.latency_worst == 5.0
    # The oldest row of each batch waited for a second, the newest not at all, and both for the whole batch.
    assert report.latency_mean == pytest.approx((1.5 + 2.5 + 4.5) / 3)
    assert report.latency_p99 == pytest.approx(4.97, rel=0.04)
    assert report.over_bound == 1


def test_dry_run_counts_what_would_have_gone() -> None:
    ledger = Ledger()
    plan = Plan(mode=Mode.DRY_RUN, wanted=(Drop("s", 0.25),))
    ledger.record(entry(0, 1000, 1000), plan, bound=4.0)
    assert ledger.report().would_shed == 750
    assert ledger.report().shed == 0


def test_a_query_that_is_counted_from_the_middle_on_missed_nothing() -> None:
    ledger = Ledger()
    ledger.open("id-1", "clicks", committed=9_999)
    ledger.record(replace(entry(10_000, 10, 5), query="id-1"), Plan(), bound=4.0)
    assert ledger.report().unseen == 0
    assert set(ledger.report().by_query) == {"clicks"}
    # Another one of that name, later: both are told apart.
    ledger.open("id-2", "clicks")
    ledger.record(replace(entry(0, 10, 5), query="id-2"), Plan(), bound=4.0)
    assert set(ledger.report().by_query) == {"clicks (id-1)", "clicks (id-2)"}


def test_what_plans_took_what_the_budget_cut_and_what_expired_are_counted_apart() -> None:
    ledger = Ledger()
    ledger.record(replace(entry(0, 100, 40), cut=25, expired=10), Plan(), bound=4.0)
    ledger.record(replace(entry(1, 50, 50), cut=0), Plan(), bound=4.0)
    report = ledger.report()
    assert (report.shed, report.thinned, report.cut, report.expired) == (60, 25, 25, 10)
    after = Ledger()
    after.restore("q", ledger.totals("q"))
    assert after.report() == report
    told = report.as_dict()
    assert told["shed"] == told["thinned"] + told["cut"] + told["expired"]


def test_what_enforcing_would_have_shed_is_what_the_controller_says_if_it_says() -> None:
    plan = Plan(wanted=(Drop("s", 0.5),), mode=Mode.DRY_RUN)
    ledger = Ledger()
    ledger.record(entry(0, 100, 100), plan, bound=4.0)
    assert ledger.report().would_shed == 50
    ledger.record(entry(1, 100, 100), plan, bound=4.0, would_shed=70)
    assert ledger.report().would_shed == 120
