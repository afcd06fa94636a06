"""What is ours may break, be closed, or be asked for the impossible: queries go on, and nothing is left."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.network import Builder, Network
from streamshed.spark.network import fused_query, stateful_query
from streamshed.spark.network.fused_query import FusedQuery
from streamshed.spark.network.network_control import NetworkControl
from streamshed.spark.network.run import RunningNetwork
from streamshed.spark.watch.plan_counts import PlanReader
from streamshed.spark.watch.query_watch import QueryWatch
from streamshed.spark.watch.session_monitor import SessionMonitor
from tests.spark.helpers import put_rows, stream, wait_for

pytestmark = pytest.mark.spark
ROWS = 200


def wards(write: dict[str, Any] | None = None) -> Network:
    """A fused query with two outputs, and one with a window."""
    return (
        Builder("wards", capacity=1.0)
        .source(
            "s", "id LONG, user LONG, priority STRING, at TIMESTAMP", arrived="at", watermark="1 hour", rate=100
        )
        .filter("even", "s", "id % 2 = 0", selectivity=0.5, cost=1e-4)
        .filter("few", "even", "user < 50", selectivity=0.5)
        .aggregate("minutes", "even", "10 minutes", {"n": "count(*)"})
        .output("all", "even")
        .output("some", "few")
        .output("counts", "minutes", write=write or {"format": "memory", "mode": "complete"})
        .build()
    )


def simple(name: str = "simple") -> Network:
    return (
        Builder(name, capacity=1.0)
        .source("s", "id LONG, user LONG, priority STRING, at TIMESTAMP", rate=100)
        .filter("f", "s", "id >= 0", cost=1e-3)
        .output("o", "f", latency=[(0, 1.0), (1, 1.0), (2, 0.0)])
        .build()
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(3):
        put_rows(tmp_path / "in", number * ROWS, ROWS)
    return tmp_path


def start(spark: SparkSession, network: Network, folder: Path, **keywords: Any) -> RunningNetwork:
    sinks = {output.name: "memory" for output in network.outputs if output.write is None}
    settings = {"sinks": sinks, "latency": "1 hour", "state": str(folder / "state")} | keywords
    return ss.run(spark, network, sources={"s": stream(spark, folder / "in")}, **settings)


def run_all(spark: SparkSession, network: Network, folder: Path, **keywords: Any) -> RunningNetwork:
    running = start(spark, network, folder, trigger={"availableNow": True}, **keywords)
    running.await_termination()
    return running


def counted(running: RunningNetwork) -> int:
    """Rows in the last answer of the window."""
    batches = running.sinks["counts"]._batches
    return sum(row.n for row in batches[max(batches)])


# ── errors of ours ───────────────────────────────────────────────────────────────────────────────


class Broken(PlanReader):
    def read_marks(self, plan: Any, wanted: set[int]) -> dict[int, int]:
        raise RuntimeError("no plan like this")


@pytest.mark.complains
def test_a_batch_that_cannot_be_counted_is_delivered_all_the_same(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fused_query, "PlanReader", Broken)
    monkeypatch.setattr(stateful_query, "PlanReader", Broken)
    with run_all(spark, wards(), folder) as running:
        assert len(running.rows("all")) == 3 * ROWS / 2
        assert counted(running) == 3 * ROWS / 2
        report = running.report()
    assert report.unseen >= 6  # of either query three, and batches without data
    assert report.batches == 0
    told = [r.getMessage() for r in caplog.records if "could not be counted" in r.getMessage()]
    assert len(told) == 2, told  # once a query, not once a batch


def test_batches_too_short_for_the_monitor_to_see_are_counted(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = QueryWatch.capture
    # As if every batch were over before the monitor looks which one runs.
    monkeypatch.setattr(QueryWatch, "capture", lambda self, batch=None: batch and seen(self, batch))
    with run_all(spark, wards(), folder) as running:
        report = running.report()
    assert report.unseen == 0
    assert report.arrived == 3 * ROWS


@pytest.mark.complains
def test_values_that_cannot_be_sampled_and_times_that_cannot_be_read_do_not_end_a_query(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("not today")

    monkeypatch.setattr(FusedQuery, "_sample_values", fail)
    monkeypatch.setattr(NetworkControl, "begun", fail)
    with run_all(spark, wards(), folder, pin=[ss.Drop("s->even", 0.0)]) as running:
        # The plan is not known in the fused query, so its rows are kept; the other reads it by itself.
        assert len(running.rows("all")) == 3 * ROWS / 2
        assert counted(running) == 0
    assert "could not be sampled" in caplog.text
    assert "could not be looked up" in caplog.text


@pytest.mark.complains
def test_storage_that_fails_ends_neither_the_queries_nor_the_learning(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = start(spark, simple(), folder, pin=[ss.Drop("s->f", 0.5)])
    with running:
        running.process_all_available()
        wait_for(lambda: running.report().arrived == 3 * ROWS)
        kept = len(running.rows("o"))
        assert 0 < kept < 3 * ROWS

        def fail(name: str, data: bytes) -> None:
            raise OSError("the disk is full")

        running._store.write = fail  # type: ignore[method-assign]
        put_rows(folder / "in", 3 * ROWS, ROWS)
        wait_for(lambda: running.report().arrived == 4 * ROWS)
        told = len(running.samples)
        # What is asked for now cannot be stored, so it is not carried out: a replay would not find it.
        running.pin([ss.Drop("s->f", 0.0)])
        assert running.plan.drops == (ss.Drop("s->f", 0.5),)
        before = len(running.rows("o"))
        time.sleep(0.2)
        put_rows(folder / "in", 4 * ROWS, ROWS)
        wait_for(lambda: running.report().arrived == 5 * ROWS)
        assert len(running.rows("o")) > before + 0.3 * ROWS
        assert len(running.samples) > told
        assert running.failure() is None
    assert "the books cannot be written" in caplog.text
    assert "not carried out" in caplog.text


@pytest.mark.complains
def test_to_fail_open_keeps_rows_though_the_storage_is_gone(spark: SparkSession, folder: Path) -> None:
    running = start(spark, wards(), folder, pin=[ss.Drop("s->even", 0.0)])
    with running:
        running.process_all_available()
        assert running.rows("all") == []

        def fail(name: str, data: bytes) -> None:
            raise OSError("the disk is gone")

        running._store.write = fail  # type: ignore[method-assign]
        running.fail_open(RuntimeError("something broke"))
        put_rows(folder / "in", 3 * ROWS, ROWS)
        running.process_all_available()
        assert len(running.rows("all")) == ROWS / 2
        assert counted(running) == ROWS / 2


# ── what is left ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders of this test go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def ours(spark: SparkSession, temporary: Path) -> dict[str, Any]:
    return {
        "views": sorted(t.name for t in spark.catalog.listTables() if t.name.startswith("streamshed")),
        "functions": [row.function for row in spark.sql("SHOW USER FUNCTIONS LIKE 'streamshed*'").collect()],
        "threads": sorted(t.name for t in threading.enumerate() if t.name.startswith("streamshed")),
        "listeners": len(spark.streams._jsqm.listListeners()),
        "folders": sorted(folder.name for folder in temporary.iterdir()),
    }


def test_nothing_is_left_of_a_network_that_is_closed(
    spark: SparkSession, folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests' streams share the session's monitor; here it is alone.
    monkeypatch.setattr(SessionMonitor, "_by_session", type(SessionMonitor._by_session)())
    before = ours(spark, temporary)
    network = (
        Builder("roots")
        .source("s", "id LONG, user LONG, priority STRING, at TIMESTAMP", arrived="at", watermark="1 hour")
        .udf("root", "s", "math:sqrt", ["id"], "root DOUBLE")
        .filter("few", "root", "root < 10")
        .aggregate("minutes", "few", "10 minutes", {"n": "count(*)"})
        .output("all", "root")
        .output("some", "few")
        .output("counts", "minutes")
        .build()
    )
    running = start(spark, network, folder, state=None)
    running.process_all_available()
    made = ours(spark, temporary)
    assert made["threads"] != before["threads"]
    assert made["functions"]
    running.close()
    running.close()
    wait_for(lambda: ours(spark, temporary) == before, seconds=10)
    assert list(temporary.iterdir()) == []
    assert running.queries == {}
    assert running.failure() is None
    assert running.await_termination(0.1)
    report = running.report()
    assert report.arrived == 3 * ROWS
    assert report.by_output["all"].delivered == len(running.rows("all")) == 3 * ROWS
    running.pin([ss.Drop("s->root", 0.5)])  # changes nothing any more
    assert list(temporary.iterdir()) == []


def test_no_listener_of_executed_plans_is_left(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionMonitor, "_by_session", type(SessionMonitor._by_session)())
    manager: Any = spark._jsparkSession.listenerManager()
    before = len(manager.listListeners())
    run_all(spark, simple(), folder).close()
    assert len(manager.listListeners()) == before


def test_nothing_is_left_of_a_network_that_cannot_start(
    spark: SparkSession, folder: Path, temporary: Path
) -> None:
    before = ours(spark, temporary)
    with pytest.raises(ss.InvalidArgument, match="no drop can be made"):
        start(spark, simple(), folder, pin=[ss.Drop("f->o", 0.5)], state=None)
    broken = (
        Builder("n")
        .source("s", "id LONG")
        .udf("u", "s", "math:sqrt", ["id"], "r DOUBLE")
        .filter("f", "u", "r > '3'")
        .output("o", "f")
        .build()
    )
    with pytest.raises(ss.InvalidArgument, match=r"boxes\.f"):
        ss.run(spark, broken, sources={"s": stream(spark, folder / "in")}, sinks={"o": "memory"})
    assert ours(spark, temporary) == before


def test_a_query_that_failed_is_known_after_closing_and_what_it_keeps_is_bounded(
    spark: SparkSession, folder: Path
) -> None:
    def fail(rows: DataFrame, number: int) -> None:
        raise RuntimeError("the disk is full")

    running = start(spark, simple(), folder, sinks={"o": fail})
    with running, pytest.raises(ss.StreamshedError, match="the disk is full"):
        running.await_termination()
    assert "the disk is full" in str(running.failure())
    assert running.samples.maxlen == 10_000  # type: ignore[attr-defined]


# ── plans ────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_runs_again_with_its_plan_after_a_hundred_others(spark: SparkSession, folder: Path) -> None:
    """A batch of one query is held up while the plan changes again and again; then it fails."""
    attempts: list[set[int]] = []
    failing = threading.Event()

    def sink(rows: DataFrame, number: int) -> None:
        found = {row.id for row in rows.select("id").collect()}
        if number == 1:
            attempts.append(found)
            if len(attempts) == 1:
                failing.wait(60)
                raise RuntimeError("not this time")

    running = start(spark, simple(), folder, sinks={"o": sink}, pin=[ss.Drop("s->f", 0.5)])
    with running:
        wait_for(lambda: len(attempts) == 1)
        for number in range(100):
            running.pin([ss.Drop("s->f", 0.6 + number / 1000)])
        failing.set()
        with pytest.raises(ss.StreamshedError, match="not this time"):
            running.await_termination()
    with run_all(spark, simple(), folder, sinks={"o": sink}, pin=[ss.Drop("s->f", 0.9)]) as running:
        assert 0.3 * ROWS < len(attempts[0]) < 0.7 * ROWS
        assert attempts[1] == attempts[0]
        # Both have been done; of the hundred, the newest are kept.
        running._control.publish((None,), 1.0, 1.0)
        assert len(running._control.history.spans) <= 65


def test_a_plan_is_renewed_while_a_batch_runs_and_ends_when_none_does(spark: SparkSession, folder: Path) -> None:
    held, free = threading.Event(), threading.Event()

    def sink(rows: DataFrame, number: int) -> None:
        rows.count()
        held.set()
        free.wait(60)

    def until() -> int:
        return running._control.history.spans[-1].until

    running = start(spark, simple(), folder, sinks={"o": sink})
    drops = (ss.Drop("s->f", 0.5),)
    with running:
        assert held.wait(60)
        with running._lock:
            running._controller._plan = ss.Plan(drops=drops, wanted=drops)
            running._adopt()
        first, spans = until(), len(running._control.history.spans)
        lease = max(20.0, 5 * running.latency)
        running.renew(time.time())
        assert until() == first, "not before half of it is over"
        time.sleep(0.05)
        running.renew(time.time() + lease / 2 + 1)
        assert until() > first
        assert len(running._control.history.spans) == spans
        free.set()
        running.process_all_available()
        wait_for(lambda: running.report().arrived == 3 * ROWS and not running._busy())
        with running._lock:  # since then the controller has asked for nothing
            running._controller._plan = ss.Plan(drops=drops, wanted=drops)
            running._adopt()
        before = until()
        running.renew(time.time() + lease)
        assert until() == before, "nothing runs: the plan may end"


def test_a_pinned_plan_is_renewed_and_told_as_it_is(spark: SparkSession, folder: Path) -> None:
    running = start(spark, simple(), folder, pin=[ss.Drop("s->f", 0.1)])
    with running:
        running.process_all_available()
        wait_for(lambda: running.report().arrived == 3 * ROWS)
        # What the controller learns from is the plan that was carried out.
        assert [sample.keep for sample in running.samples] == pytest.approx([0.1] * len(running.samples))
        assert all(sample.flows.thinned for sample in running.samples)
        until = running._control.history.spans[-1].until
        time.sleep(0.05)
        running.renew(time.time() + 50_000)
        assert running._control.history.spans[-1].until > until
        running.stop()
        until = running._control.history.spans[-1].until
        running.renew(time.time() + 200_000)
        assert running._control.history.spans[-1].until == until


@pytest.mark.complains
def test_a_control_file_that_is_removed_ends_the_drops_and_that_is_what_is_learned(
    spark: SparkSession, folder: Path
) -> None:
    running = start(spark, simple(), folder, pin=[ss.Drop("s->f", 0.1)])
    with running:
        running.process_all_available()
        wait_for(lambda: running.report().arrived == 3 * ROWS)
        running._control._guard = 30.0  # as on slow storage: what is stored first comes into force so much later
        Path(running.control_path.removeprefix("file:")).unlink()
        put_rows(folder / "in", 3 * ROWS, ROWS)  # the batch after which the file is looked at
        wait_for(lambda: running.report().arrived == 4 * ROWS and "by hand" in running.plan.reason)
        seen = len(running.samples)
        rows = len(running.rows("o"))
        put_rows(folder / "in", 4 * ROWS, ROWS)
        wait_for(lambda: running.report().arrived == 5 * ROWS)
        assert len(running.rows("o")) == rows + ROWS
        assert [(sample.keep, sample.flows.thinned) for sample in list(running.samples)[seen:]] == [(1.0, False)]
        assert "by hand" in running.plan.reason
        running.renew(time.time() + 1e6)
        running.pin([ss.Drop("s->f", 0.1)])  # told otherwise
        assert running.plan.drops


def test_batches_without_data_are_counted_as_such(spark: SparkSession, folder: Path) -> None:
    """A window's query runs batches without rows, to say what its watermark has closed."""
    network = (
        Builder("minutes", capacity=1.0)
        .source(
            "s", "id LONG, user LONG, priority STRING, at TIMESTAMP", arrived="at", watermark="1 second", rate=1
        )
        .filter("f", "s", "id >= 0")
        .aggregate("w", "f", "1 minute", {"n": "count(*)"})
        .output("o", "w")
        .build()
    )
    assert spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled") == "true"
    running = start(spark, network, folder)
    with running:
        for batch in range(3, 6):
            running.process_all_available()
            wait_for(lambda batch=batch: running.report().arrived == batch * ROWS)  # type: ignore[misc]
            put_rows(folder / "in", batch * ROWS, ROWS)
        running.process_all_available()
        wait_for(lambda: running.report().arrived == 6 * ROWS)
        assert running._ledger.last_batch("o") > running.report().batches  # there were some
    report = running.report()
    assert report.by_arc["s->f"].passed == 6 * ROWS
    assert report.by_output["o"].delivered == len(running.rows("o"))
    assert report.unseen == 0


# ── what the user asks for ───────────────────────────────────────────────────────────────────────


def test_another_network_can_be_started_and_this_one_stopped_in_a_callback(
    spark: SparkSession, folder: Path
) -> None:
    running = start(spark, simple(), folder)
    others: list[RunningNetwork] = []
    locked: list[bool] = []

    def callback(plan: ss.Plan) -> None:
        # Whoever needs the network's lock on another thread must get it.
        free = threading.Event()
        threading.Thread(target=lambda: (running.report(), free.set())).start()
        locked.append(not free.wait(10))
        others.append(start(spark, simple("b"), folder, state=str(folder / "b"), trigger={"availableNow": True}))
        running.stop()

    running.on_plan(callback)
    with running:
        running.process_all_available()
        running.pin([ss.Drop("s->f", 0.5)])
        put_rows(folder / "in", 3 * ROWS, ROWS)
        wait_for(lambda: bool(others))
        assert locked == [False]
        with others[0] as other:
            assert other.await_termination(60)
            assert len(other.rows("o")) >= 3 * ROWS
        assert running.await_termination(10)
        assert len(others) == 1


def test_plan_changes_are_logged_and_stand_in_the_journal(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    request.node.add_marker("complains")  # it says more than usual, but only what was asked for
    caplog.set_level(logging.INFO, "streamshed")
    running = start(spark, simple(), folder, pin=[ss.Drop("s->f", 0.25)])
    with running:
        running.process_all_available()
        wait_for(lambda: running.report().arrived == 3 * ROWS)
        running._diary._journal._next_line = 0.0  # a minute later
        put_rows(folder / "in", 3 * ROWS, ROWS)
        wait_for(lambda: running.report().arrived == 4 * ROWS)
        running.mode = "off"
        assert running.plan.mode is ss.Mode.OFF
        assert not running.plan.drops
        running.pin(None)
    told = [r.getMessage() for r in caplog.records if r.name == "streamshed"]
    assert {r.levelno for r in caplog.records if r.name == "streamshed"} == {logging.INFO}
    assert "simple: plan 1, enforce: pinned by hand; s->f keeps 0.250" in told
    lines = [
        json.loads(line) for line in (folder / "state/streamshed/network.history.jsonl").read_text().splitlines()
    ]
    first, still, off = lines[:3]
    assert (first["keep"], first["mode"], first["version"], first["arrived"]) == (0.25, "enforce", 1, 0)
    assert first["drops"] == [{"at": "s->f", "keep": 0.25, "where": None}]
    assert (first["reason"], first["bound"]) == ("pinned by hand", 3600.0)
    assert (still["version"], still["arrived"]) == (1, 4 * ROWS)
    assert 0.6 * still["arrived"] < still["shed"] < 0.9 * still["arrived"]
    assert still["latency"] > 0
    assert (off["mode"], off["drops"], off["keep"], off["arrived"]) == ("off", [], 1.0, 0)
    assert [line["version"] for line in lines] == sorted(line["version"] for line in lines)


def test_a_setting_that_is_none_is_refused(spark: SparkSession, folder: Path) -> None:
    with start(spark, simple(), folder, trigger={"availableNow": True}) as running:
        for name in ("latnecy", "keep", "pinned"):
            with pytest.raises(AttributeError, match="mode, latency, floor, max_shed, budget, expired, policy"):
                setattr(running, name, 3)
        running.latency = "9 seconds"
        assert running.latency == 9.0


@pytest.mark.parametrize(
    "trigger",
    [
        {"continuous": "1 second"},
        {"realTime": "5 minutes", "processingTime": "1 second"},
        "real time",
        {"processingTime": "soon"},
        {"availableNow": False},
        {"availableNow": True, "once": True},
        {"sometimes": True},
        "1 second",
    ],
)
def test_a_trigger_without_micro_batches_is_refused_before_anything_starts(
    spark: SparkSession, folder: Path, temporary: Path, trigger: Any
) -> None:
    before, words = (
        ours(spark, temporary),
        "micro-batches" if "continuous" in trigger else "trigger",
    )
    with pytest.raises(ss.InvalidArgument, match=words):
        start(spark, simple(), folder, trigger=trigger, state=None)
    assert not (folder / "state").exists()
    assert ours(spark, temporary) == before


def test_utility_is_nothing_when_rows_come_too_late_to_be_of_use(spark: SparkSession, folder: Path) -> None:
    def slow(rows: DataFrame, number: int) -> None:
        rows.count()
        time.sleep(2.5)

    with run_all(spark, simple(), folder, sinks={"o": slow}) as running:
        assert running.report().by_output["o"].percent == 100.0
        assert running.report().latency_last > 2.0
        assert running.utility("o") == 0.0
        told = running._ledger.of("o")
        running._ledger._by_query["o"] = replace(told, latency_last=1.5)
        assert running.utility("o") == pytest.approx(0.5)


def test_options_of_a_parse_may_have_quotes_and_backslashes(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("1;'it\\'s; here';x\n2;'$' ;\\N\n")
    options = {"sep": ";", "quote": "'", "escape": "\\", "nullValue": "\\N", "ignoreTrailingWhiteSpace": True}
    network = (
        Builder("quotes")
        .source("s", "id LONG, text STRING, mark STRING", parse={"format": "csv", "options": options})
        .filter("f", "s", "text = 'it''s; here' OR text = '$'")
        .filter("g", "s", "text != 'a\\b${x}'")
        .output("o", "f")
        .output("p", "g")
        .build()
    )
    running = ss.run(
        spark,
        network,
        sources={"s": spark.readStream.text(str(tmp_path / "in"))},
        sinks={"o": "memory", "p": "memory"},
        latency="1 hour",
        trigger={"availableNow": True},
        pin=[ss.Drop("s->g", 0.999)],
    )
    with running:
        running.await_termination()
        assert sorted(map(tuple, running.rows("o"))) == [(1, "it's; here", "x"), (2, "$", None)]
        assert len(running.rows("p")) == 2


def test_columns_may_have_dots_and_backticks_in_their_names(spark: SparkSession) -> None:
    """Of names: what SQL is written with. The stream may call a column what it likes."""
    from streamshed.network.graph import Column, Output, Source, Union
    from streamshed.spark.network.network_query import marks_for
    from streamshed.spark.network.query_layout import NetworkLayout
    from streamshed.spark.network.slots import Slots
    from streamshed.spark.network.sql import Parser, Writer

    columns = (Column("a.b", "LONG"), Column("c`d", "STRING"))
    parse = {"format": "json", "column": "raw.value", "options": {}}
    network = Network(
        "dots",
        (Source(name="s", schema=columns, parse=parse), Source(name="t", schema=columns)),
        (Union(name="u", inputs=("s", "t")),),
        (Output(name="o", input="u"),),
    )
    layout, slots = NetworkLayout.of(network).queries[0], Slots.of(network)
    rows = [('{"a.b": 1, "c`d": "x"}',)]
    spark.createDataFrame(rows, "`raw.value` STRING").createOrReplaceTempView("dots_s")
    spark.createDataFrame([(2, "y")], "`a.b` LONG, `c``d` STRING").createOrReplaceTempView("dots_t")
    writer = Writer(
        layout,
        slots,
        marks_for(layout, slots),
        {"s": "dots_s", "t": "dots_t"},
        {},
        lambda on: on in slots.slots or on == "s raw",
        lambda at: "CAST(NULL AS DOUBLE)",
        {},
        {"s": Parser.of(network.sources[0], ["raw.value"])},
    )
    try:
        assert sorted(map(tuple, spark.sql(writer.rows("o")).collect())) == [(1, "x"), (2, "y")]
    finally:
        spark.catalog.dropTempView("dots_s")
        spark.catalog.dropTempView("dots_t")
