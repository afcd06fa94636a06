"""A network on a real Spark: what its outputs get, what is counted, and what a plan drops."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.network import Builder, Network
from streamshed.spark.network.fused_query import literals
from streamshed.spark.network.network_query import marks_for
from streamshed.spark.network.query_layout import NetworkLayout
from streamshed.spark.network.slots import Slots
from streamshed.spark.network.sql import Parser, Writer
from tests.spark.helpers import delivered, in_force, wait_for

pytestmark = pytest.mark.spark
ROWS = 2000


def put(folder: Path, rows: int = ROWS, files: int = 3, seed: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    for number in range(files):
        lines = (
            json.dumps({"id": number * rows + i, "v": round(float(x), 4), "kind": f"k{i % 3}"})
            for i, x in enumerate(rng.uniform(0, 100, rows))
        )
        (folder / f".{number}").write_text("\n".join(lines) + "\n")
        os.replace(folder / f".{number}", folder / f"{number}.json")


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = "id LONG, v DOUBLE, kind STRING"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def triage() -> Network:
    """One source, a shared map, three outputs."""
    return (
        Builder("triage", capacity=1.0)
        .source("s", "id LONG, v DOUBLE, kind STRING", rate=1000, values={"v": (0, 100)})
        .map("scaled", "s", {"id": "id", "v": "v / 2 + 0.1", "kind": "kind"}, cost=1e-5)
        .filter("high", "scaled", "v > 30", cost=1e-5, selectivity=0.4)
        .filter("low", "scaled", "v <= 10 AND kind != 'k1'", cost=1e-5, selectivity=0.13)
        .output("all", "scaled")
        .output("alarms", "high", value=("v", [[0, 40, 0.2], [40, 51, 1.0]]))
        .output("calm", "low")
        .build()
    )


ANSWERS = {
    "all": "SELECT id, v / 2 + 0.1 AS v, kind FROM s",
    "alarms": "SELECT id, v / 2 + 0.1 AS v, kind FROM s WHERE v / 2 + 0.1 > 30",
    "calm": "SELECT id, v / 2 + 0.1 AS v, kind FROM s WHERE v / 2 + 0.1 <= 10 AND kind != 'k1'",
}


def test_with_nothing_to_shed_each_output_equals_the_same_sql_over_all_of_the_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "in")
    network = triage()
    running = ss.run(
        spark,
        network,
        sources={"s": stream(spark, tmp_path / "in")},
        sinks=dict.fromkeys(ANSWERS, "memory"),
        latency="1 hour",
        state=str(tmp_path / "state"),
        trigger={"availableNow": True},
    )
    running.await_termination()
    spark.read.schema("id LONG, v DOUBLE, kind STRING").json(str(tmp_path / "in")).createOrReplaceTempView("s")
    for output, text in ANSWERS.items():
        assert Counter(running.rows(output)) == Counter(spark.sql(text).collect()), output
    report = running.report()
    assert report.arrived == report.by_source["s"].arrived == 3 * ROWS
    assert delivered(report) == {output: len(running.rows(output)) for output in ANSWERS}
    assert report.shed == 0
    assert {rows.shed for rows in report.by_arc.values()} == {0}


def test_drops_take_what_the_plan_says_and_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    running = ss.run(
        spark,
        triage(),
        sources={"s": stream(spark, tmp_path / "in")},
        sinks=dict.fromkeys(ANSWERS, "memory"),
        latency="1 hour",
        state=str(tmp_path / "state"),
    )
    running.pin([ss.Drop("s->scaled", 0.5), ss.Drop("scaled->high", 0.0, "v < 40"), ss.Drop("scaled->low", 0.2)])
    in_force(running)
    put(tmp_path / "in")
    running.process_all_available()
    running.stop()
    got = {output: running.rows(output) for output in ANSWERS}
    assert len(got["all"]) == pytest.approx(1.5 * ROWS, abs=150)  # four standard deviations
    everything = {row.id for row in got["all"]}
    assert {row.id for row in got["alarms"]} == {row.id for row in got["all"] if row.v >= 40}
    calm = {row.id for row in got["all"] if row.v <= 10 and row.kind != "k1"}
    assert {row.id for row in got["calm"]} < calm <= everything
    assert len(got["calm"]) == pytest.approx(0.2 * len(calm), abs=4 * (0.16 * len(calm)) ** 0.5)
    report = running.report()
    assert report.arrived == report.by_source["s"].arrived == 3 * ROWS
    assert report.by_arc["s->scaled"].arrived == 3 * ROWS
    assert report.by_arc["s->scaled"].passed == len(got["all"]) == report.by_arc["scaled->low"].arrived
    assert report.by_arc["scaled->low"].passed == pytest.approx(0.2 * len(got["all"]), abs=100)
    assert delivered(report) == {output: len(rows) for output, rows in got.items()}


def test_a_drop_where_none_can_be_made_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    sources = {"s": stream(spark, tmp_path / "in")}
    running = ss.run(spark, triage(), sources=sources, sinks=dict.fromkeys(ANSWERS, "memory"))
    try:
        with pytest.raises(ss.InvalidArgument, match="no drop can be made on this arc"):
            running.pin([ss.Drop("high->alarms", 0.5)])
    finally:
        running.stop()


def test_an_overload_is_shed_and_settings_change_while_it_runs(spark: SparkSession) -> None:
    """A sink that takes half a millisecond a row, and more than two thousand rows a second.

    Not many more: before anything is known of a row's cost, each batch is longer than the last by that factor. A
    machine with other things to do may take ten seconds for the first.
    """

    def slow(rows: DataFrame, number: int) -> None:
        time.sleep(rows.count() / 2000)

    rows = spark.readStream.format("rate").option("rowsPerSecond", 2400).load()
    network = (
        Builder("burst")
        .source("s", "value LONG, timestamp TIMESTAMP", arrived="timestamp", rate=2400)
        .filter("f", "s", "value >= 0", cost=1e-3)
        .output("o", "f")
        .build()
    )
    running = ss.run(spark, network, sources={"s": rows}, sinks={"o": slow}, policy="random", latency="3 seconds")
    plans: list[ss.Plan] = []
    running.on_plan(plans.append)
    try:
        wait_for(lambda: running.report().shed > 0, seconds=120)
        # At first it is the batches' time that runs out; then the plan spreads the loss.
        wait_for(lambda: bool(running.plan.drops), seconds=120)
        assert running.plan.drops[0].at == "s->f"
        assert "would take" in running.plan.reason
        running.policy = "lsrm-random"
        wait_for(lambda: running.plan.reason.startswith("lsrm-random"))
        running.policy = "latency"
        wait_for(lambda: running.plan.reason.startswith("latency"))
        running.mode = "off"
        assert not running.plan.drops
        assert running.limit is not None
        assert running.load > running.limit
    finally:
        running.stop()
    assert running.failure() is None  # stopped in the middle of a batch, which is no failure
    report = running.report()
    assert report.arrived == report.kept + report.shed == report.by_arc["s->f"].passed + report.by_arc["s->f"].shed
    assert report.by_output["o"].delivered == report.by_arc["s->f"].passed
    assert plans


def test_json_is_parsed_once_whatever_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would move filters and drops below the parse, and parse for each mention of a field."""
    network = (
        Builder("late")
        .source("s", "id LONG, v DOUBLE", parse="json", values={"v": (0, 100)})
        .filter("f", "s", "v > 10")
        .output("o", "f", value=("v", [[0, 50, 0.1], [50, 100, 1.0]]))
        .build()
    )
    put(tmp_path / "in")
    spark.read.text(str(tmp_path / "in")).createOrReplaceTempView("raw_lines")
    layout, slots = NetworkLayout.of(network).queries[0], Slots.of(network)
    parser = Parser.of(network.sources[0], ["value"])
    numbers = slots.encode([ss.Drop("s->f", 0.0, "v < 50")])
    for dropping in (False, True):
        writer = Writer(
            layout,
            slots,
            marks_for(layout, slots),
            {"s": "raw_lines"},
            {},
            lambda on, dropping=dropping: dropping and on == "s->f",  # type: ignore[misc]
            literals(slots, numbers),
            {},
            {"s": parser},
        )
        rows = spark.sql(writer.rows("o"))
        assert rows._jdf.queryExecution().executedPlan().toString().count("from_json") == 1
        assert rows.where("v < 50").isEmpty() is dropping
