"""`ss.handle`: from whatever is at hand to the handle of what sheds there; the same rules for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.network import Builder, Network
from tests.spark.helpers import fill, stream

pytestmark = pytest.mark.spark


def start(rows: DataFrame, checkpoint: Path) -> StreamingQuery:
    return rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


@pytest.fixture
def kept(spark: SparkSession, source: Path) -> Iterator[DataFrame]:
    frame = ss.shed(stream(spark, source), "1 minute", name="handles-clicks")
    yield frame
    ss.handle(frame).close()


def network() -> Network:
    return (
        Builder("handles_pair")
        .source("events", "id LONG", rate=100)
        .filter("odd", "events", "id % 2 = 1", selectivity=0.5)
        .output("rows", "odd")
        .build()
    )


def test_by_frame_query_and_name(kept: DataFrame, source: Path) -> None:
    handle = ss.handle(kept)
    assert isinstance(handle, ss.Shedder)
    assert ss.handle(kept.select("id").where("id > 3")) is handle
    assert ss.handle("handles-clicks") is handle
    assert ss.handle(handle) is handle
    fill(source, 1, 10)
    query = start(kept, source.parent / "state")
    try:
        assert ss.handle(query) is handle
    finally:
        query.stop()


def test_of_a_running_network(spark: SparkSession, source: Path) -> None:
    rows = stream(spark, source).select("id")
    with ss.run(spark, network(), sources={"events": rows}, sinks={"rows": "noop"}) as running:
        assert ss.handle("handles_pair") is running
        (query,) = running.queries.values()
        assert ss.handle(query) is running


def test_nobody_sheds_there(spark: SparkSession, kept: DataFrame, source: Path) -> None:
    plain = stream(spark, source)
    with pytest.raises(ss.InvalidArgument, match="nobody sheds there") as error:
        ss.handle(plain)
    assert "handles-clicks" in str(error.value)
    with pytest.raises(ss.InvalidArgument, match=r"nobody sheds there\n.*'handles-click'"):
        ss.handle("handles-click")
    with pytest.raises(ss.InvalidArgument, match="found by a DataFrame"):
        ss.handle(3)  # type: ignore[arg-type]


def test_several_sheds_in_one_query(spark: SparkSession, kept: DataFrame, source: Path) -> None:
    other = ss.shed(stream(spark, source), "1 minute", name="handles-views")
    with ss.handle(other), pytest.raises(ss.InvalidArgument, match="several handles") as error:
        ss.handle(kept.unionByName(other))
    assert "handles-clicks" in str(error.value)
    assert "handles-views" in str(error.value)


def test_a_closed_one_is_not_found(spark: SparkSession, source: Path) -> None:
    frame = ss.shed(stream(spark, source), "1 minute", name="handles-gone")
    ss.handle(frame).close()
    with pytest.raises(ss.InvalidArgument, match="nobody sheds there"):
        ss.handle("handles-gone")


def test_a_network_has_a_floor_like_a_stream(spark: SparkSession, source: Path) -> None:
    rows = stream(spark, source).select("id")
    with pytest.raises(ss.InvalidArgument, match="floor"):
        ss.run(spark, network(), sources={"events": rows}, sinks={"rows": "noop"}, floor=2.0)
    with ss.run(spark, network(), sources={"events": rows}, sinks={"rows": "noop"}, floor=0.1) as running:
        assert running.floor == 0.1
        running.floor = 0.2
        assert running.floor == 0.2
        for name in ("flor", "report", "plan", "sinks"):
            with pytest.raises(AttributeError, match=f"RunningNetwork has no setting '{name}'"):
                setattr(running, name, 0.3)
