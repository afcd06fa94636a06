"""The load-aware operator on a real Spark: what runs, what is counted, and what a row may do to a job."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.lab.experiments.las_spark import RecordedSource, Recording, read
from streamshed.las.settings import LasSettings
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import digests
from streamshed.spark.load_aware.cost_orders import (
    COST,
    DIGEST,
    OFF,
    ORDER,
    CostTable,
    Order,
    OrderHistory,
    with_orders,
)
from streamshed.spark.load_aware.load_shedder import LoadShedder
from streamshed.spark.orders.order_file import HistoryFile
from streamshed.spark.orders.store import Store
from streamshed.spark.watch.session_monitor import SessionMonitor
from tests.spark.helpers import put_rows, run_all, stream, wait_for

pytestmark = pytest.mark.spark
ROWS, PER_BATCH = 600, 200
BASIC: dict[str, Any] = {
    "cost_key": "key",
    "target": "avg 1 hour",
    "schema": "id LONG, twice LONG",
    "arrived": "at",
}

LONG = {"target": "max 2 hours", "cost": "1900"}


def twice(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "twice": 2 * row["key"]}


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """600 rows of 13 keys that arrive within 0.6 ms."""
    spark.dataSource.register(RecordedSource)
    keys = np.arange(ROWS) % 13
    path = Recording(np.arange(ROWS) / 1e6, keys, np.ones(ROWS)).save()
    yield path
    Path(path).unlink()


@pytest.fixture
def events(spark: SparkSession, recorded: str) -> DataFrame:
    return read(spark, recorded, PER_BATCH)


def run(out: DataFrame, state: Path, name: str) -> list[dict[str, Any]]:
    """All rows of the recording, and the handle's books closed."""
    query = out.writeStream.format("memory").queryName(name).option("checkpointLocation", str(state)).start()
    try:
        query.processAllAvailable()
        handle = ss.load_shedder(out)
        wait_for(lambda: handle.report().batches + (not query.isActive) * 99 >= ROWS // PER_BATCH)
    finally:
        query.stop()
    return [row.asDict() for row in out.sparkSession.table(name).collect()]


# What runs.


def test_with_time_enough_every_row_runs_and_is_counted(events: DataFrame, tmp_path: Path) -> None:
    out = ss.load_aware(events, twice, window=100, **BASIC)
    assert out.schema.simpleString() == "struct<id:bigint,twice:bigint>"
    rows = run(out, tmp_path / "state", "las_all")
    assert {row["id"]: row["twice"] for row in rows} == {i: 2 * (i % 13) for i in range(ROWS)}
    assert len(rows) == ROWS
    handle = ss.load_shedder(out)
    report = handle.report()
    assert (report.arrived, report.kept, report.shed, report.failed, report.unseen) == (ROWS, ROWS, 0, 0, 0)
    assert report.batches == len(handle.batches) == 3
    assert report.queue_mean > 0
    assert report.queue_worst >= report.queue_p99 >= report.queue_p50 > 0
    assert report.queue_worst >= report.queue_mean
    # Completion is queuing and the row's own work.
    assert report.latency_mean == pytest.approx(report.queue_mean + report.cost_mean)
    assert report.latency_worst >= report.queue_worst
    # 600 rows in windows of 100: learned.
    costs = handle.costs
    assert costs["table"] >= 1
    assert costs["frequencies"].shape == costs["seconds"].shape == (4, 55)


def test_what_was_learned_is_in_use_in_the_next_batch(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    out = ss.load_aware(
        stream(spark, source),
        lambda row: (row["id"],),
        window=50,
        cost_key="user",
        target="avg 1 hour",
        schema="id LONG",
        arrived="at",
    )
    with ss.load_shedder(out) as handle:
        writer = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state"))
        query = writer.start()
        try:
            put_rows(source, 0, 200)
            wait_for(lambda: len(handle.batches) == 1)
            wait_for(lambda: handle.order is not None and handle.order.table == handle.costs["table"] >= 1)
            # An order starts a little in the future.
            starts = handle.order.start  # type: ignore[union-attr]
            wait_for(lambda: time.time() * 1000 > starts)
            put_rows(source, 200, 200)
            wait_for(lambda: len(handle.batches) == 2)
        finally:
            query.stop()
        assert [batch.checked for batch in handle.batches] == [False, True]


def test_costs_looked_up_by_spark_are_those_of_the_sketch(spark: SparkSession, tmp_path: Path) -> None:
    hashes = LasSettings().hashes(seed=3)
    keys = np.random.default_rng(1).integers(0, 300, 2000)
    sketch = CostSketch(hashes)
    sketch.add_many(digests(keys), keys * 1_000_000)
    cells = hashes.rows * hashes.columns
    file: HistoryFile[Order, OrderHistory] = HistoryFile(
        Store(spark, str(tmp_path)), "x", lambda data: OrderHistory.decode(cells, data)
    )
    rows = spark.range(400).select(F.col("id").alias("key"))

    def found() -> list[Row]:
        # Planned anew, as a stream is for each batch.
        text = file.text(spark)
        return with_orders(rows, [F.col("key")], F.current_timestamp(), None, hashes, text).collect()

    # Nothing known yet: no order behind the batch's own time, no cost.
    assert {(len(row[ORDER]), row[COST]) for row in found()} == {(1, None)}
    file.history = file.history.with_table(CostTable.of(7, sketch))
    order = Order(0, 2**50, 1, 7, 2.0, 0.0, 2.0, 0.0, 0.25, 12.5, 6.0, (1.5, 2.5))
    file.put(lambda start: order, also=lambda history: None)
    late = Order(2**49, 2**50, 2, 7, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0)
    file.put(lambda start: late, also=lambda history: None)
    by_key = {row["key"]: row for row in found()}
    every = np.arange(400)
    for key, digest, expected in zip(every, digests(every), sketch.estimate_many(digests(every)), strict=True):
        assert by_key[key][DIGEST] == digest
        assert by_key[key][COST] == pytest.approx(expected / 1e9, abs=1e-9)
    # A worker that is given the table finds the same.
    table = file.history.table(7)
    assert table is not None
    found_there = table.estimates(hashes, digests(every))
    assert found_there.tolist() == [by_key[key][COST] for key in every]
    # Behind the batch's own time stands the order of that time, not the one that is to come.
    assert {tuple(row[ORDER][1:]) for row in by_key.values()} == {tuple(order.as_row())}
    assert OrderHistory.decode(cells, file.history.encode()) == file.history
    # A broken text is no order.
    Path(file.path.removeprefix("file:")).write_bytes(b"{")
    broken = file.follow()
    assert broken == OrderHistory(cells)
    file.show(broken)
    assert {len(row[ORDER]) for row in found()} == {1}


def test_rows_for_which_there_is_no_time_are_shed(events: DataFrame, tmp_path: Path) -> None:
    # 1,900 s each, by the estimate, and at most 7,200 s to wait: the fifth of a queue would wait 7,600 s.
    out = ss.load_aware(events, twice, **BASIC | LONG)
    rows = run(out, tmp_path / "state", "las_shed")
    report = ss.load_shedder(out).report()
    assert (report.arrived, report.kept, report.unseen) == (ROWS, len(rows), 0)
    assert (report.shed, report.would_shed) == (ROWS - len(rows), 0)
    # In the order of arrival, the first ones of each batch; two queues.
    assert {row["id"] for row in rows} == {start + i for start in range(0, ROWS, PER_BATCH) for i in range(8)}


@pytest.mark.parametrize(("mode", "wanted"), [("off", False), ("dry-run", True)])
def test_modes_that_drop_nothing(events: DataFrame, tmp_path: Path, mode: str, wanted: bool) -> None:
    out = ss.load_aware(events, twice, **BASIC | LONG | {"mode": mode})
    rows = run(out, tmp_path / "state", f"las_{mode[:3]}")
    report = ss.load_shedder(out).report()
    assert len(rows) == report.kept == ROWS
    assert report.shed == 0
    assert (report.would_shed > 0) == wanted
    assert ss.load_shedder(out).mode.value == mode


@pytest.mark.parametrize("check", ["ahead", "clock"])
def test_a_floor_lets_its_share_in_whatever_the_target_says(events: DataFrame, tmp_path: Path, check: str) -> None:
    """All rows have waited for too long; of two partitions of 100 rows, 25 each go in nevertheless."""
    goal = {"target": "max 1 ms", "cost": "0.001", "check": check, "floor": 0.25}
    out = ss.load_aware(events, twice, **BASIC | goal)
    rows = run(out, tmp_path / "state", f"las_floor_{check}")
    report = ss.load_shedder(out).report()
    assert ROWS // 4 <= len(rows) <= ROWS // 4 + 2 * ROWS // PER_BATCH
    assert (report.kept, report.shed, report.unseen) == (len(rows), ROWS - len(rows), 0)


def test_completion_is_reported_beside_the_wait(events: DataFrame, tmp_path: Path) -> None:
    out = ss.load_aware(events, twice, **BASIC)
    run(out, tmp_path / "state", "las_completion")
    report = ss.load_shedder(out).report()
    assert report.latency_mean == pytest.approx(report.queue_mean + report.cost_mean)
    assert report.queue_worst < report.latency_worst <= report.queue_worst + report.work_sum


def test_the_clock_may_decide(events: DataFrame, tmp_path: Path) -> None:
    # Everything has waited longer than this when its turn comes.
    out = ss.load_aware(events, twice, **BASIC | {"target": "max 1 ms", "check": "clock"})
    assert run(out, tmp_path / "state", "las_clock") == []
    assert ss.load_shedder(out).report().shed == ROWS


def test_a_function_over_the_rows_of_a_key(events: DataFrame, tmp_path: Path) -> None:
    def whole_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
        assert len(set(rows.column("key").to_pylist())) == 1
        return pa.RecordBatch.from_pydict({"id": rows.column("id"), "twice": rows.column("key")})

    out = ss.load_aware(events, whole_keys, by="key", **BASIC)
    rows = run(out, tmp_path / "state", "las_keys")
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    assert ss.load_shedder(out).report().ran == ROWS


def test_settings_can_change_while_it_runs(events: DataFrame, tmp_path: Path) -> None:
    out = ss.load_aware(events, twice, **BASIC)
    handle = ss.load_shedder(out)
    handle.mode = "dry-run"  # type: ignore[assignment]
    handle.target = "avg 3 seconds over 500 rows"
    handle.floor = 0.05
    run(out, tmp_path / "state", "las_settings")
    assert handle.order is not None
    assert (handle.order.mode, handle.order.target, handle.order.window) == (1.0, 3.0, 250.0)
    assert handle.target == "avg 3 seconds over 500 rows"
    assert handle.floor == handle.order.floor == 0.05
    wrong: list[dict[str, Any]] = [
        {"mode": "on"},
        {"target": "2 seconds"},
        {"target": "avg 0 s"},
        {"target": 2},
    ]
    for change in (*wrong, {"floor": 1.5}, {"floor": "much"}, {"floor": True}):
        with pytest.raises(ss.InvalidArgument):
            handle.configure(**change)


# Rows that a function cannot take.


def picky(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["id"] % 100 == 7:
        raise LookupError(f"no entry for {row['id']}")
    if row["id"] % 100 == 8:
        return {"id": row["id"], "twice": "many"}
    if row["id"] % 100 == 9:
        return None
    return twice(row)


def test_rows_that_fail_are_skipped_and_counted(events: DataFrame, tmp_path: Path) -> None:
    out = ss.load_aware(events, picky, on_error="skip", **BASIC)
    rows = run(out, tmp_path / "state", "las_skip")
    handle = ss.load_shedder(out)
    report = handle.report()
    assert {row["id"] for row in rows} == {i for i in range(ROWS) if i % 100 not in (7, 8, 9)}
    assert (report.arrived, report.failed, report.shed) == (ROWS, 12, 0)
    assert report.kept == ROWS - 12  # a function that gives None has done its work
    assert any("no entry for" in error and "LookupError" in error for error in handle.errors)
    assert any("'many'" in error for error in handle.errors)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda row: {}[row["id"]], "KeyError: "),
        (lambda row: (row["id"],), "no row of id int64, twice int64"),
        (lambda row: {"id": row["id"], "double": 1}, "no row of id int64, twice int64"),
        (lambda row: (row["id"], "x"), "no row of id int64, twice int64"),
    ],
)
def test_a_row_that_fails_fails_the_query_unless_told_otherwise(
    events: DataFrame, tmp_path: Path, function: Any, problem: str
) -> None:
    out = ss.load_aware(events, function, **BASIC)
    with pytest.raises(StreamingQueryException) as caught:
        run_all(out, tmp_path / "state", "las_fail")
    assert "load_aware: a row cannot be processed" in str(caught.value)
    assert problem in str(caught.value)
    assert "'id': " in str(caught.value)
    assert 'on_error="skip"' in str(caught.value)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_null_key(events: DataFrame, tmp_path: Path, on_error: str) -> None:
    some = events.withColumn("who", F.expr("nullif(key, 5)"))
    out = ss.load_aware(some, twice, on_error=on_error, **BASIC | {"cost_key": "who"})
    if on_error == "fail":
        with pytest.raises(StreamingQueryException, match="its key is null"):
            run_all(out, tmp_path / "state", "las_null")
        return
    rows = run(out, tmp_path / "state", "las_null_skip")
    report = ss.load_shedder(out).report()
    assert report.failed == sum(i % 13 == 5 for i in range(ROWS))
    assert report.kept == len(rows) == ROWS - report.failed


# Arrival times that cannot be true.


def test_one_wrong_clock_does_not_cost_the_others_their_place(events: DataFrame, tmp_path: Path) -> None:
    wrong = (
        "CASE id WHEN 0 THEN at + INTERVAL 1 HOUR WHEN 1 THEN timestamp_seconds(0) WHEN 2 THEN NULL ELSE at END"
    )
    goal = {"target": "max 30 minutes", "cost": "0.001"}
    out = ss.load_aware(events.withColumn("at", F.expr(wrong)), twice, **BASIC | goal)
    rows = run(out, tmp_path / "state", "las_misdated")
    report = ss.load_shedder(out).report()
    assert {row["id"] for row in rows} == set(range(ROWS))
    assert (report.misdated, report.shed) == (2, 0)
    assert 0 < report.queue_mean <= report.queue_worst < 1800


def test_names_with_dots(events: DataFrame, tmp_path: Path) -> None:
    dotted = events.withColumnsRenamed({"key": "user.key", "at": "event.at"})
    out = ss.load_aware(
        dotted,
        lambda row: (row["id"], 2 * row["user.key"]),
        **BASIC | {"cost_key": "`user.key`", "arrived": "`event.at`", "schema": "id LONG, `user.twice` LONG"},
    )
    rows = run(out, tmp_path / "state", "las_dots")
    assert {row["id"]: row["user.twice"] for row in rows} == {i: 2 * (i % 13) for i in range(ROWS)}


def test_batches_without_data(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """As Spark runs them by default, to close windows."""
    before = spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled")
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    settings = {"cost_key": "user", "target": "avg 1 hour", "schema": "id LONG, at TIMESTAMP", "arrived": "at"}
    out = ss.load_aware(stream(spark, source), lambda row: (row["id"], row["at"]), window=100, **settings)
    counts = out.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds")).count()
    with ss.load_shedder(out) as handle:
        writer = counts.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state"))
        query = writer.outputMode("append").start()
        try:
            for number in range(3):
                put_rows(source, number * 200, 200)
                # Its rows, and a batch without any that closes the windows.
                wait_for(lambda n=number: len(handle.batches) >= 2 * (n + 1))  # type: ignore[misc]
        finally:
            query.stop()
            spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", before or "true")
        assert handle.report().arrived == handle.report().kept == 600
        assert handle.report().batches == 3
        assert handle.costs["table"] >= 1
        assert [batch.report.arrived for batch in handle.batches][:4] == [200, 0, 200, 0]
        assert all(batch.checked for batch in handle.batches if batch.batch >= 2 and batch.report.arrived)


# Who has the say.


@pytest.mark.complains
def test_without_its_control_file_nothing_is_shed(events: DataFrame, tmp_path: Path) -> None:
    out = ss.load_aware(events, twice, state=str(tmp_path / "control"), name="off", **BASIC | LONG)
    handle = ss.load_shedder(out)
    kept: dict[int, int] = {}

    def write(rows: DataFrame, number: int) -> None:
        kept[number] = len(rows.collect())
        if number == 0:
            # When the next order has been written, or it would put the file back.
            wait_for(lambda: handle.costs["learning_rows"] == kept[0])
            (tmp_path / "control" / "off.control.json").unlink()
        if number == 1:
            wait_for(lambda: handle.order is not None and handle.order.mode == OFF)

    query = out.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "state")).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert kept[0] < PER_BATCH == kept[2]
    assert not (tmp_path / "control" / "off.control.json").exists()


def test_a_closed_handle_leaves_the_query_alone_and_nothing_behind(events: DataFrame, tmp_path: Path) -> None:
    out = ss.load_aware(events, twice, name="closed", **BASIC | LONG)
    kept: dict[int, int] = {}

    def write(rows: DataFrame, number: int) -> None:
        kept[number] = len(rows.collect())
        if number == 0:
            handle.close()

    with ss.load_shedder(out) as handle:
        query = out.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "state")).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    assert kept[0] < PER_BATCH == kept[1] == kept[2]
    assert not [thread for thread in threading.enumerate() if thread.name == "streamshed closed"]
    assert handle.serial not in SessionMonitor.of(events.sparkSession)._streams


# Again from the checkpoint.


@pytest.mark.parametrize("crash", [0, 1])
def test_a_batch_that_runs_again_keeps_the_same_rows(events: DataFrame, tmp_path: Path, crash: int) -> None:
    kept: dict[int, list[list[int]]] = {}

    def once(fail_at: int | None) -> None:
        def write(rows: DataFrame, number: int) -> None:
            kept.setdefault(number, []).append(sorted(row.id for row in rows.collect()))
            if number == fail_at:
                raise RuntimeError("the sink is down")

        # Hours, so that it does not matter how fast this machine is today.
        goal = {"target": "avg 10 hours over 40 rows", "cost": "900 * (1 + key)"}
        out = ss.load_aware(events, twice, name="again", **BASIC | goal)
        handle = ss.load_shedder(out)
        query = out.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "state")).start()
        try:
            if fail_at is not None:
                with pytest.raises(StreamingQueryException, match="the sink is down"):
                    query.processAllAvailable()
            else:
                query.processAllAvailable()
                wait_for(lambda: handle.report().batches >= 3)
        finally:
            query.stop()
        handle.settle()
        reports.append(handle.report())

    reports: list[Any] = []
    once(fail_at=crash)
    once(fail_at=None)
    first, again = kept[crash]
    assert first == again
    assert 0 < len(first) < PER_BATCH
    # The books go on, and the batch that ran twice counts once.
    assert reports[-1].arrived == ROWS
    assert reports[-1].kept == sum(len(runs[-1]) for runs in kept.values())
    saved = json.loads((tmp_path / "state" / "streamshed" / "again.json").read_text())
    assert saved["done"] == 2


def test_what_was_learned_is_taken_over(events: DataFrame, tmp_path: Path) -> None:
    def once() -> LoadShedder:
        out = ss.load_aware(events, twice, name="learned", window=100, **BASIC)
        handle = ss.load_shedder(out)
        query = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "state")).start()
        try:
            wait_for(lambda: bool(handle.order and handle.order.table) and handle.report().batches >= 3)
        finally:
            query.stop()
        return handle

    first, second = once(), once()
    assert second.costs["table"] == first.costs["table"] >= 1
    # The second run had nothing new to do.
    assert second.report() == first.report()
    assert not second.batches


# Bad input is told at the call.


@pytest.mark.parametrize(
    ("arguments", "problem", "detail"),
    [
        ({"target": "2 seconds"}, "latency", "avg 2 seconds"),
        ({"floor": 1.5}, "floor must be a share between 0 and 1", "1.5"),
        ({"epsilon": 1.5}, "epsilon must be above 0 and at most 1", "1.5"),
        ({"target": "avg 0 seconds"}, "must be a length of time above 0", "0 seconds"),
        ({"target": 2}, "a latency says how waits are judged", "2"),
        ({"target": "max 2 seconds over 5 rows"}, "latency target", "over 5 rows"),
        ({"cost_key": "whom"}, "key names a column that the stream does not have", "'whom'"),
        ({"cost_key": []}, "key must name at least one column", "empty"),
        ({"cost_key": "labels"}, "a key must be of a type that Spark can hash", "map<"),
        ({"arrived": "when"}, "arrived names a column", "'when'"),
        ({"arrived": "id"}, "arrival column must be a timestamp", "bigint"),
        ({"schema": "id"}, "schema must name the columns", "'id'"),
        ({"schema": ""}, "schema must name the columns", "''"),
        ({"epsilon": 0.0}, "epsilon must be above 0", "0.0"),
        ({"epsilon": 1.5}, "epsilon must be above 0", "1.5"),
        ({"delta": 1.0}, "delta must be above 0", "1.0"),
        ({"window": 0}, "window must be a whole number", "0"),
        ({"tolerance": 0.0}, "tolerance must be above 0", "0.0"),
        ({"by": "batch"}, "there is no such by", "row, key"),
        ({"check": "guess"}, "there is no such check", "ahead, clock"),
        ({"check": "clock", "by": "key"}, "looks at each row", "by="),
        ({"on_error": "ignore"}, "there is no such on_error", "fail, skip"),
        ({"mode": "strict"}, "there is no such mode", "dry-run"),
        ({"cost": "nobody * 2"}, "cost is not an expression on this stream", "nobody"),
        ({"cost": "at"}, "cost must be a number of seconds", "timestamp"),
    ],
)
def test_arguments(events: DataFrame, arguments: dict[str, Any], problem: str, detail: str) -> None:
    labelled = events.withColumn("labels", F.expr("map('a', 1)"))
    with pytest.raises(ss.InvalidArgument) as caught:
        ss.load_aware(labelled, twice, **BASIC | arguments)
    assert problem in str(caught.value)
    assert detail in str(caught.value)


def test_not_a_function_and_not_a_stream(spark: SparkSession, events: DataFrame) -> None:
    with pytest.raises(ss.InvalidArgument, match="takes the function to run"):
        ss.load_aware(events, "twice", **BASIC)  # type: ignore[arg-type]
    with pytest.raises(ss.InvalidArgument, match=r"load_aware\(\) takes a streaming DataFrame"):
        ss.load_aware(spark.range(3), twice, **BASIC)
    for other in (events, None):
        with pytest.raises(ss.InvalidArgument, match="not a load-aware operator"):
            ss.load_shedder(other)  # type: ignore[arg-type]


def test_the_handle_is_found_after_transformations(events: DataFrame) -> None:
    out = ss.load_aware(events, twice, **BASIC)
    handle = ss.load_shedder(out)
    for made in (out.withColumn("more", F.lit(1)), out.alias("a"), out.where("true")):
        assert ss.load_shedder(made) is handle
    handle.close()
