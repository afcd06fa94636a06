"""Every mistake is told at the call, with what was got and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.spark import session
from tests.spark.helpers import stream

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("arguments", "problem", "detail"),
    [
        ({"latency": 0}, "latency must be a length of time above 0", "0"),
        ({"latency": "fast"}, "latency must be a length of time above 0", "fast"),
        (
            {"arrived": "when"},
            "arrived names a column that the stream does not have",
            "id, user, priority, at",
        ),
        ({"arrived": "id"}, "arrival column must be a timestamp", "bigint"),
        ({"key": "whom"}, "key names a column that the stream does not have", "'whom'"),
        ({"key": ["user", "whom"]}, "key names a column that the stream does not have", "'whom'"),
        ({"key": []}, "key must name at least one column", "empty"),
        ({"key": 3}, "", ""),
        ({"protect": "priority = "}, "protect is not a condition on this stream", "priority = "),
        ({"protect": "nobody = 1"}, "protect is not a condition on this stream", "nobody"),
        ({"protect": "id + 1"}, "protect must be true or false", "bigint"),
        ({"floor": -0.1}, "floor must be a share between 0 and 1", "-0.1"),
        ({"floor": 2}, "floor must be a share between 0 and 1", "2"),
        ({"floor": "low"}, "floor must be a share between 0 and 1", "low"),
        ({"mode": "strict"}, "there is no such mode", "dry-run"),
        ({"rotate": "often"}, "rotate must be a length of time above 0", "often"),
        ({"weight": "id"}, "the weight column exists already", "id"),
        ({"sic": "id"}, "the sic column exists already", "id"),
        ({"weight": "w", "sic": "w"}, "the sic column exists already", "w"),
        ({"state": "/proc/nowhere/at-all"}, "control file cannot be written", "/proc/nowhere"),
        ({"state": "nofs://x/y"}, "control folder cannot be used", "nofs"),
    ],
)
def test_arguments(
    spark: SparkSession, source: Path, arguments: dict[str, Any], problem: str, detail: str
) -> None:
    if arguments == {"key": 3}:
        with pytest.raises((ss.InvalidArgument, TypeError)):
            ss.shed(stream(spark, source), "4 seconds", key=3)  # type: ignore[arg-type]
        return
    with pytest.raises(ss.InvalidArgument) as caught:
        ss.shed(stream(spark, source), **({"latency": "4 seconds"} | arguments))
    assert problem in str(caught.value)
    assert detail in str(caught.value)
    assert "hint:" in str(caught.value)


def test_not_a_dataframe() -> None:
    with pytest.raises(ss.InvalidArgument, match="takes a streaming DataFrame"):
        ss.shed([1, 2, 3], "4 seconds")  # type: ignore[arg-type]


def test_a_batch_dataframe(spark: SparkSession) -> None:
    with pytest.raises(ss.InvalidArgument, match="this one is a batch"):
        ss.shed(spark.range(3), "4 seconds")


def test_a_handle_of_something_else(spark: SparkSession, source: Path) -> None:
    for other in (spark.range(3), stream(spark, source), None):
        with pytest.raises(ss.InvalidArgument, match="not a shed stream"):
            ss.shedder(other)  # type: ignore[arg-type]


def test_settings_are_checked_while_running_too(spark: SparkSession, source: Path) -> None:
    handle = ss.shedder(ss.shed(stream(spark, source), "4 seconds"))
    for change in ({"mode": "on"}, {"latency": "0 s"}, {"floor": 3}):
        with pytest.raises(ss.InvalidArgument):
            handle.configure(**change)  # type: ignore[arg-type]
    assert (handle.mode.value, handle.latency, handle.floor) == ("enforce", 4.0, 0.02)


def test_measuring_without_an_arrival_column(spark: SparkSession, source: Path) -> None:
    with pytest.raises(ss.InvalidArgument, match="measure needs the arrival column"):
        ss.shed(stream(spark, source), "4 seconds", measure=True)


def test_an_old_spark(spark: SparkSession, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spark.__dict__, "version", "3.5.1")
    with pytest.raises(ss.EnvironmentProblem, match=r"Spark 4\.0 or newer"):
        ss.shed(stream(spark, source), "4 seconds")


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ss.EnvironmentProblem, match="needs a Java runtime") as caught:
        session.check_java()
    assert "apt-get install" in str(caught.value)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ss.EnvironmentProblem, match="has no bin/java"):
        session.check_java()


@pytest.mark.parametrize(
    ("said", "works"), [('1.8.0_392"', False), ('11.0.2"', False), ('17.0.9"', True), ('25"', True)]
)
def test_java_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, works: bool) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if works:
        assert session.check_java() == java
    else:
        with pytest.raises(ss.EnvironmentProblem, match="Java 17 or newer"):
            session.check_java()


def test_a_protect_given_as_a_column(spark: SparkSession, source: Path) -> None:
    kept = ss.shed(stream(spark, source), "4 seconds", protect=F.col("priority") == "high")
    assert kept.schema == stream(spark, source).schema
