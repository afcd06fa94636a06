"""What `calibrate` measures, and that it leaves nothing behind."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.network import Builder, Network
from streamshed.spark.network.calibrate import calibrate, with_costs

pytestmark = pytest.mark.spark


def network() -> Network:
    """A parse and a step that two read each, and drops by value on one arc."""
    return (
        Builder("n")
        .source("s", "id LONG, v DOUBLE", rate=100, parse={"format": "json"}, values={"v": (0, 100)})
        .filter("half", "s", "v < 50", selectivity=0.9)
        .map("all", "s", {"id": "id"})
        .map("twice", "half", {"v": "2 * v"})
        .map("thrice", "half", {"v": "3 * v"})
        .output("a", "all")
        .output("b", "twice", value=("v", [[0, 50, 0.1], [50, 100, 1.0]]))
        .output("c", "thrice")
        .build()
    )


def test_every_box_and_parse_is_measured_and_nothing_is_left(spark: SparkSession) -> None:
    lines = [json.dumps({"id": number, "v": number % 100}) for number in range(2000)]
    rows = spark.createDataFrame([(line,) for line in lines], "value STRING")
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    views = {table.name for table in spark.catalog.listTables()}
    found = {each.box: each for each in calibrate(spark, network(), {"s": rows}, repeats=1)}
    assert set(found) == {"s", "half", "all", "twice", "thrice"}
    assert all(each.cost > 0 for each in found.values())
    assert found["half"].selectivity == 0.5
    assert {name: each.rows for name, each in found.items()} == {
        "s": 2000, "half": 2000, "all": 2000, "twice": 1000, "thrice": 1000,
    }  # fmt: skip
    measured = with_costs(network(), found)
    assert {box.name: box.cost for box in measured.boxes} == {
        name: each.cost for name, each in found.items() if name != "s"
    }
    assert {table.name for table in spark.catalog.listTables()} == views
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before


def test_a_box_that_several_read_is_charged_with_what_sharing_takes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reader looks at all of its rows, to say which it drops."""
    asked: list[str] = []
    sql = SparkSession.sql

    def heard(self: SparkSession, text: str) -> DataFrame:
        asked.append(text)
        return sql(self, text)

    monkeypatch.setattr(SparkSession, "sql", heard)
    fields = F.struct("id", F.col("id").cast("double").alias("v"))
    rows = spark.range(100).select(F.to_json(fields).alias("value"))
    list(calibrate(spark, network(), {"s": rows}, repeats=1))
    looks = [text for text in asked if text.startswith("SELECT 1 FROM") and "streamshed_shared" in text]
    assert len(looks) == 2 * 4 * 2, "two turns, with the rows and without, of four readers"
    assert any("BETWEEN" in text or "<" in text for text in looks), "by value too"
