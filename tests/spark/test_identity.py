"""Which rows a drop takes, and what it reads to tell them apart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.spark.drop_in.identity import row_place
from streamshed.spark.watch.session_monitor import _execution_of
from tests.spark.helpers import fill, ids, in_force, put_rows, run_all, stream, wait_for

pytestmark = pytest.mark.spark
ROWS = 4000

MARK = ">= invoke(-1"
"""How a mark begins where a plan is printed."""


@pytest.fixture
def wide(spark: SparkSession, tmp_path: Path) -> Path:
    """Columnar files of twenty columns; every other row has no key."""
    columns = [F.lit(i).alias(f"c{i}") for i in range(18)]
    key = F.when(F.col("id") % 2 == 0, F.col("id") % 50)
    rows = spark.range(0, ROWS, 1, 2).select("id", key.alias("user"), *columns)
    for kind in ("parquet", "orc"):
        rows.write.format(kind).save(str(tmp_path / kind))
    return tmp_path


def read(spark: SparkSession, folder: Path, kind: str = "parquet") -> DataFrame:
    schema = spark.read.format(kind).load(str(folder / kind)).schema
    return spark.readStream.schema(schema).format(kind).load(str(folder / kind))


def columns_read(frame: DataFrame, checkpoint: Path) -> str:
    """What the scan of the last batch says that it read."""
    plan = plan_of(frame, checkpoint)
    return next(line for line in plan.splitlines() if "ReadSchema" in line).split("ReadSchema: ")[1]


def plan_of(frame: DataFrame, checkpoint: Path) -> str:
    """The plan that the last batch ran with."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        plan: Any = _execution_of(query).lastExecution().executedPlan().toString()
    finally:
        query.stop()
    return str(plan)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_with_nothing_to_shed_no_column_is_read_for_it(spark: SparkSession, wide: Path, kind: str) -> None:
    kept = ss.shed(read(spark, wide, kind), "1 hour")
    assert columns_read(kept.select("c3"), wide / "state") == "struct<c3:int>"


@pytest.mark.parametrize("options", [{}, {"key": "user"}, {"protect": "c1 = 1"}, {"weight": "w"}], ids=str)
def test_with_nothing_to_shed_there_is_no_drop_in_the_plan(
    spark: SparkSession, wide: Path, options: dict[str, str]
) -> None:
    kept = ss.shed(read(spark, wide), "1 hour", **options)  # type: ignore[arg-type]
    plan = plan_of(kept.select("c3"), wide / "state")
    assert plan.count(") Filter") == plan.count(MARK) == 1, "the clock of a first batch, and nothing else"
    assert "xxhash64" not in plan
    assert "row_index" not in plan
    ss.shedder(kept).pin(0.5)
    assert "xxhash64" in plan_of(kept.select("c3"), wide / "other"), "it is there when needed"


def test_where_sparks_own_count_will_do_nothing_at_all_is_in_the_plan(spark: SparkSession, source: Path) -> None:
    """Rows of JSON have no place; and all that the source gives arrives."""
    kept = ss.shed(stream(spark, source), "1 hour", key="id", budget=False)
    handle = ss.shedder(kept)
    query = kept.writeStream.format("noop").option("checkpointLocation", str(source.parent / "s")).start()
    try:
        for number, keep in enumerate((None, None, 0.5, 0.5, None, None, 0.25)):
            handle.pin(keep)
            in_force(handle)
            put_rows(source, 100 * number, 100)
            query.processAllAvailable()
            wait_for(lambda rows=100 * (number + 1): handle.report().arrived == rows)  # type: ignore[misc]
            plan = _execution_of(query).lastExecution().executedPlan().toString()
            if number != 4:  # the first batch after a plan ended closes the gate
                assert (MARK in plan) == (keep is not None), "marks only while rows are dropped"
        assert [entry.sample.arrived for entry in handle.ledger.recent] == [100] * 7
        kept_rows = [entry.sample.kept for entry in handle.ledger.recent]
        assert [rows == 100 for rows in kept_rows] == [True, True, False, False, True, True, False]
    finally:
        query.stop()


def test_a_budget_takes_the_place_of_the_mark(spark: SparkSession, wide: Path) -> None:
    """One filter in a calm plan, whether or not the source numbers its rows, and no column is read for it."""
    kept = ss.shed(read(spark, wide), "1 hour")
    plan = plan_of(kept.select("c3"), wide / "state")
    assert plan.count(MARK) == 1
    assert "getAsBoolean" in plan
    assert "c4#" not in plan
    assert ss.shedder(kept).settle()
    report = ss.shedder(kept).report()
    assert (report.arrived, report.kept, report.cut) == (ROWS, ROWS, 0)


@pytest.mark.parametrize("budget", [True, False])
def test_rows_are_counted_at_the_drop_if_the_source_skips_some(
    spark: SparkSession, source: Path, budget: bool
) -> None:
    """A filter behind the drop, pushed down to the files: their readers leave out rows, and do not count them."""
    kept = ss.shed(stream(spark, source), "1 hour", key="id", budget=budget)
    handle = ss.shedder(kept)
    few = kept.where("id % 10 = 3 and user = 5")
    query = few.writeStream.format("noop").option("checkpointLocation", str(source.parent / "s")).start()
    try:
        for number in range(4):
            put_rows(source, 100 * number, 100)
            query.processAllAvailable()
            wait_for(lambda batches=number + 1: len(handle.ledger.recent) == batches)  # type: ignore[misc]
    finally:
        query.stop()
    assert [entry.sample.arrived for entry in handle.ledger.recent] == [100] * 4


def calm_plan(spark: SparkSession, frame: DataFrame, folder: Path) -> str:
    """The plan of a batch that is over soon, without the numbers that Spark gives to columns and codes."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(folder)).outputMode("update").start()
    try:
        query.processAllAvailable()
        plan = str(_execution_of(query).lastExecution().executedPlan().treeString())
    finally:
        query.stop()
    plan = re.sub(r"file:\S+|[0-9a-f-]{36}|InMemoryFileIndex.*?\]", "", plan)
    return re.sub(r"#\d+L?|plan_id=\d+", "", plan)


@pytest.mark.parametrize("options", [{}, {"key": "user"}, {"protect": "c1 = 1"}], ids=str)
def test_a_calm_job_runs_the_plan_that_it_would_run_without_us(
    spark: SparkSession, wide: Path, options: dict[str, str]
) -> None:
    """No filter, no hidden column, no hash: also where the source numbers its rows only if asked."""
    events = read(spark, wide)
    kept = ss.shed(events, "1 hour", budget=False, **options)  # type: ignore[arg-type]
    with_it = calm_plan(spark, kept.groupBy("c3").count(), wide / "kept")
    assert with_it == calm_plan(spark, events.groupBy("c3").count(), wide / "plain")
    assert ss.shedder(kept).settle()
    assert ss.shedder(kept).report().arrived == ROWS


def test_the_rule_for_files_goes_with_the_last_stream_that_needs_it(spark: SparkSession, wide: Path) -> None:
    session = spark.newSession()  # other tests have left streams open

    def rules() -> int:
        return int(session._jsparkSession.experimental().extraOptimizations().size())

    before = rules()
    first, second = (ss.shedder(ss.shed(read(session, wide), "1 hour")) for _ in range(2))
    assert rules() == before + 1
    first.close()
    assert rules() == before + 1
    second.close()
    assert rules() == before


def test_a_query_with_two_sources_is_counted_at_its_drop(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    kept = ss.shed(stream(spark, source), "1 hour", key="id")
    (tmp_path / "other").mkdir()
    both = kept.select("id").union(stream(spark, tmp_path / "other").select("id"))
    put_rows(source, 0, 100)
    put_rows(tmp_path / "other", 0, 50)
    plan = plan_of(both, tmp_path / "state")
    assert plan.count(MARK) == 2  # what arrived, and what came in time
    assert ss.shedder(kept).settle()
    assert ss.shedder(kept).report().arrived == 100


def test_filters_before_the_drop_are_pushed_down_to_the_source(spark: SparkSession, wide: Path) -> None:
    kept = ss.shed(read(spark, wide).where("c3 = 3"), "1 hour")
    assert "EqualTo(c3,3)" in plan_of(kept.select("c3"), wide / "state")


def test_a_drop_reads_a_rows_place_in_its_file_and_no_other_column(spark: SparkSession, wide: Path) -> None:
    kept = ss.shed(read(spark, wide), "1 hour")
    ss.shedder(kept).pin(0.5)
    assert "c4" not in columns_read(kept.select("c3"), wide / "state")
    assert ss.shedder(kept).settle()
    assert 0.4 * ROWS < ss.shedder(kept).report().kept < 0.6 * ROWS


def test_the_gate_closes_when_the_last_plan_that_drops_is_over(spark: SparkSession, source: Path) -> None:
    """A drop reads all columns where rows have no place; it must not go on doing so for ever after."""
    kept = ss.shed(stream(spark, source), "1 hour")
    handle = ss.shedder(kept)
    gate = handle._control._switches._data
    handle.pin(0.5)
    fill(source, 3, 300)
    query = kept.writeStream.format("noop").option("checkpointLocation", str(source.parent / "s")).start()
    try:
        query.processAllAvailable()
        assert gate.getBoolean(0)
        handle.pin(None)
        for round in range(20):
            fill(source, 1, 10, first=1000 + round * 10)
            query.processAllAvailable()
            if not gate.getBoolean(0):
                break
        assert not gate.getBoolean(0)
        assert handle._control.history.spans[-1].keep == 1.0
    finally:
        query.stop()


def test_rows_are_chosen_by_place_the_same_every_time_and_others_with_another_salt(
    spark: SparkSession, wide: Path
) -> None:
    seen: list[set[object]] = []
    for number, salt in enumerate(("a", "a", "b", None)):
        kept = ss.shed(read(spark, wide), "1 hour", salt=salt)
        ss.shedder(kept).pin(0.5)
        seen.append(ids(run_all(kept.select("id"), wide / f"state{number}", f"by_place_{number}")))
    assert seen[0] == seen[1]
    for other in seen[2:]:
        assert 0.2 * ROWS < len(seen[0] & other) < 0.3 * ROWS, "independent: a quarter is in both"


def test_where_rows_have_a_place(spark: SparkSession, wide: Path, source: Path) -> None:
    events = read(spark, wide)
    assert row_place(events)
    assert row_place(events.select("c1", "id").where("id > 3").alias("x"))
    # Several rows of one place, or rows of several sources: then their columns decide.
    for without in (
        events.select(F.explode(F.array("c1", "c2"))),
        events.union(events),
        read(spark, wide, "orc"),
        stream(spark, source),
    ):
        assert not row_place(without)


def test_columns_named_like_kafkas_are_no_place_unless_kafka_is_the_source(spark: SparkSession) -> None:
    """That Kafka's own are one is untested: there is no broker here."""
    rows = spark.readStream.format("rate").load()
    like = rows.select(
        F.lit("t").alias("topic"),
        F.lit(1).alias("partition"),
        F.col("value").alias("offset"),
        F.lit("x").alias("v"),
    )
    assert not row_place(like), "a stream that only looks like it"


def test_rows_without_a_key_are_on_their_own_where_they_have_a_place(spark: SparkSession, wide: Path) -> None:
    kept = ss.shed(read(spark, wide), "1 hour", key="user", weight="w")
    ss.shedder(kept).pin(0.1)
    rows = run_all(kept, wide / "state", "null_keys")
    without = [row for row in rows if row["user"] is None]
    assert 0.06 * ROWS / 2 < len(without) < 0.14 * ROWS / 2
    assert sum(row["w"] for row in without) == pytest.approx(ROWS / 2, rel=0.4)  # type: ignore[misc]


def test_elsewhere_no_key_is_one_key_and_not_always_the_first_to_stay(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    lines = [json.dumps({"id": i, "user": None, "priority": "low", "at": None}) for i in range(100)]
    (source / "a.json").write_text("\n".join(lines))
    fates = set()
    for number in range(12):
        kept = ss.shed(stream(spark, source), "1 hour", key="user", salt=f"salt {number}")
        ss.shedder(kept).pin(0.5)
        fates.add(len(run_all(kept, tmp_path / f"state{number}", f"null_key_{number}")))
    assert fates == {0, 100}


def test_a_drop_behind_a_drop_takes_other_rows(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """Two jobs in a row with the same key: the second must not find that all it gets has passed already."""
    fill(source, 1, 2000)
    first = ss.shed(stream(spark, source), "1 hour", key="id")
    second = ss.shed(first, "1 hour", key="id")
    handles = (ss.shedder(first), next(h for h in (_handle_of(second, "second"),) if h))
    handles[0].pin(0.5)
    handles[1].pin(0.6)
    rows = run_all(second, tmp_path / "state", "in_a_row")
    assert 0.25 * 2000 < len(rows) < 0.35 * 2000


def _handle_of(frame: DataFrame, which: str) -> ss.Shedder:
    from streamshed.spark.watch.session_monitor import SessionMonitor

    streams = SessionMonitor.streams_behind(frame)
    assert len(streams) == 2, which
    return next(s for s in streams if isinstance(s, ss.Shedder) and s.serial == max(t.serial for t in streams))


# Names.


def test_a_key_is_a_column_and_never_a_function_of_spark(spark: SparkSession, source: Path) -> None:
    events = stream(spark, source).withColumnRenamed("user", "whom")
    for name in ("user", "current_date", "current_timestamp", "id + 1", "rand()"):
        with pytest.raises(ss.InvalidArgument, match="key names a column that the stream does not have"):
            ss.shed(events, "1 hour", key=name)
    with pytest.raises(ss.InvalidArgument, match="arrived names a column"):
        ss.shed(events, "1 hour", arrived="current_timestamp")
    with pytest.raises(ss.InvalidArgument, match="key must name a column"):
        ss.shed(events, "1 hour", key=3)  # type: ignore[arg-type]


def test_a_map_is_no_key(spark: SparkSession, source: Path) -> None:
    events = stream(spark, source).withColumn("m", F.create_map("priority", "id"))
    with pytest.raises(ss.InvalidArgument, match="a type that Spark can hash"):
        ss.shed(events, "1 hour", key="m")


@pytest.mark.parametrize("key", ["a.b", "in.ner", "s.in.ner", "S.whom", "tick`s"])
def test_columns_with_dots_and_fields_of_structs(
    spark: SparkSession, source: Path, tmp_path: Path, key: str
) -> None:
    fill(source, 1, 400)
    events = stream(spark, source).select(
        "id",
        F.col("user").alias("a.b"),
        F.col("user").alias("in.ner"),
        F.struct(F.col("user").alias("in.ner"), F.col("user").alias("whom")).alias("s"),
        F.col("user").alias("tick`s"),
        F.col("at").alias("the.time"),
    )
    wanted = key if key != "S.whom" else "s.whom"
    kept = ss.shed(events, "1 hour", key=wanted, weight="w.w", arrived="the.time", measure=True)
    assert kept.columns == [*events.columns, "w.w"]
    ss.shedder(kept).pin(0.5)
    rows = run_all(kept, tmp_path / "state", f"dots{abs(hash(key))}")
    assert 0 < len(rows) < 400
    by_user = {user: sum(row["a.b"] == user for row in rows) for user in range(97)}
    assert all(count in (0, sum(i % 97 == user for i in range(400))) for user, count in by_user.items())
