"""The time budget of a batch on a real Spark: what it cuts, what it spares, and that all of it is counted."""

from __future__ import annotations

import json
import math
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.spark.drop_in.shedder import Shedder
from streamshed.spark.orders.batch_clock import BatchClock, BatchLimits
from streamshed.spark.watch.clock_skew import ClockSkew
from tests.spark.helpers import expected_ids, fill, ids, in_force, put_rows, run_all, stream, wait_for

pytestmark = pytest.mark.spark
ROWS = 2000
NOW = "1 ms"  # a budget that is used up before the first row comes


def budgeted(events: DataFrame, **settings: object) -> tuple[DataFrame, Shedder]:
    kept = ss.shed(events, "1 hour", salt="test", **settings)  # type: ignore[arg-type]
    return kept, ss.shedder(kept)


def assert_identity(handle: Shedder) -> None:
    """Every row is kept, or counted as shed for one reason."""
    for entry in handle.ledger.recent:
        sample = entry.sample
        assert min(sample.kept, sample.cut, sample.expired) >= 0
        assert sample.arrived >= sample.kept + sample.cut + sample.expired


def total(handle: Shedder, what: str) -> int:
    return sum(getattr(entry.sample, what) for entry in handle.ledger.recent)


def test_what_comes_after_the_budget_is_cut_and_counted(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept, handle = budgeted(stream(spark, source), floor=0.0)
    handle.pin(1.0, budget=NOW)
    rows = run_all(kept, tmp_path / "state", "cut_all")
    assert rows == []
    assert (handle.report().arrived, handle.report().kept) == (ROWS, 0)
    assert total(handle, "cut") == ROWS
    assert_identity(handle)


def test_a_budget_that_is_long_enough_cuts_nothing(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept, handle = budgeted(stream(spark, source))
    handle.pin(1.0, budget="1 hour")
    assert ids(run_all(kept, tmp_path / "state", "cut_nothing")) == set(range(ROWS))
    assert (total(handle, "arrived"), total(handle, "kept"), total(handle, "cut")) == (ROWS, ROWS, 0)


def test_protected_rows_pass_at_any_time(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept, handle = budgeted(stream(spark, source), protect="priority = 'high'", floor=0.0)
    handle.pin(1.0, budget=NOW)
    assert ids(run_all(kept, tmp_path / "state", "cut_protected")) == set(range(0, ROWS, 10))
    assert total(handle, "cut") == ROWS - ROWS // 10


def test_the_first_rows_of_a_task_pass_whatever_the_clock_says(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, files=4)
    kept, handle = budgeted(stream(spark, source), floor=0.0)
    handle.pin(1.0, budget=NOW, grace=7)
    rows = run_all(kept, tmp_path / "state", "cut_grace")
    # A file is a batch of one task here. Later batches have cheap rows, and look at the clock more rarely.
    first = [row for row in rows if row["id"] < ROWS // 4]  # type: ignore[operator]
    assert ids(first) == set(range(7))
    assert all(7 <= entry.sample.kept <= 64 for entry in handle.ledger.recent)
    assert_identity(handle)


def test_the_floor_holds_for_the_budget_too(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept, handle = budgeted(stream(spark, source), floor=0.3)
    handle.pin(1.0, budget=NOW)
    rows = run_all(kept, tmp_path / "state", "cut_floor")
    assert len(rows) == round(0.3 * ROWS)


def test_plans_have_a_floor_by_default_and_a_used_up_budget_has_none(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source)
    kept, handle = budgeted(stream(spark, source))
    assert handle.floor > 0.0
    handle.pin(1.0, budget=NOW)
    assert run_all(kept, tmp_path / "before", "cut_default") == []
    handle.floor = 0.3
    assert len(run_all(kept, tmp_path / "after", "cut_given")) == round(0.3 * ROWS)


def test_drops_by_plan_and_by_budget_are_told_apart(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    chosen = expected_ids(spark, source, 0.4, "user")
    kept, handle = budgeted(stream(spark, source), key="user", floor=0.0)
    handle.pin(0.4, budget=NOW, grace=10)
    rows = run_all(kept, tmp_path / "state", "cut_and_shed")
    assert ids(rows) < chosen
    assert total(handle, "arrived") == ROWS
    assert total(handle, "kept") == len(rows)
    assert total(handle, "cut") == len(chosen) - len(rows)


@pytest.mark.parametrize("mode", ["dry-run", "off"])
def test_nothing_is_cut_unless_the_mode_is_to_enforce(
    spark: SparkSession, source: Path, tmp_path: Path, mode: str
) -> None:
    fill(source)
    kept, handle = budgeted(stream(spark, source), mode=mode)
    handle.pin(1.0, budget=NOW)
    assert len(run_all(kept, tmp_path / "state", f"cut_{mode[:3]}")) == ROWS
    assert total(handle, "cut") == 0


def test_without_a_budget_only_plans_drop(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept, handle = budgeted(stream(spark, source), budget=False)
    handle.pin(1.0, budget=NOW)
    assert len(run_all(kept, tmp_path / "state", "cut_false")) == ROWS


def test_in_the_middle_of_a_batch_the_clock_runs_out(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source, files=1)
    # About 5 ms a row: the whole batch would take some 10 s.
    slow = F.expr("reflect('java.lang.Thread', 'sleep', 5L)")
    kept, handle = budgeted(stream(spark, source), floor=0.0)
    handle.pin(1.0, budget="2 seconds")
    out = kept.select("id", slow.alias("slept"))
    rows = run_all(out, tmp_path / "state", "cut_middle")
    cut = total(handle, "cut")
    assert 0 < cut < ROWS
    assert total(handle, "kept") == len(rows) == ROWS - cut
    (entry,) = [entry for entry in handle.ledger.recent if entry.sample.arrived]
    assert ids(rows) == set(range(len(rows)))
    assert 0 < entry.sample.tail < entry.sample.duration
    assert entry.sample.tasks == 1


def test_nothing_is_compiled_anew_from_batch_to_batch(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    codegen = getattr(spark._jvm.org.apache.spark.metrics.source, "CodegenMetrics$")  # type: ignore[union-attr]
    compiled = getattr(codegen, "MODULE$").METRIC_COMPILATION_TIME()
    fill(source, files=12)
    kept, handle = budgeted(stream(spark, source), arrived="at", expired="drop")
    handle.pin(1.0, budget="1 hour")
    counts = []

    def note(rows: DataFrame, number: int) -> None:
        rows.agg(F.max("id")).collect()
        counts.append(compiled.getCount())

    query = kept.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert len(counts) == 12
    assert counts[-1] == counts[5], counts


# What is too old.


def aged(spark: SparkSession, source: Path, ages: list[float]) -> DataFrame:
    """Rows that arrived so many seconds before now; None: nobody knows when."""
    now = time.time()
    lines = [
        json.dumps({"id": i, "priority": "high" if i % 10 == 0 else "low", "at": _stamp(now - age)})
        for i, age in enumerate(ages)
    ]
    (source / "rows.json").write_text("\n".join(lines) + "\n")
    return stream(spark, source)


def _stamp(moment: float) -> str | None:
    return None if math.isnan(moment) else datetime.fromtimestamp(moment, timezone.utc).isoformat()


def test_rows_older_than_the_bound_are_dropped_first_if_asked(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    # Old ones, young ones, one from the future and one of which nobody knows; of the old, some are protected.
    ages = [7200.0] * 100 + [60.0] * 100 + [-7200.0, math.nan]
    settings = {"arrived": "at", "expired": "drop", "protect": "priority = 'high'"}
    kept, handle = budgeted(aged(spark, source, ages), **settings)
    rows = run_all(kept, tmp_path / "state", "expired_drop")
    assert ids(rows) == {*range(0, 100, 10), *range(100, 202)}
    report = handle.report()
    assert (report.arrived, report.kept, report.expired, report.cut, report.thinned) == (202, 112, 90, 0, 0)


@pytest.mark.parametrize("mode", ["keep", "dry-run", "set"])
def test_rows_that_are_old_are_rows_like_others_unless_asked(
    spark: SparkSession, source: Path, tmp_path: Path, mode: str
) -> None:
    settings = {"expired": "keep"} if mode == "keep" else {"expired": "drop", "mode": "dry-run"}
    if mode == "set":
        settings = {"expired": "drop"}
    kept, handle = budgeted(aged(spark, source, [7200.0] * 50), arrived="at", **settings)
    if mode == "set":
        handle.expired = "keep"
    assert len(run_all(kept, tmp_path / "state", f"expired_{mode[:3]}")) == 50
    assert handle.report().expired == 0


def test_all_reasons_at_once_add_up(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    kept, handle = budgeted(
        aged(spark, source, [7200.0, 60.0] * 500), arrived="at", expired="drop", key="id", floor=0.0
    )
    handle.pin(0.5, budget=NOW, grace=20)
    rows = run_all(kept, tmp_path / "state", "all_reasons")
    report = handle.report()
    assert (report.arrived, report.expired, report.kept) == (1000, 500, len(rows))
    assert 150 < report.thinned < 350
    assert report.kept + report.cut + report.thinned == 500
    assert min(report.kept, report.cut) > 0


# Who may say so.


def test_what_is_too_long_or_cannot_be_told_is_refused(spark: SparkSession, source: Path) -> None:
    events = stream(spark, source)
    for settings, problem in (
        ({"budget": "5 seconds"}, "longer than the bound"),
        ({"expired": "drop"}, "none is named"),
        ({"expired": "maybe"}, "no such way"),
        ({"max_shed": 1.5}, "max_shed must be a share"),
        ({"budget": "soon"}, "budget must be a length of time"),
    ):
        with pytest.raises(ss.InvalidArgument, match=problem):
            ss.shed(events, "4 seconds", **settings)  # type: ignore[arg-type]
    with ss.shedder(ss.shed(events, "4 seconds", budget="2 seconds")) as handle:
        assert handle.budget == 2.0
        with pytest.raises(ss.InvalidArgument, match="longer than the bound"):
            handle.latency = "1 second"
        with pytest.raises(ss.InvalidArgument, match="none is named"):
            handle.expired = "drop"
        handle.configure(budget=False, max_shed=0.4)
        assert (handle.budget, handle.max_shed) == (False, 0.4)


def test_the_first_batch_has_a_budget_before_anything_is_known(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept, handle = budgeted(stream(spark, source))
    assert handle.plan.budget is not None
    fill(source, files=1)
    query = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "s")).start()
    try:
        query.processAllAvailable()
        plan = query._jsq.streamingQuery().lastExecution().executedPlan().toString()  # type: ignore[attr-defined]
        assert "getAsBoolean" in plan
    finally:
        query.stop()


def test_a_query_that_only_drains_is_not_cut_unless_somebody_said_so(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, files=1)
    for name, settings, cut in (("drains", {}, False), ("asked", {"budget": NOW}, True)):
        kept = ss.shed(stream(spark, source), "4 seconds", floor=0.0, **settings)  # type: ignore[arg-type]
        slow = kept.where("reflect('java.lang.Thread', 'sleep', 1L) = 'null'")
        rows = run_all(slow, tmp_path / name, f"draining_{name}")
        assert (ss.shedder(kept).report().cut > 0) == cut
        assert (len(rows) < ROWS) == cut


@pytest.mark.complains
def test_executors_whose_clocks_are_wrong_mean_no_budget(
    spark: SparkSession,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clocks = ClockSkew.of(spark)
    monkeypatch.setattr(clocks, "seconds", 500.0)
    monkeypatch.setattr(clocks, "_warned", False)
    fill(source)
    kept, handle = budgeted(stream(spark, source))
    handle.pin(1.0, budget=NOW)
    assert len(run_all(kept, tmp_path / "state", "skewed")) == ROWS
    assert "500.0 s off the driver's" in caplog.text


def test_a_line_that_nobody_renews_ends(spark: SparkSession) -> None:
    clock = BatchClock(spark)
    rows = spark.range(0, 100, 1, 1)
    limits = BatchLimits(budget=0.0)
    clock.set(limits, until=time.time() + 3600)
    assert rows.where(clock.in_time()).count() == 0
    clock.set(limits, until=time.time() - 1)
    assert rows.where(clock.in_time()).count() == 100


def test_a_batch_that_is_over_soon_has_no_clock_and_a_large_one_has(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    """What Spark gives a batch is known when it is planned."""
    kept, handle = budgeted(stream(spark, source), floor=0.0)
    handle.pin(1.0, budget="2 minutes")
    query = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state")).start()

    def has_clock(rows: int) -> bool:
        arrived = handle.report().arrived
        put_rows(source, arrived, rows)
        query.processAllAvailable()
        wait_for(lambda: handle.report().arrived == arrived + rows)
        execution = query._jsq.streamingQuery().lastExecution()  # type: ignore[attr-defined]
        return "decrementAndGet" in execution.executedPlan().toString()

    try:
        assert [has_clock(10) for _ in range(3)] == [True, False, False], "of the first one nothing is known"
        assert has_clock(30_000)
        handle.pin(1.0, budget=NOW)
        in_force(handle)
        assert has_clock(10), "this budget is not a long one"
        assert (total(handle, "cut"), total(handle, "kept")) == (10, 30_030)
    finally:
        query.stop()


@pytest.mark.parametrize(("grace", "stride", "first"), [(0, 1, 0), (100, 1, 100), (100, 8, 104), (128, 64, 128)])
def test_each_task_lets_its_part_of_the_grace_pass_up_to_the_next_look_and_then_the_floor(
    spark: SparkSession, grace: int, stride: int, first: int
) -> None:
    clock = BatchClock(spark)
    clock.set(BatchLimits(budget=0.0, grace=2 * grace, floor=0.1), until=time.time() + 3600, stride=stride)
    passed = [row.id for row in spark.range(0, 2000, 1, 2).where(clock.in_time()).collect()]
    of_a_task = [*range(first), *range(first + 9 - first % 10, 1000, 10)]
    assert passed == [*of_a_task, *(1000 + number for number in of_a_task)]


@pytest.mark.parametrize("tasks", [1, 5, 50])
def test_the_grace_is_for_all_tasks_together_however_many_there_are(spark: SparkSession, tasks: int) -> None:
    clock = BatchClock(spark)
    clock.set(BatchLimits(budget=0.0, grace=100), until=time.time() + 3600)
    assert spark.range(0, 5000, 1, tasks).where(clock.in_time()).count() == 100


def test_a_clock_that_was_set_back_keeps_rows(spark: SparkSession) -> None:
    # A deadline that seems to be an hour away, since the clock was set back by that after the batch was planned.
    clock = BatchClock(spark, absolute=True)
    clock.set(BatchLimits(budget=time.time() + 3600), until=1e11)
    assert spark.range(0, 100, 1, 1).where(clock.in_time()).count() == 100


def test_thinning_makes_the_loss_even_where_the_budget_alone_favours_the_first(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    """Keep by position in the batch: the budget takes the last rows, a plan that fits takes some of each part."""
    fill(source, files=1)
    slow = "reflect('java.lang.Thread', 'sleep', 4L) = 'null'"
    spread = {}
    for name, keep, budget in (("alone", 1.0, "1 second"), ("thinned", 0.2, "1 hour")):
        kept, handle = budgeted(stream(spark, source), floor=0.0, key="id")
        handle.pin(keep, budget=budget, grace=300)
        rows = run_all(kept.where(slow), tmp_path / name, f"position_{name}")
        places = [int(str(row["id"])) * 4 // ROWS for row in rows]
        parts = [places.count(quarter) / (ROWS / 4) for quarter in range(4)]
        spread[name] = max(parts) - min(parts)
        assert (handle.report().cut > 0) == (name == "alone")
    # The whole batch takes 8 s: what comes in its last quarter comes too late.
    assert spread["alone"] > 0.5
    assert spread["thinned"] < 0.1
