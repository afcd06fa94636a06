"""One report: it adds up, it is shown, and it is read back, also from the books of the version before."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import streamshed as ss
from streamshed.quality import Ledger, Report
from streamshed.quality.latency_histogram import LatencyHistogram
from streamshed.quality.report import OutputCounts
from streamshed.quality.row_counts import RowCounts, by_source, would_drop
from streamshed.quality.saved_report import BROKEN, as_saved, from_saved

few = st.integers(0, 100)


@st.composite
def row_counts(draw: st.DrawFn) -> RowCounts:
    cut, expired, thinned, failed, kept = (draw(few) for _ in range(5))
    shed = cut + expired + thinned
    return RowCounts(shed + failed + kept, shed, failed, cut=cut, expired=expired)


@st.composite
def reports(draw: st.DrawFn, network: bool | None = None) -> Report:
    latencies = LatencyHistogram.of(np.array(draw(st.lists(st.integers(0, 9).map(float), max_size=5))))
    told = {name: draw(few) for name in ("batches", "unseen", "over_bound", "misdated")}
    told |= {"latency_last": float(draw(few)), "work_sum": float(draw(few))}
    if draw(st.booleans()) if network is None else network:
        arrived = draw(st.dictionaries(st.sampled_from("st"), few, min_size=1))
        arcs = draw(st.dictionaries(st.sampled_from(["s->f", "s->g", "t->g", "f->o", "g->p"]), row_counts()))
        outputs = draw(st.dictionaries(st.sampled_from("op"), st.builds(OutputCounts, few, few.map(float))))
        return Report.of_network(arrived, arcs, latencies=latencies, by_output=outputs, **told)
    kept, thinned, cut, expired, failed = (draw(few) for _ in range(5))
    rows = {"arrived": kept + thinned + cut + expired + failed, "kept": kept, "failed": failed}
    rows |= {"cut": cut, "expired": expired, "would_shed": draw(few)}
    return Report(**rows, latencies=latencies, queuing=latencies, **told)


@given(reports(network=False), reports(network=False), reports(network=False))
def test_reports_of_streams_add_up_in_any_order(a: Report, b: Report, c: Report) -> None:
    assert a.plus(b) == b.plus(a)
    assert a.plus(b).plus(c) == a.plus(b.plus(c))
    assert a.plus(Report()) == a


@given(reports(network=True), reports(network=True), reports(network=True))
def test_reports_of_networks_add_up_in_any_order(a: Report, b: Report, c: Report) -> None:
    assert a.plus(b) == b.plus(a)
    assert a.plus(b).plus(c) == a.plus(b.plus(c))
    assert a.plus(Report()) == a


@given(st.dictionaries(st.sampled_from("abc"), reports()))
def test_what_arrived_was_kept_or_shed_or_failed(by_query: dict[str, Report]) -> None:
    whole = Report.of_readers(by_query)
    for report in (whole, *by_query.values(), *whole.by_source.values(), *whole.by_arc.values()):
        assert report.arrived == report.kept + report.shed + report.failed
        assert min(report.kept, report.shed, report.failed) >= 0


@given(reports())
def test_it_survives_being_saved(report: Report) -> None:
    assert from_saved(json.loads(json.dumps(as_saved(report)))) == report


@given(reports())
def test_the_same_keys_for_all(report: Report) -> None:
    assert report.as_dict().keys() == Report().as_dict().keys()
    assert json.loads(report.to_json())["arrived"] == report.arrived


def test_readers_of_one_stream_count_its_rows_once_and_their_batches_all() -> None:
    quick, slow = Report(arrived=100, kept=60, batches=5), Report(arrived=80, kept=80, batches=4, unseen=1)
    whole = Report.of_readers({"quick": quick, "slow": slow})
    assert (whole.arrived, whole.kept, whole.shed) == (100, 60, 40)
    assert (whole.batches, whole.unseen) == (9, 1)
    assert whole.by_query == {"quick": quick, "slow": slow}


def test_what_was_shed_on_an_arc_is_one_querys_truth() -> None:
    """One query has seen more batches than the other, and dropped more."""
    far = Report.of_network({"s": 100}, {"s->f": RowCounts(100, shed=80)}, unseen=1)
    behind = Report.of_network({"s": 80}, {"s->f": RowCounts(80, shed=10), "s->g": RowCounts(80, shed=75)})
    for order in ({"a": far, "b": behind}, {"b": behind, "a": far}):
        report = Report.of_readers(order)
        assert report.arrived == report.by_source["s"].arrived == 100
        assert {name: rows.shed for name, rows in report.by_arc.items()} == {"s->f": 80, "s->g": 75}
        assert report.shed == round(80 / 2 + 75 / 2)
        assert report.unseen == 1


def test_along_one_way_shed_is_the_number_of_rows_dropped() -> None:
    arcs = {"s->f": RowCounts(100, shed=30), "f->m": RowCounts(50, shed=20), "m->o": RowCounts(30, shed=5)}
    assert by_source({"s": 100}, arcs)["s"].shed == 55


def test_a_box_that_makes_rows_does_not_make_them_worth_more() -> None:
    arcs = {"s->j": RowCounts(10), "t->j": RowCounts(10), "j->o": RowCounts(1000, shed=1000)}
    found = by_source({"s": 10, "t": 10}, arcs)
    assert [rows.shed for rows in found.values()] == [10, 10]


def test_rows_that_a_load_aware_box_failed_on() -> None:
    report = Report.of_network({"s": 10}, {"s->u": RowCounts(10, shed=3, failed=2), "u->o": RowCounts(5)})
    assert (report.kept, report.shed, report.failed) == (5, 3, 2)


def test_a_row_that_would_be_dropped_early_is_not_dropped_again() -> None:
    arcs = {"s->f": RowCounts(100), "f->o": RowCounts(40), "f->p": RowCounts(40)}
    found = would_drop({"s": 100}, arcs, {"s->f": 0.5, "f->o": 0.0, "elsewhere": 0.0})
    assert found == {"s->f": 50.0, "f->o": 20.0}


def test_old_names_work_with_a_warning() -> None:
    report = Report.of_network(
        {"s": 5}, {"s->o": RowCounts(5, shed=1)}, by_output={"o": OutputCounts(4, 5.0)},
        latencies=LatencyHistogram.uniform(1.0, 2.0, 4),
    )  # fmt: skip
    for name, value in {
        "latency_max": 2.0, "reached": {"s->o": 5}, "passed": {"s->o": 4}, "delivered": {"o": 4},
        "expected": {"o": 5.0}, "percent": {"o": 80.0}, "queue_sum": 0.0,
    }.items():  # fmt: skip
        with pytest.warns(DeprecationWarning, match=name):
            assert getattr(report, name) == value
    with pytest.warns(DeprecationWarning, match="as_dict"):
        assert report.as_json() == report.as_dict()
    with pytest.warns(DeprecationWarning, match="Report"):
        assert ss.QualityReport is Report
    with pytest.warns(DeprecationWarning, match="Report"):
        from streamshed.records import QualityReport
    assert QualityReport is Report is ss.Report


def test_it_is_shown_as_text_and_as_html_whatever_names_are_in_it() -> None:
    name = "<b>[red]o"
    report = Report.of_network(
        {"s": 5000}, {"s->o": RowCounts(5000, shed=1000)}, by_output={name: OutputCounts(4000, 5000.0, 0.8125)},
        latencies=LatencyHistogram.uniform(1.0, 1.0, 4000), batches=3,
    )  # fmt: skip
    html = report._repr_html_()
    assert "&lt;b&gt;[red]o" in html
    assert "<b>" not in html
    console = Console(width=160, file=io.StringIO())
    console.print(report)
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert name in told
    for text in (html, told):
        for shown in ("5,000", "1,000", "1.00 s", "0.812", "80.0"):
            assert shown in text


def test_books_of_the_version_before_are_read() -> None:
    ledger = Ledger()
    former = {"arrived": 30, "kept": 20, "would_shed": 1, "batches": 3, "unseen": 1, "latency_mean": 1.5}
    ledger.restore("q", {"last_batch": 7, **former, "latency_max": 2.5, "over_bound": 2, "who": "knows"})
    report = ledger.report()
    assert (report.arrived, report.shed, report.would_shed, report.batches) == (30, 10, 1, 3)
    assert (report.unseen, report.over_bound, report.latency_worst) == (1, 2, 2.5)

    network = {
        "last_batch": 3, "batches": 2, "arrived": {"s": 100}, "reached": {"s->f": 100}, "passed": {"s->f": 20},
        "delivered": {"o": 9}, "latency_mean": 0.5, "latency_max": 0.75, "over_bound": 1, "latency_last": 0.25,
        "expected": {"o": 50.0}, "unseen": 4,
    }  # fmt: skip
    report = from_saved(network)
    assert (report.arrived, report.kept, report.shed, report.by_arc["s->f"].shed) == (100, 20, 80, 80)
    assert (report.by_output["o"].percent, report.latency_worst, report.latency_last) == (18.0, 0.75, 0.25)
    assert (report.batches, report.over_bound, report.unseen) == (2, 1, 4)

    load_aware = {
        "batches": 4, "arrived": 50, "kept": 40, "shed": 8, "failed": 2, "would_shed": 9, "misdated": 3, "ran": 42,
        "queue_sum": 84.0, "queue_worst": 5.0, "work_sum": 4.2, "unseen": 1,
    }  # fmt: skip
    report = from_saved(load_aware)
    assert (report.arrived, report.kept, report.shed, report.failed, report.would_shed) == (50, 40, 8, 2, 1)
    assert (report.misdated, report.ran, report.queue_mean, report.queue_worst) == (3, 42, 2.0, 5.0)
    assert report.cost_mean == pytest.approx(0.1)


@pytest.mark.parametrize(
    "broken",
    [[], {"arrived": "x"}, {"arrived": True}, {"arrived": {"s": "x"}}, {"by_arc": 3, "by_source": {"s": 1}},
     {"latencies": 3}, {"queue_sum": None}, {"batches": {}}],
)  # fmt: skip
def test_books_that_are_broken_are_known_as_such(broken: object) -> None:
    with pytest.raises(BROKEN):
        from_saved(broken)  # type: ignore[arg-type]


def test_totals_and_percentiles_go_on_after_a_restart() -> None:
    before = Ledger()
    report = Report(arrived=10, kept=10, batches=1, latencies=LatencyHistogram.uniform(1.0, 2.0, 10))
    before.enter("q", 0, report)
    after = Ledger()
    after.restore("q", json.loads(json.dumps(before.totals("q"))))
    assert after.of("q") == report
    assert not after.enter("q", 0, report)
    after.miss("q", 1)
    after.enter("q", 3, replace(report, latency_last=1.0))
    assert (after.of("q").arrived, after.of("q").unseen, after.of("q").latency_last) == (20, 2, 1.0)


@given(st.dictionaries(st.sampled_from("abc"), reports()))
def test_what_was_shed_was_thinned_or_cut_or_had_expired(by_query: dict[str, Report]) -> None:
    whole = Report.of_readers(by_query)
    for report in (whole, *by_query.values()):
        assert report.shed == report.thinned + report.cut + report.expired
        assert min(report.thinned, report.cut, report.expired) >= 0
        for rows in (*report.by_source.values(), *report.by_arc.values()):
            assert rows.shed == rows.thinned + rows.cut + rows.expired
            assert min(rows.thinned, rows.cut, rows.expired) >= 0


def test_the_table_tells_them_apart_where_there_is_something_to_tell() -> None:
    told = Report(arrived=100, kept=40, cut=30, expired=20)._repr_html_()
    assert "<th>by plan</th><th>by budget</th><th>expired</th>" in told
    assert "<td>all</td><td>10</td><td>30</td><td>20</td>" in told
    assert "by budget" not in Report(arrived=100, kept=40)._repr_html_()
