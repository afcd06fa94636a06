"""A udf box of a network that drops rows by itself, by what they cost, on a real Spark."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.network import Builder, LoadAware, Network
from streamshed.network.graph import InvalidNetwork
from streamshed.network.spec.yaml import dump, parse
from streamshed.spark.network.run import RunningNetwork
from tests.spark.helpers import delivered, in_force, put_rows, stream, wait_for

pytestmark = pytest.mark.spark
ROWS = 300
AN_HOUR_AGO = datetime.now(timezone.utc) - timedelta(hours=1)
SCHEMA = "id LONG, user LONG, v DOUBLE, at TIMESTAMP"


def network(
    latency: str = "max 1 hour", on_error: str = "fail", load_aware: bool = True, **settings: Any
) -> Network:
    """One source, an expensive root, two outputs below it."""
    how = LoadAware(latency=latency, key=("user",), on_error=on_error, **settings) if load_aware else None
    return (
        Builder("roots", capacity=1.0)
        .source("s", SCHEMA, arrived="at", rate=1000)
        .filter("some", "s", "id >= 100", cost=1e-6)
        .udf("root", "some", "math:sqrt", ["v"], "root DOUBLE", load_aware=how, cost=1e-4)
        .filter("large", "root", "root > 15", cost=1e-6)
        .output("all", "root")
        .output("few", "large")
        .build()
    )


def events(spark: SparkSession, folder: Path, sign: int = 1) -> DataFrame:
    """Rows that came an hour ago: too late for most bounds, and not so long ago that nobody believes it."""
    rows = stream(spark, folder).withColumn("v", F.col("id").cast("double") * sign)
    rows = rows.withColumn("at", F.lit(AN_HOUR_AGO))
    return rows.select("id", "user", "v", "at").repartition(2)


def start(rows: DataFrame, what: Network, folder: Path) -> RunningNetwork:
    return ss.run(
        rows.sparkSession,
        what,
        sources={"s": rows},
        sinks={"all": "memory", "few": "memory"},
        policy="none",
        latency="1 hour",
        state=str(folder),
    )


def test_with_nothing_to_shed_it_is_an_ordinary_box(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        put_rows(tmp_path / "in", number * ROWS, ROWS)
    found = {}
    for kind in (True, False):
        # The rows are an hour old: any bound that they can be within is longer than that.
        made = network("max 100 hours", load_aware=kind)
        running = start(events(spark, tmp_path / "in"), made, tmp_path / str(kind))
        running.process_all_available()
        running.stop()
        found[kind] = {name: sorted(map(tuple, running.rows(name))) for name in ("all", "few")}
        assert delivered(running.report()) == {"all": 2 * ROWS - 100, "few": len(found[kind]["few"])}
    assert found[True] == found[False]
    assert len(found[True]["all"]) == 2 * ROWS - 100
    assert all(row[4] == math.sqrt(row[2]) for row in found[True]["all"])


def test_rows_without_time_are_dropped_and_counted_at_the_arc_in_front(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    running = start(events(spark, tmp_path / "in"), network("max 1 ms"), tmp_path / "state")
    handle = running.load_shedders["root"]
    try:
        put_rows(tmp_path / "in", 0, ROWS)  # nothing is known of costs yet: all are let in
        wait_for(lambda: running.report().arrived == ROWS)
        assert running.report().by_output["all"].delivered == ROWS - 100
        wait_for(lambda: handle.order is not None and handle.order.table > 0)
        in_force(handle)
        put_rows(tmp_path / "in", ROWS, ROWS)  # all came long ago
        wait_for(lambda: running.report().arrived == 2 * ROWS)
        handle.mode = "off"
        in_force(handle)
        put_rows(tmp_path / "in", 2 * ROWS, ROWS)
        wait_for(lambda: running.report().arrived == 3 * ROWS)
    finally:
        running.stop()
    ids = {row.id for row in running.rows("all")}
    assert ids == {*range(100, ROWS), *range(2 * ROWS, 3 * ROWS)}
    report = running.report()
    assert report.by_arc["some->root"].shed == ROWS
    assert report.by_output["all"].delivered == len(ids)
    # Expected is what would have come without drops.
    assert report.by_output["all"].expected == pytest.approx(3 * ROWS - 100, rel=0.2)
    told = handle.report()
    assert (told.arrived, told.kept, told.shed, told.unseen) == (3 * ROWS - 100, len(ids), ROWS, 0)
    assert handle.costs["learning_rows"] == len(ids)


def test_the_settings_of_a_box_are_its_shedders(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    settings = {"window": 100, "tolerance": 0.2, "epsilon": 1.0, "delta": 0.3, "floor": 0.25}
    running = start(events(spark, tmp_path / "in"), network("max 1 ms", **settings), tmp_path / "state")
    handle = running.load_shedders["root"]
    try:
        put_rows(tmp_path / "in", 0, ROWS)
        wait_for(lambda: handle.order is not None and handle.order.table > 0)
        in_force(handle)
        put_rows(tmp_path / "in", ROWS, ROWS)
        wait_for(lambda: running.report().arrived == 2 * ROWS)
    finally:
        running.stop()
    assert handle.costs["seconds"].shape == (2, 3)  # ⌈log₂ 1/0.3⌉ rows, ⌈e/1⌉ columns
    assert (handle._rules.operator.window, handle._rules.operator.tolerance) == (100, 0.2)
    assert handle.floor == 0.25
    late = [row.id for row in running.rows("all") if row.id >= ROWS]
    assert ROWS / 4 <= len(late) <= ROWS / 4 + 2


def test_rows_on_which_the_function_fails_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put_rows(tmp_path / "in", 0, ROWS)
    made = network("max 100000 hours", on_error="skip")
    running = start(events(spark, tmp_path / "in", sign=-1), made, tmp_path / "state")
    running.process_all_available()
    running.stop()
    assert running.rows("all") == []
    report = running.load_shedders["root"].report()
    assert (report.arrived, report.failed, report.shed) == (ROWS - 100, ROWS - 100, 0)
    assert "math domain error" in running.load_shedders["root"].errors[0]
    assert running.report().by_output["all"].delivered == 0
    assert running.report().by_arc["some->root"].shed == 0


def test_a_network_goes_on_with_what_its_box_has_learned(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put_rows(tmp_path / "in", 0, ROWS)
    for run in range(2):
        running = start(events(spark, tmp_path / "in"), network("max 1 ms"), tmp_path / "state")
        handle = running.load_shedders["root"]
        running.process_all_available()
        wait_for(lambda handle=handle: handle.order is not None and handle.order.table > 0)  # type: ignore[misc]
        running.stop()
        assert handle.report().arrived == (run + 1) * ROWS - 100
        put_rows(tmp_path / "in", (run + 1) * ROWS, ROWS)
    # The second run knew the costs from the first, and its rows had waited too long.
    assert handle.report().shed == ROWS


def test_the_spec_says_it_and_the_words_come_back() -> None:
    text = """
network: n
sources: {s: {schema: "user LONG, v DOUBLE, at TIMESTAMP", arrived: at}}
boxes:
  root:
    {op: udf, input: s, function: "math:sqrt", reads: [v], adds: "root DOUBLE",
     load_aware: {latency: "avg 2 seconds over 1000 rows", key: user}}
outputs: {o: {input: root}}
"""
    found = parse(text).nodes["root"]
    how = LoadAware(latency="avg 2 seconds over 1000 rows", key=("user",))
    assert found.load_aware == how  # type: ignore[union-attr]
    assert parse(dump(parse(text))).nodes["root"] == found


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ('{latency: "avg 2 seconds"}', "key"),
        ('{latency: "avg 2 seconds", key: who}', "no such column"),
        ('{latency: "avg 2 seconds", key: []}', "no column"),
        ('{latency: "avg 2 seconds", key: user, on_error: weep}', "no such choice"),
    ],
)
def test_what_is_wrong_in_a_spec_is_told(extra: str, words: str) -> None:
    text = f"""
network: n
sources: {{s: {{schema: "user LONG, v DOUBLE"}}}}
boxes: {{root: {{op: udf, input: s, function: "math:sqrt", reads: [v], adds: "r DOUBLE", load_aware: {extra}}}}}
outputs: {{o: {{input: root}}}}
"""
    with pytest.raises(InvalidNetwork, match=words):
        parse(text)


def test_what_cannot_run_is_told_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = events(spark, tmp_path / "in")
    with pytest.raises(InvalidNetwork, match=r"root\.load_aware\.latency"):
        start(rows, network("soon"), tmp_path / "state")
    how = LoadAware(latency="avg 1 second", key=("user",))
    timeless = (
        Builder("n").source("s", SCHEMA).udf("root", "s", "math:sqrt", ["v"], "r DOUBLE", load_aware=how)
    ).output("all", "root")
    with pytest.raises(InvalidNetwork, match="no arrival time"):
        ss.run(spark, timeless.build(), sources={"s": rows}, sinks={"all": "memory"})
    windowed = (
        Builder("n")
        .source("s", SCHEMA, arrived="at", watermark="1 minute")
        .udf("root", "s", "math:sqrt", ["v"], "r DOUBLE", load_aware=how)
        .aggregate("w", "root", "1 minute", {"n": "count(*)"})
        .output("all", "w")
    )
    with pytest.raises(InvalidNetwork, match="not above a join or a window"):
        ss.run(spark, windowed.build(), sources={"s": rows}, sinks={"all": "memory"})
