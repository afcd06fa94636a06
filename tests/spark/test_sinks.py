"""Where the outputs of a network are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamshed.spark.network.sinks import FileSink, sink_for

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_files_may_have_a_relative_path_as_in_the_docs(spark: SparkSession, tmp_path: Path, format: str) -> None:
    path = os.path.relpath(tmp_path / "out" / "minutes")
    sink = sink_for(spark, "headquarters", {"format": format, "options": {"path": path}})
    assert isinstance(sink, FileSink)
    assert sink.path == f"file:{tmp_path}/out/minutes"
    for batch, rows in ((0, 5), (1, 3), (1, 3)):  # a batch that runs again counts once
        sink(spark.range(rows), batch)
    assert spark.read.format(format).load(str(tmp_path / "out" / "minutes")).count() == 8


def test_an_absolute_path_and_one_with_a_scheme_stay(spark: SparkSession, tmp_path: Path) -> None:
    for path in (str(tmp_path / "out"), f"file:{tmp_path}/out", f"file://{tmp_path}/out"):
        sink = sink_for(spark, "o", {"format": "json", "options": {"path": path}})
        assert isinstance(sink, FileSink)
        assert sink.path.replace("file://", "file:") == f"file:{tmp_path}/out"
