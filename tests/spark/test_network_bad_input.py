"""What is wrong with a network on Spark is told before any query starts, with the box named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.network import Builder

pytestmark = pytest.mark.spark


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "in").mkdir()
    return spark.readStream.schema("id LONG, v DOUBLE, name STRING, at TIMESTAMP").json(str(tmp_path / "in"))


def start(spark: SparkSession, builder: Builder, rows: DataFrame | None, **keywords: object) -> None:
    network = builder.build()
    sinks = {output.name: "memory" for output in network.outputs}
    sources = {} if rows is None else {"s": rows}
    running = ss.run(spark, network, sources=sources, **({"sinks": sinks} | keywords))  # type: ignore[arg-type]
    running.stop()


def refused(
    spark: SparkSession, builder: Builder, rows: DataFrame | None, *words: str, **keywords: object
) -> None:
    before = len(spark.streams.active)
    with pytest.raises(ss.InvalidArgument) as caught:
        start(spark, builder, rows, **keywords)
    for word in words:
        assert re.search(word, str(caught.value)), str(caught.value)
    assert len(spark.streams.active) == before


def source(schema: str = "id LONG, v DOUBLE, name STRING, at TIMESTAMP", **keywords: object) -> Builder:
    return Builder("n").source("s", schema, **keywords)  # type: ignore[arg-type]


def test_a_column_that_the_stream_lacks(spark: SparkSession, rows: DataFrame) -> None:
    builder = source("id LONG, weight DOUBLE").filter("f", "s", "weight > 1").output("o", "f")
    refused(spark, builder, rows, "sources.s.schema.weight", "lacks this column")


def test_a_column_of_another_type(spark: SparkSession, rows: DataFrame) -> None:
    builder = source("id LONG, name DOUBLE").output("o", "s")
    refused(spark, builder, rows, "sources.s.schema.name", "string", "cast it")


def test_types_that_do_not_compare(spark: SparkSession, rows: DataFrame) -> None:
    builder = source().filter("odd", "s", "v > name").output("o", "odd")
    refused(spark, builder, rows, "boxes.odd", "a number and text do not compare")
    builder = source().filter("odd", "s", "at > v").output("o", "odd")
    refused(spark, builder, rows, "boxes.odd", "DATATYPE_MISMATCH")


def test_a_join_without_a_watermark(spark: SparkSession, rows: DataFrame) -> None:
    builder = (
        source(arrived="at")
        .map("l", "s", {"id": "id", "at": "at"})
        .map("r", "s", {"id": "id", "v": "v", "seen": "at"})
        .join("pair", ["l", "r"], on=["id"], within="1 second")
        .output("o", "pair")
    )
    refused(spark, builder, rows, "boxes.pair", "watermark")


def test_a_window_without_a_time(spark: SparkSession, rows: DataFrame) -> None:
    builder = source().aggregate("w", "s", "1 minute", {"n": "count(*)"}).output("o", "w")
    refused(spark, builder, rows, "boxes.w", "no time")


def test_two_outputs_to_one_place(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    place = {"format": "json", "options": {"path": str(tmp_path / "out")}}
    builder = source().filter("f", "s", "v > 1").output("o", "f").output("p", "f")
    refused(spark, builder, rows, "outputs.p.write", "one place", sinks={"o": place, "p": place})


def test_nowhere_to_read_from_or_to_write_to(spark: SparkSession, rows: DataFrame) -> None:
    builder = source().output("o", "s")
    refused(spark, builder, None, "sources.s", "nothing says where its rows come from")
    refused(spark, builder, rows, "outputs.o", "nothing says where its rows go", sinks={})


def test_an_unknown_format(spark: SparkSession, rows: DataFrame) -> None:
    builder = source(read={"format": "wax"}).output("o", "s")
    refused(spark, builder, None, "sources.s.read", "wax")
    builder = source().output("o", "s")
    refused(spark, builder, rows, "outputs.o.write", "wax", sinks={"o": {"format": "wax"}})


def test_a_missing_file(spark: SparkSession, tmp_path: Path) -> None:
    read = {"format": "json", "options": {"path": str(tmp_path / "nowhere")}}
    refused(spark, source(read=read).output("o", "s"), None, "sources.s.read", "nowhere")


def test_a_function_that_is_not_there(spark: SparkSession, rows: DataFrame) -> None:
    builder = source().udf("u", "s", "nowhere:score", ["v"], "score DOUBLE").output("o", "u")
    refused(spark, builder, rows, "boxes.u.function", "nowhere")


def test_a_batch_for_a_stream(spark: SparkSession) -> None:
    batch = spark.range(3)
    refused(spark, source("id LONG").output("o", "s"), batch, "sources.s", "not a streaming DataFrame")


def test_a_policy_or_mode_that_does_not_exist(spark: SparkSession, rows: DataFrame) -> None:
    builder = source().output("o", "s")
    refused(spark, builder, rows, "no such policy", policy="best")
    refused(spark, builder, rows, "no such mode", mode="maybe")
    refused(spark, builder, rows, "latency", latency="soon")


def test_what_fails_while_running_stops_the_network_with_sparks_words(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    (tmp_path / "in" / "0.json").write_text('{"id": 1, "v": 2.0, "name": "x"}\n')

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("the disk is full")

    network = source().filter("f", "s", "v > 1").output("o", "f").output("p", "s").build()
    running = ss.run(spark, network, sources={"s": rows}, sinks={"o": fail, "p": "memory"})
    with pytest.raises(ss.StreamshedError, match="the disk is full"):
        running.await_termination()
    assert not any(query.isActive for query in running.queries.values())
