"""The drop-in on a real Spark: which rows pass, what is counted, and that nothing of ours can hurt a job."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.spark.watch.plan_counts import PlanReader
from tests.spark.helpers import expected_ids, fill, ids, in_force, put_rows, run_all, stream, wait_for

pytestmark = pytest.mark.spark
ROWS = 2000


# What passes.


def test_with_nothing_to_shed_every_row_passes_and_the_schema_is_the_same(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source)
    events = stream(spark, source)
    kept = ss.shed(events, "1 hour", arrived="at", key="user", protect="priority = 'high'", floor=0.05)
    assert kept.schema == events.schema
    rows = run_all(kept, tmp_path / "state", "all_pass")
    assert ids(rows) == set(range(ROWS))
    assert len(rows) == ROWS
    report = ss.shedder(kept).report()
    assert (report.arrived, report.kept, report.shed) == (ROWS, ROWS, 0)


@pytest.mark.parametrize("key", [None, "user", "id"])
def test_the_rows_that_pass_are_those_of_the_stable_hash(
    spark: SparkSession, source: Path, tmp_path: Path, key: str | None
) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key=key, protect="priority = 'high'")
    handle = ss.shedder(kept)
    handle.pin(0.3)
    rows = run_all(kept, tmp_path / "state", f"hashed_{key}")
    assert ids(rows) == expected_ids(spark, source, 0.3, key, "priority = 'high'")
    assert handle.report().kept == len(rows)
    assert handle.report().arrived == ROWS
    # Protected rows: none shed, ever.
    assert {i for i in range(ROWS) if i % 10 == 0} <= ids(rows)


def test_a_lower_keep_keeps_a_subset_and_whole_keys(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    seen: list[set[object]] = []
    for keep in (0.2, 0.5):
        kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="user")
        ss.shedder(kept).pin(keep)
        rows = run_all(kept, tmp_path / f"state{keep}", f"subset_{int(keep * 10)}")
        by_user = Counter(row["user"] for row in rows)
        full = Counter(i % 97 for i in range(ROWS))
        assert by_user
        assert all(by_user[user] == full[user] for user in by_user)  # type: ignore[index]
        seen.append(ids(rows))
    assert seen[0] < seen[1]


def test_protected_means_true_not_unknown(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", protect="nullif(priority, 'low') = 'high'")
    ss.shedder(kept).pin(0.0)
    rows = run_all(kept, tmp_path / "state", "null_protect")
    assert ids(rows) == set(range(0, ROWS, 10))


def test_a_rotating_salt_chooses_other_keys_at_another_time(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, files=1)
    seen = []
    for turn in range(2):
        kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="user", rotate=0.5)
        ss.shedder(kept).pin(0.3)
        rows = run_all(kept, tmp_path / f"state{turn}", f"salt_{turn}")
        seen.append({row["user"] for row in rows})
        time.sleep(0.6)
    assert seen[0] != seen[1]
    assert all(0 < len(users) < 97 for users in seen)


def test_weights_add_up_to_what_arrived(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id", protect="priority = 'high'", weight="w")
    assert kept.columns == [*stream(spark, source).columns, "w"]
    ss.shedder(kept).pin(0.25)
    rows = run_all(kept, tmp_path / "state", "weights")
    weights = {row["id"]: row["w"] for row in rows}
    assert all(weights[i] == (1.0 if i % 10 == 0 else 4.0) for i in weights)  # type: ignore[operator]
    # 1,800 rows at 1 in 4: the estimate is within four standard deviations.
    assert sum(weights.values()) == pytest.approx(ROWS, abs=4 * (1800 * 0.25 * 0.75) ** 0.5 * 4)  # type: ignore[arg-type]
    assert ids(rows) == expected_ids(spark, source, 0.25, "id", "priority = 'high'")
    assert ss.shedder(kept).report().kept == len(rows)


def test_weights_are_one_while_nothing_is_shed(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", weight="w")
    rows = run_all(kept, tmp_path / "state", "weights_one")
    assert len(rows) == ROWS
    assert {row["w"] for row in rows} == {1.0}


def test_sic_is_the_share_that_was_kept_and_tells_that_of_a_result(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id", protect="priority = 'high'", sic="sic")
    assert kept.columns == [*stream(spark, source).columns, "sic"]
    ss.shedder(kept).pin(0.25)
    rows = run_all(kept, tmp_path / "state", "sic")
    assert all(row["sic"] == (1.0 if row["id"] % 10 == 0 else 0.25) for row in rows)  # type: ignore[operator]
    result = len(rows) / sum(1 / row["sic"] for row in rows)  # type: ignore[operator]
    # What an offline count says, within four standard deviations of what is kept of 1,800 rows at 1 in 4.
    assert result == pytest.approx(len(rows) / ROWS, rel=0.15)
    assert result == pytest.approx(ss.shedder(kept).report().kept_share, rel=0.15)


def test_what_is_dropped_is_not_worked_on(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """The later work raises on any row but the protected one; so does a filter that Spark could push down."""
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", protect="id = 7")
    ss.shedder(kept).pin(0.0)
    worked = kept.withColumn("n", F.expr("if(id = 7, 1, raise_error('worked on a dropped row'))")).where("n > 0")
    rows = run_all(worked, tmp_path / "state", "no_work")
    assert ids(rows) == {7}


# What follows.


def test_state_behind_it_a_window_equals_the_batch_answer_over_the_kept_rows(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", arrived="at", key="user")
    ss.shedder(kept).pin(0.4)
    counts = kept.withWatermark("at", "1 hour").groupBy(F.window("at", "10 minutes"), "user").count()
    rows = run_all(counts, tmp_path / "state", "windows", mode="complete")
    streamed = {(row["window"].start, row["user"]): row["count"] for row in rows}  # type: ignore[attr-defined]
    batch = (
        spark.read.schema(stream(spark, source).schema)
        .json(str(source))
        .where(F.col("id").isin(sorted(expected_ids(spark, source, 0.4, "user"))))
        .groupBy(F.window("at", "10 minutes"), "user")
        .count()
        .collect()
    )
    assert streamed == {(row.window.start, row.user): row["count"] for row in batch}


def test_a_join_of_two_shed_streams_keeps_whole_keys(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source, files=2)
    sheds = [
        ss.shed(stream(spark, source), "1 hour", salt="test", key="id", name=name) for name in ("left", "right")
    ]
    for kept in sheds:
        ss.shedder(kept).pin(0.5)
    left = sheds[0].select("id", F.col("at").alias("left_at"))
    right = sheds[1].select("id", F.col("at").alias("right_at"))
    joined = left.withWatermark("left_at", "1 hour").join(
        right.withWatermark("right_at", "1 hour"),
        on="id",
    )
    rows = run_all(joined, tmp_path / "state", "joined")
    # Both sides drop the same keys, so every kept row finds its partner.
    assert ids(rows) == expected_ids(spark, source, 0.5, "id")
    assert len(rows) == ss.shedder(sheds[0]).report().kept == ss.shedder(sheds[1]).report().kept


def test_several_shed_streams_in_one_query_are_told_apart(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source)
    some = ss.shed(stream(spark, source).where("id % 2 = 0"), "1 hour", salt="test", key="id", name="even")
    more = ss.shed(stream(spark, source).where("id % 2 = 1"), "1 hour", salt="test", key="id", name="odd")
    even, odd = ss.shedder(some), ss.shedder(more)
    even.pin(0.2)
    odd.pin(0.7)
    rows = run_all(some.union(more), tmp_path / "state", "both")
    for handle, rest, keep in ((even, 0, 0.2), (odd, 1, 0.7)):
        mine = {i for i in expected_ids(spark, source, keep, "id") if i % 2 == rest}
        assert {i for i in ids(rows) if i % 2 == rest} == mine  # type: ignore[operator]
        assert (handle.report().arrived, handle.report().kept) == (ROWS // 2, len(mine))


def test_one_shed_stream_feeds_several_queries(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    first = run_all(kept, tmp_path / "one", "query_one")
    second = run_all(kept.groupBy("user").count(), tmp_path / "two", "query_two", mode="complete")
    assert ids(first) == expected_ids(spark, source, 0.5, "id")
    assert sum(row["count"] for row in second) == len(first)  # type: ignore[misc]
    by_query = handle.report().by_query
    assert sorted(r.kept for r in by_query.values()) == [len(first)] * 2


def test_a_query_without_a_shed_stream_is_left_alone(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    handle = ss.shedder(ss.shed(stream(spark, source), "1 hour", salt="test"))
    assert len(run_all(stream(spark, source), tmp_path / "state", "plain")) == ROWS
    assert handle.report().batches == 0


def test_every_batch_adds_up(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source, files=8)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    rows = run_all(kept, tmp_path / "state", "adds_up")
    entries = list(handle.ledger.recent)
    assert [e.sample.batch for e in entries] == list(range(8))
    assert all(e.sample.arrived == ROWS // 8 for e in entries)
    assert sum(e.sample.kept for e in entries) == len(rows)
    assert all(e.sample.keep == 0.5 for e in entries)
    assert handle.report().unseen == 0


def test_counts_are_right_behind_a_foreach_batch_sink(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    seen: dict[int, int] = {}
    query = (
        kept.writeStream.foreachBatch(lambda rows, number: seen.update({number: rows.count()}))
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wait_for(lambda: handle.report().batches == 4)
    assert {e.sample.batch: e.sample.kept for e in handle.ledger.recent} == seen


# Control while it runs.


@pytest.mark.complains  # where a batch of nothing takes seconds, it says that dropping cannot help
def test_it_sheds_by_itself_tells_why_and_obeys_its_settings(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept = ss.shed(stream(spark, source, files=1000), "8 seconds", key="id", floor=0.05)
    handle = ss.shedder(kept)
    told: list[ss.Plan] = []
    handle.on_plan(told.append)
    handle.on_plan(lambda plan: 1 / 0)  # a broken callback is the user's own affair, and harmless
    with overloaded(kept, source, tmp_path / "s") as (query, fed):
        wait_for(lambda: handle.keep < 0.8, 180)
        assert handle.queries == [str(query.id)]
        assert any("the bound allows" in plan.reason and plan.keep < 0.8 for plan in told)
        wait_for(lambda: handle.report().shed > 0, 180)
        handle.mode = "dry-run"
        assert handle.keep == 1.0
        would_before = handle.report().would_shed
        wait_for(lambda: handle.report().would_shed > would_before + 50, 180)
        handle.floor = 0.5
        handle.mode = "enforce"
        wait_for(lambda: handle.keep == 0.5, 180)
        handle.mode = "off"
        assert handle.keep == 1.0
        assert handle.plan.wanted == ()
        handle.configure(mode="enforce", latency="1 hour")
        # A batch that shows it may take minutes: while nothing is dropped, each is longer than the last.
        wait_for(lambda: not handle.plan.drops and handle.keep == 1.0, 180)
    assert handle.settle()
    assert handle.queries == []
    assert 0 < handle.report().arrived <= fed()


@pytest.mark.complains
def test_a_replayed_log_of_samples_gives_the_plans_of_the_run(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    from streamshed.loop.arbiter import Limits
    from streamshed.loop.controller import Controller
    from streamshed.policies import RandomShedding

    kept = ss.shed(stream(spark, source, files=1000), "8 seconds", key="id", floor=0.1, name="replayed")
    handle = ss.shedder(kept)
    plans: list[ss.Plan] = []
    handle.on_plan(plans.append)
    with overloaded(kept, source, tmp_path / "s"):
        wait_for(lambda: any(plan.drops for plan in plans), 180)
        # An overload that stays as it is needs no second plan, so it grows.
        more = itertools.count(1_000_000, 200)

        def planned_again() -> bool:
            put_rows(source, next(more), 200)
            time.sleep(0.1)
            return sum(bool(plan.drops) for plan in plans) >= 2

        wait_for(planned_again, 180)
    assert handle.settle()
    again = Controller(RandomShedding("replayed"), latency=8.0, limits=Limits(floor=0.1))
    replayed = [again.observe(sample) for sample in handle.samples]
    # A callback hears of what is news, and a batch's time is not; nor is a plan that could not be stored in time.
    told = [(plan.drops, plan.reason) for plan in plans if plan.drops]
    made = iter([(plan.drops, plan.reason) for plan in replayed if plan.drops])
    assert all(plan in made for plan in told), "every plan of the run, in the same order"


@contextmanager
def overloaded(
    kept: DataFrame, source: Path, checkpoint: Path
) -> Iterator[tuple[StreamingQuery, Callable[[], int]]]:
    """A query on five times what it can do, on any machine: a row takes 10 ms of one of its two slots, asleep."""
    asleep = kept.where("reflect('java.lang.Thread', 'sleep', 10L) IS NULL")
    query = asleep.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    over = threading.Event()
    fed = itertools.count(0, 100)

    def feed() -> None:
        for number in itertools.count():
            if over.wait(0.8 if number < 8 else 0.16):
                return
            put_rows(source, next(fed), 100)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield query, lambda: next(fed)
    finally:
        over.set()
        feeder.join()
        query.stop()


def test_measured_latency_is_from_the_arrival_column(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    oldest = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
    reckoned = ss.shed(stream(spark, source), "1 hour", salt="test", arrived="at")
    measured = ss.shed(stream(spark, source), "1 hour", salt="test", arrived="at", measure=True)
    begun = time.time()
    for kept in (reckoned, measured):
        run_all(kept.select("id"), tmp_path / str(id(kept)), f"measured{id(kept)}")
    assert ss.shedder(reckoned).report().latency_worst < time.time() - begun + 1.0
    assert begun - oldest < ss.shedder(measured).report().latency_worst < time.time() - oldest + 1.0


# Failing open.


@pytest.mark.complains
def test_a_control_file_that_vanishes_keeps_rows(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id", state=str(tmp_path / "control"))
    handle = ss.shedder(kept)
    handle.pin(0.0)
    Path(handle.control_path.removeprefix("file:")).unlink()
    assert len(run_all(kept.select("id"), tmp_path / "state", "vanished")) == ROWS


@pytest.mark.complains
def test_a_control_file_that_vanishes_while_running_keeps_rows_from_the_next_batch_on(
    spark: SparkSession, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id", state=str(tmp_path / "control"))
    handle = ss.shedder(kept)
    handle.pin(0.0)
    in_force(handle)
    query = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "s")).start()
    try:
        put_rows(source, 0, 100)
        query.processAllAvailable()
        wait_for(lambda: handle.report().arrived == 100)
        assert handle.report().kept == 0
        Path(handle.control_path.removeprefix("file:")).unlink()
        put_rows(source, 100, 100)  # dropped as well: the file is looked at after each batch
        query.processAllAvailable()
        wait_for(lambda: "changed or removed" in caplog.text)
        put_rows(source, 200, 100)
        query.processAllAvailable()
        wait_for(lambda: handle.report().arrived == 300)
        assert handle.report().kept == 100
    finally:
        query.stop()


@pytest.mark.complains
def test_a_control_file_that_is_garbage_keeps_rows(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id", state=str(tmp_path / "control"))
    handle = ss.shedder(kept)
    handle.pin(0.0)
    Path(handle.control_path.removeprefix("file:")).write_text("{ this is not a plan")
    assert len(run_all(kept.select("id"), tmp_path / "state", "garbage")) == ROWS


@pytest.mark.complains
def test_an_error_of_ours_keeps_rows_and_the_job(
    spark: SparkSession,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id")
    handle = ss.shedder(kept)
    handle.pin(0.0)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("counting is broken")

    monkeypatch.setattr(PlanReader, "read", broken)
    query = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "s")).start()
    try:
        with caplog.at_level(logging.WARNING, logger="streamshed"):
            put_rows(source, 0, 100)
            query.processAllAvailable()
            wait_for(lambda: "counting is broken" in caplog.text)
            wait_for(lambda: handle.keep == 1.0)
        put_rows(source, 100, 100)
        query.processAllAvailable()
        assert query.isActive
        assert query.exception() is None
    finally:
        query.stop()
    assert "rows are all kept" in caplog.text


def test_a_controller_that_died_is_outlived_by_its_plan_only_for_its_lease(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, files=2)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id")
    handle = ss.shedder(kept)
    # What a controller leaves that dies right after publishing.
    span = handle._control.publish(0.0, 0.3, 1, also=lambda _: None)
    assert span is not None
    time.sleep(max(0.0, span.until / 1000 - time.time()) + 0.05)
    assert len(run_all(kept.select("id"), tmp_path / "state", "lease")) == ROWS


def test_the_control_file_stands_where_the_user_says(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", state=str(tmp_path / "here"), name="clicks")
    assert ss.shedder(kept).control_path.endswith("/here/clicks.control.json")
    assert (tmp_path / "here" / "clicks.control.json").exists()
    assert not list((tmp_path / "here").glob(".*.crc"))


def test_the_plans_are_kept_in_the_checkpoint(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source, files=2)
    kept = ss.shed(stream(spark, source), "1 hour", salt="test", key="id", name="clicks")
    ss.shedder(kept).pin(0.5)
    run_all(kept, tmp_path / "state", "beside")
    assert (tmp_path / "state" / "streamshed" / "clicks.json").exists()
