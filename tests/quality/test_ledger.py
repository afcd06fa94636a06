"""The ledger adds up, once each."""

from dataclasses import replace

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
    assert report.latency_max == 5.0
    assert report.latency_mean == (2.0 + 3.0 + 5.0) / 3
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
