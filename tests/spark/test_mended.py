"""What a first look at a job with Spark's own settings found: each was wrong once."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.spark.orders.store import Store
from streamshed.spark.watch.plan_counts import serials_in
from streamshed.spark.watch.progress import Progress
from streamshed.spark.watch.query_watch import _sources_by_drop
from streamshed.spark.watch.session_monitor import SessionMonitor, _execution_of
from tests.spark.helpers import fill, in_force, put_rows, run_all, stream, wait_for

pytestmark = pytest.mark.spark


@contextmanager
def running(frame: DataFrame, folder: Path, mode: str = "append", **trigger: Any) -> Iterator[StreamingQuery]:
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(folder))
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query
    finally:
        query.stop()


def counted(handle: ss.Shedder, rows: int) -> None:
    wait_for(lambda: handle.report().arrived >= rows)


# Batches without rows.


def test_a_batch_without_rows_blinds_nobody(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """A watermark that moves is followed by a batch that has no rows, by Spark's default."""
    assert spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled") == "true"
    kept = ss.shed(stream(spark, source), "1 hour", key="id", salt="s")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    windows = kept.withWatermark("at", "1 second").groupBy(F.window("at", "1 second")).count()
    with running(windows, tmp_path / "s") as query:
        for number in range(3):
            put_rows(source, number * 200, 200)
            query.processAllAvailable()
        empty = [p for p in query.recentProgress if p["numInputRows"] == 0 and "addBatch" in p["durationMs"]]
        assert empty, "this test is about such batches"
        counted(handle, 600)
    report = handle.report()
    assert (report.arrived, report.unseen) == (600, 0)
    assert all(e.sample.kept <= e.sample.arrived == 200 for e in handle.ledger.recent if e.sample.arrived)
    assert 200 < report.kept < 400


def test_a_union_of_two_shed_streams_one_of_which_has_no_rows_yet(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    sheds = [ss.shed(stream(spark, folder), "1 hour", key="id") for folder in (source, tmp_path / "other")]
    first, second = map(ss.shedder, sheds)
    for handle in (first, second):
        handle.pin(0.5)
    with running(sheds[0].union(sheds[1]), tmp_path / "s") as query:
        put_rows(source, 0, 300)
        query.processAllAvailable()
        counted(first, 300)
        assert second.report().arrived == 0
        put_rows(tmp_path / "other", 0, 400)
        query.processAllAvailable()
        counted(second, 400)
        put_rows(source, 300, 100)
        put_rows(tmp_path / "other", 400, 100)
        query.processAllAvailable()
        counted(first, 400)
        counted(second, 500)
    for handle, rows in ((first, 400), (second, 500)):
        assert 0.35 * rows < handle.report().kept < 0.65 * rows


def test_the_rate_of_arrivals_is_over_the_time_since_rows_came_not_since_an_empty_batch() -> None:
    from streamshed.spark.orders.history import KEEP_ALL
    from streamshed.spark.watch.plan_counts import Counts
    from streamshed.spark.watch.progress import SampleBuilder

    def progress(batch: int, started: float, rows: int) -> Progress:
        return Progress("r", batch, started, 0.3, rows, {}, {}, True)

    builder = SampleBuilder("q", 0.0)
    samples = [
        builder.finished(progress(n, at, rows), Counts(rows, rows), KEEP_ALL, 1.0)
        for n, (at, rows) in enumerate([(0.0, 100), (0.3, 0), (1.0, 100)])
    ]
    assert samples[2].gap == pytest.approx(1.0)
    assert samples[2].waited <= 0.7


# The off switch.


@pytest.mark.complains
def test_a_removed_control_file_is_an_off_switch_until_told_otherwise(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    """Also while the controller would shed: a bound that no batch can keep."""
    kept = ss.shed(stream(spark, source), "1 ms", key="id", floor=0.1, state=str(tmp_path / "c"), name="off")
    handle = ss.shedder(kept)
    number = 0
    with running(kept, tmp_path / "s") as query:

        def feed() -> bool:
            nonlocal number
            put_rows(source, number * 50, 50)
            number += 1
            query.processAllAvailable()
            counted(handle, number * 50)
            return True

        handle.pin(0.1)
        feed()
        Path(handle.control_path.removeprefix("file:")).unlink()
        feed()
        wait_for(lambda: "control file" in handle.reason)
        before = handle.report().shed
        for _ in range(4):
            feed()
        assert handle.report().shed == before
        assert handle.keep == 1.0
        assert not (tmp_path / "c" / "off.control.json").exists(), "and it stays removed"
        assert [e.sample.keep for e in handle.ledger.recent][-3:] == [1.0] * 3, "what is learned from was in force"
        handle.pin(0.1)
        assert handle.keep == 0.1
        assert (tmp_path / "c" / "off.control.json").exists()
        in_force(handle)
        feed()
        assert handle.report().shed > before


@pytest.mark.complains
def test_an_edited_control_file_is_obeyed_until_its_plan_ends(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id", state=str(tmp_path / "c"), name="edited")
    handle = ss.shedder(kept)
    file = tmp_path / "c" / "edited.control.json"
    with running(kept, tmp_path / "s") as query:
        put_rows(source, 0, 50)
        query.processAllAvailable()
        counted(handle, 50)
        now = int(time.time() * 1000)
        file.write_text(json.dumps({"plans": [[now - 1000, now + 60_000, 0.0, 7]]}))
        put_rows(source, 50, 50)
        query.processAllAvailable()
        wait_for(lambda: handle.keep == 0.0)
        in_force(handle)
        put_rows(source, 100, 50)
        query.processAllAvailable()
        counted(handle, 150)
        assert handle.report().kept == 100
        by_hand = handle._enforcer._by_hand
        assert by_hand is not None
        handle._enforcer._by_hand = replace(by_hand, until=time.time())
        handle.renew(time.time() + 60)
        assert handle.keep == 1.0


# Dropping in vain.


@pytest.mark.complains
def test_a_trigger_longer_than_the_bound_sheds_nothing_and_says_so(
    spark: SparkSession, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = ss.shed(stream(spark, source, files=100), "1 second", key="id")
    handle = ss.shedder(kept)
    with running(kept, tmp_path / "s", processingTime="2 seconds") as query:
        for number in range(3):
            put_rows(source, number * 500, 500)
            query.processAllAvailable()
        counted(handle, 1500)
        wait_for(lambda: "cannot help" in handle.reason)
    assert handle.report().shed == 0
    assert "trigger interval of 2.0 s alone is longer than the bound of 1.0 s" in caplog.text


# Whose plan it is.


@pytest.mark.complains
def test_two_applications_with_one_control_file_do_not_carry_out_each_others_plans(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id", state=str(tmp_path / "c"), name="same")
    handle = ss.shedder(kept)
    file = Path(handle.control_path.removeprefix("file:"))
    now = int(time.time() * 1000)
    with running(kept, tmp_path / "s") as query:
        # What another application writes there.
        file.write_text(
            json.dumps({"owner": "somebody", "streamshed": 1, "plans": [[now - 1, now + 10**6, 0.0, 9]]})
        )
        for number in range(3):
            put_rows(source, number * 50, 50)
            query.processAllAvailable()
            counted(handle, 50 * (number + 1))
    assert handle.report().shed == 0
    assert handle.control_path != f"file:{file}"
    assert "somebody" in file.read_text(), "theirs is left to them"


def test_applications_with_one_checkpoint_location_have_files_of_their_own(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        handles = [ss.shedder(ss.shed(stream(spark, source), "1 hour", name="twin")) for _ in range(2)]
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    paths = [handle.control_path for handle in handles]
    assert len(set(paths)) == 2
    assert all(spark.sparkContext.applicationId in path for path in paths)
    for handle in handles:
        handle.close()
    assert not list(tmp_path.rglob("*.control.json"))


def test_two_streams_of_one_name_in_one_query_have_books_of_their_own(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, 1, 100)
    twins = [ss.shed(stream(spark, source), "1 hour", name="twin") for _ in range(2)]
    ss.shedder(twins[0]).pin(0.0)
    assert len(run_all(twins[0].union(twins[1]), tmp_path / "state", "twins")) == 100
    states = {f.name: json.loads(f.read_text()) for f in (tmp_path / "state" / "streamshed").glob("twin*.json")}
    assert sorted(states) == ["twin-2.json", "twin.json"]
    assert sorted(handle.report().kept for handle in map(ss.shedder, twins)) == [0, 100]


def test_what_is_in_force_before_the_first_batch_is_stored_before_it(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    """A crash in the very first batch must find the plan again."""
    kept = ss.shed(stream(spark, source), "1 hour", key="id", name="first")
    ss.shedder(kept).pin(0.3)
    with running(kept, tmp_path / "s"):
        state = json.loads((tmp_path / "s" / "streamshed" / "first.json").read_text())
    assert [plan[2] for plan in state["plans"]][-1] == 0.3
    assert state["salt"] == state["plans"][-1][4]


def test_a_pinned_share_holds_from_the_first_batch_on_however_late_the_query_starts(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, 1, 100)
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    ss.shedder(kept).pin(0.0)
    handle = ss.shedder(kept)
    history = handle._control.history
    # As if its lease had long run out.
    handle._control.history = type(history)(tuple(_ended(span) for span in history.spans))
    assert run_all(kept, tmp_path / "s", "pinned_late") == []


def _ended(span: Any) -> Any:
    from dataclasses import replace

    return replace(span, start=1000, until=2000)


# Finding the handle.


def test_the_handle_is_found_after_transformations(spark: SparkSession, source: Path) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id", name="found")
    handle = ss.shedder(kept)
    for made in (
        kept.withColumn("x", F.lit(1)),
        kept.select("id"),
        kept.alias("a"),
        kept.where("id > 3").groupBy("user").count(),
    ):
        assert ss.shedder(made) is handle
    other = ss.shed(stream(spark, source), "1 hour", name="another")
    with pytest.raises(ss.InvalidArgument, match="several shed streams") as caught:
        ss.shedder(kept.union(other))
    assert "found, another" in str(caught.value)


def test_drops_are_found_in_a_plan_that_is_printed_cut(spark: SparkSession, source: Path) -> None:
    spark.conf.set("spark.sql.maxPlanStringLength", "100")
    try:
        kept = ss.shed(stream(spark, source), "1 hour")
        many = kept.select(*(F.col("id").alias(f"a_rather_long_name_{i}") for i in range(60)))
        assert ss.shedder(many) is ss.shedder(kept)
        assert serials_in(many._jdf.queryExecution().analyzed()) == [ss.shedder(kept).serial]
    finally:
        spark.conf.unset("spark.sql.maxPlanStringLength")


# Several sources, several streams, several queries.


def test_each_shed_stream_is_told_the_backlog_of_its_own_sources(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    put_rows(source, 0, 10)
    put_rows(tmp_path / "other", 0, 10)
    sheds = [ss.shed(stream(spark, folder), "1 hour") for folder in (source, tmp_path / "other")]
    with running(sheds[0].union(sheds[1]), tmp_path / "s") as query:
        query.processAllAvailable()
        found = _sources_by_drop(_execution_of(query).logicalPlan())
        named = {each["description"] for each in query.lastProgress["sources"]}
        watch = next(w for w in SessionMonitor.of(spark)._queries.values() if w.id == str(query.id))
    assert len(named) == 2
    serials = [ss.shedder(kept).serial for kept in sheds]
    assert {name for serial in serials for name in found[serial]} == named
    report = Progress("r", 0, 0.0, 0.0, 0, dict(zip(sorted(named), (100.0, 7.0), strict=True)), {}, True)
    held = [watch._backlog(stream, report) for stream in watch.streams]
    assert sorted(held) == [7.0, 100.0]


def test_shed_streams_of_one_query_share_its_time(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """Each controller is told the rows of the whole query for the time of the whole query."""
    fill(source, 2, 400)
    sheds = [ss.shed(stream(spark, source), "1 hour", key="id") for _ in range(2)]
    run_all(sheds[0].select("id").union(sheds[1].select("id")), tmp_path / "s", "shared_time")
    for handle in map(ss.shedder, sheds):
        assert [s.arrived for s in handle.samples if s.finished] == [400, 400]
        assert handle.report().arrived == 400


def test_a_query_with_a_shed_stream_of_its_own_does_not_suffer_for_another(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    events = stream(spark, source)
    hurried, archive = (ss.shed(events, "1 hour", key="id", name=name) for name in ("hurried", "archive"))
    ss.shedder(hurried).pin(0.1)
    fill(source, 1, 200)
    assert len(run_all(hurried, tmp_path / "a", "hurried")) < 100
    assert len(run_all(archive, tmp_path / "b", "archive")) == 200


def test_two_queries_on_one_stream_count_its_rows_once_and_have_names(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, 2, 200)
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    handle = ss.shedder(kept)
    versions: list[int] = []
    handle.on_plan(lambda plan: versions.append(plan.version))
    handle.pin(0.5)
    run_all(kept, tmp_path / "a", "once_a")
    handle.pin(0.4)
    run_all(kept, tmp_path / "b", "once_b")
    handle.pin(None)
    report = handle.report()
    assert report.arrived == 200
    assert set(report.by_query) == {"once_a", "once_b"}
    assert report.batches == 4
    assert versions == sorted(set(versions)), "versions only rise"


# Storage that fails.


class Broken(RuntimeError):
    pass


@pytest.mark.complains
def test_storage_that_fails_stops_neither_learning_nor_failing_open(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    handle = ss.shedder(kept)
    handle.pin(0.0)
    with running(kept, tmp_path / "s") as query:
        put_rows(source, 0, 50)
        query.processAllAvailable()
        counted(handle, 50)

        def broken(*_: object) -> None:
            raise Broken("the disk is gone")

        monkeypatch.setattr(Store, "write", broken)
        monkeypatch.setattr(Store, "read", broken)
        put_rows(source, 50, 50)
        query.processAllAvailable()
        counted(handle, 100)
        assert len([s for s in handle.samples if s.finished]) == 2, "it goes on learning"
        handle.fail_open(Broken("something"))
        assert handle.keep == 1.0
        put_rows(source, 100, 50)
        query.processAllAvailable()
        counted(handle, 150)
        assert handle.report().kept == 50
        assert query.exception() is None


@pytest.mark.complains
def test_after_failing_open_it_sheds_again_when_batches_can_be_read_again(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    handle = ss.shedder(kept)
    handle.pin(0.0)
    with running(kept, tmp_path / "s") as query:
        handle.fail_open(Broken("once"))
        handle.renew(time.time() + 1e6)
        assert handle.keep == 1.0
        put_rows(source, 0, 50)
        query.processAllAvailable()
        counted(handle, 50)
        wait_for(lambda: handle.keep == 0.0)


@pytest.mark.complains
def test_a_report_that_cannot_be_read_does_not_end_the_watch(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    monitor = SessionMonitor.of(spark)
    monitor.enqueue("progress", "", "{ this is no report")
    monitor.enqueue("progress", "", json.dumps({"runId": 3}))
    with running(kept, tmp_path / "s") as query:
        put_rows(source, 0, 50)
        query.processAllAvailable()
        counted(ss.shedder(kept), 50)
    assert monitor.alive


# Leases.


def test_a_plan_is_renewed_while_a_long_batch_runs(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """By the clock, not by looks at the batch: those become rare."""
    kept = ss.shed(stream(spark, source), "4 seconds", key="id")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    with running(kept, tmp_path / "s"):
        until = handle._control.history.spans[-1].until
        handle.renew(time.time() + 1.0)
        assert handle._control.history.spans[-1].until == until, "not yet"
        handle.renew(time.time() + 11.0)
        assert handle._control.history.spans[-1].until > until


# Books that begin in the middle.


def test_a_shedder_added_to_an_old_checkpoint_missed_nothing(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, 3, 300)
    run_all(stream(spark, source), tmp_path / "s", "before_it")
    fill(source, 2, 200, first=300)
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    query = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "s"))
    query.trigger(availableNow=True).start().awaitTermination()
    handle = ss.shedder(kept)
    counted(handle, 200)
    assert (handle.report().batches, handle.report().unseen) == (2, 0)


def test_late_news_of_a_run_that_ended_does_not_end_the_next(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    """A query that is stopped and started again at once: the monitor may hear of the end after the beginning."""
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    handle = ss.shedder(kept)
    put_rows(source, 0, 100)
    with running(kept, tmp_path / "s") as query:
        query.processAllAvailable()
        counted(handle, 100)
        before = handle._queries[str(query.id)]
    put_rows(source, 100, 100)
    with running(kept, tmp_path / "s") as query:
        handle.detach(before)
        assert handle.queries == [str(query.id)]
        query.processAllAvailable()
        counted(handle, 200)
    assert handle.samples[-1].batch > 0, "the controller still hears of it"


def test_the_books_of_a_calm_job_go_on_after_a_restart(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """Nothing was ever planned, so nothing but the end of the query has the books stored."""
    for number in range(2):
        kept = ss.shed(stream(spark, source), "1 hour", key="id")
        with ss.shedder(kept) as handle:
            put_rows(source, 100 * number, 100)
            with running(kept, tmp_path / "s") as query:
                query.processAllAvailable()
                counted(handle, 100 * (number + 1))
            wait_for(lambda shedder=handle: not shedder.queries)  # type: ignore[misc]
    assert (handle.report().batches, handle.report().unseen) == (2, 0)


# Callbacks, misspelt settings, and the end.


def test_a_callback_may_start_a_query_and_change_settings(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    handle = ss.shedder(kept)
    done = threading.Event()
    queries: list[StreamingQuery] = []

    def start(plan: ss.Plan) -> None:
        if not queries:
            queries.append(
                kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "two")).start()
            )
            handle.floor = 0.2
            done.set()

    handle.on_plan(start)
    with running(kept, tmp_path / "s"):
        helper = threading.Thread(target=handle.pin, args=(0.5,), daemon=True)
        helper.start()
        assert done.wait(30), "a second start inside the callback waits for ever"
        helper.join(30)
        queries[0].stop()
    assert handle.floor == 0.2


def test_what_is_no_setting_cannot_be_set(spark: SparkSession, source: Path) -> None:
    handle = ss.shedder(ss.shed(stream(spark, source), "1 hour"))
    for name in ("latnecy", "protect", "key"):
        with pytest.raises(AttributeError, match="mode, latency, floor"):
            setattr(handle, name, "4 seconds")
    with pytest.raises(AttributeError):
        handle.keep = 0.5  # type: ignore[misc]


def test_close_lets_go_of_everything(spark: SparkSession, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A monitor of its own: the session's has the streams of other tests.
    monkeypatch.setattr(SessionMonitor, "_by_session", type(SessionMonitor._by_session)())
    executions: Any = spark._jsparkSession.listenerManager()

    def ours() -> tuple[int, int, int]:
        threads = sum(thread.name == "streamshed" for thread in threading.enumerate())
        return threads, len(spark.streams._jsqm.listListeners()), len(executions.listListeners())

    before = ours()
    with ss.shedder(ss.shed(stream(spark, source), "1 hour", key="id")) as handle:
        handle.pin(0.0)
        folder = Path(handle.control_path.removeprefix("file:")).parent
        assert folder.exists()
        assert ours() == tuple(number + 1 for number in before)
    wait_for(lambda: ours() == before)
    assert not folder.exists()
    handle.close()
    with pytest.raises(ss.InvalidArgument, match="closed"):
        handle.pin(0.5)
    assert handle.report().batches == 0


def test_a_closed_stream_keeps_every_row(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    handle = ss.shedder(kept)
    handle.pin(0.0)
    with running(kept, tmp_path / "s") as query:
        put_rows(source, 0, 50)
        query.processAllAvailable()
        counted(handle, 50)
        handle.close()
        put_rows(source, 50, 50)
        query.processAllAvailable()
        assert query.exception() is None
        rows = query.recentProgress[-1]["numInputRows"]
    assert rows == 50
    assert len(run_all(kept, tmp_path / "again", "closed")) == 100


def test_a_continuous_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """By Spark itself: a drop needs micro-batches."""
    kept = ss.shed(spark.readStream.format("rate").load(), "1 hour")
    writer = kept.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="Continuous processing does not support"):
        writer.trigger(continuous="1 second").start()


def test_rotate_must_be_something_the_clock_can_tell(spark: SparkSession, source: Path) -> None:
    with pytest.raises(ss.InvalidArgument, match="shorter than the clock can tell"):
        ss.shed(stream(spark, source), "1 hour", rotate=1e-5)


# Who can say afterwards what was shed, and why.


def test_every_change_is_logged_and_stands_in_a_journal(
    spark: SparkSession, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(source, 4, 400)
    kept = ss.shed(stream(spark, source), "1 hour", key="id", name="night")
    handle = ss.shedder(kept)
    with caplog.at_level(logging.INFO, logger="streamshed"):
        handle.pin(0.25)
        rows = run_all(kept, tmp_path / "s", "journal")
        with running(kept, tmp_path / "s"):
            handle.pin(None)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert any("pinned to 0.25 by hand" in line for line in said)
    caplog.clear()
    lines = [
        json.loads(line)
        for line in (tmp_path / "s" / "streamshed" / "night.history.jsonl").read_text().splitlines()
    ]
    assert lines[0]["keep"] == 0.25
    assert lines[-1]["keep"] == 1.0
    assert "pinned" in lines[0]["reason"]
    assert sum(line["arrived"] for line in lines) == 400
    assert sum(line["kept"] for line in lines) == len(rows)
    assert all(line["arrived"] == line["kept"] + line["shed"] for line in lines)


def test_dir_and_version() -> None:
    assert {"shed", "shedder", "run", "load_aware", "__version__"} <= set(dir(ss))
    assert ss.__version__[0].isdigit()
    assert ss.Plan().keep == 1.0
