"""With nothing to shed a network gives what plain Spark gives; with shedding, a part of that."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import streamshed as ss
from streamshed.network import Builder, Network
from streamshed.network.generate import NetworkShape, generate
from streamshed.spark.network.slots import Slots
from tests.networks import random_network
from tests.spark.helpers import delivered
from tests.spark.plain import answers

pytestmark = pytest.mark.spark


def fill(
    spark: SparkSession, network: Network, folder: Path, rows: int, seed: int, keys: int = 20
) -> dict[str, DataFrame]:
    """Files for every source, for two batches; the batch DataFrames over them."""
    rng = np.random.default_rng(seed)
    found = {}
    for source in network.sources:
        path = folder / source.name
        path.mkdir(parents=True)
        columns: dict[str, pa.Array] = {}
        for column in source.schema:
            if column.type == "TIMESTAMP":
                micros = (1.7e15 + np.sort(rng.integers(0, 600_000, rows)) * 1000).astype("int64")
                columns[column.name] = pa.array(micros, pa.timestamp("us", tz="UTC"))
            elif column.type == "INT":
                columns[column.name] = pa.array(rng.integers(0, keys, rows), pa.int32())
            else:
                columns[column.name] = pa.array(rng.uniform(0, 100, rows).round(6))
        table = pa.table(columns)
        for part in range(2):
            half = table.slice(part * rows // 2, rows // 2)
            parquet.write_table(half, path / f"{part}.parquet")
        found[source.name] = spark.read.parquet(str(path))
    return found


def streams(spark: SparkSession, batches: dict[str, DataFrame], folder: Path) -> dict[str, DataFrame]:
    return {
        name: spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, rows in batches.items()
    }


def run_all(
    spark: SparkSession,
    network: Network,
    sources: dict[str, DataFrame],
    state: Path,
    drops: list[ss.Drop] | None = None,
) -> tuple[dict[str, Counter[Row]], ss.Report]:
    running = ss.run(
        spark,
        network,
        sources=sources,
        sinks={output.name: "memory" for output in network.outputs},
        latency="1 hour",
        state=str(state),
        trigger={"availableNow": True},
        pin=drops,
    )
    running.await_termination()
    return {output.name: Counter(running.rows(output.name)) for output in network.outputs}, running.report()


def some_drops(network: Network, seed: int) -> list[ss.Drop]:
    draw = random.Random(seed)
    return [
        ss.Drop(name, draw.choice((0.0, 0.3, 0.8)), draw.choice((None, "x < 60")) if slot.field == "x" else None)
        for name, slot in Slots.of(network).slots.items()
        if draw.random() < 0.6
    ]


def generated(seed: int) -> Network:
    if seed % 2:
        return random_network(seed, sharing=True, boxes=8, sources=2)
    return generate(
        NetworkShape(queries=3, boxes=9, mix={"filter": 5.0, "union": 2.0, "map": 2.0}, shared=2), seed=seed
    )


@pytest.mark.parametrize("seed", range(int(os.environ.get("STREAMSHED_NETWORKS", "12"))))
def test_generated_networks_answer_like_plain_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    network = generated(seed)
    batches = fill(spark, network, tmp_path / "in", rows=100, seed=seed)
    full = answers(network, batches)
    got, report = run_all(spark, network, streams(spark, batches, tmp_path / "in"), tmp_path / "state")
    assert got == full
    assert delivered(report) == {name: rows.total() for name, rows in full.items()}
    drops = some_drops(network, seed)
    part, report = run_all(spark, network, streams(spark, batches, tmp_path / "in"), tmp_path / "less", drops)
    for name, rows in part.items():
        assert rows <= full[name], name
    assert delivered(report) == {name: rows.total() for name, rows in part.items()}
    # Something was dropped, unless a drop of values found none.
    if any(drop.keep < 0.5 and drop.where is None for drop in drops):
        assert report.shed > 0


def wards() -> Network:
    """Two sources joined in time, and windows over one of them, beside an output without state."""
    return (
        Builder("wards", capacity=1.0)
        .source("a", "k INT, x DOUBLE, at TIMESTAMP", arrived="at", rate=10, watermark="5 seconds")
        .source("b", "k INT, y DOUBLE, seen TIMESTAMP", arrived="seen", rate=10, watermark="5 seconds")
        .filter("warm", "a", "x > 20", selectivity=0.8)
        .join("pair", ["warm", "b"], on=["k"], within="3 seconds", selectivity=0.5)
        .filter("near", "pair", "x + y > 60")
        .aggregate("minute", "warm", "1 minute", {"x": "avg(x)", "n": "count(*)"}, by=["k"])
        .map("shape", "minute", {"k": "k", "f": "x * 2 + 1", "n": "n", "until": "window_end"})
        .aggregate("slide", "warm", "1 minute", {"top": "max(x)"}, slide="30 seconds")
        .output("hot", "warm")
        .output("pairs", "near")
        .output("minutes", "shape")
        .output("tops", "slide")
        .build()
    )


def test_joins_and_windows_answer_like_plain_spark(spark: SparkSession, tmp_path: Path) -> None:
    network = wards()
    batches = fill(spark, network, tmp_path / "in", rows=300, seed=5)
    full = answers(network, batches)
    # A last row far ahead closes every window; it is itself in none that is closed.
    last = pa.table(
        {
            "k": pa.array([999], pa.int32()),
            "x": pa.array([1.0]),
            "at": pa.array([1_800_000_000_000_000], pa.timestamp("us", tz="UTC")),
        }
    )
    parquet.write_table(last, tmp_path / "in" / "a" / "2.parquet")
    got, report = run_all(spark, network, streams(spark, batches, tmp_path / "in"), tmp_path / "state")
    assert got["hot"] == full["hot"]
    assert got["pairs"] == full["pairs"]
    # The watermark moves after the batch in which a row was seen, so the last windows may stay open.
    for name in ("minutes", "tops"):
        assert got[name] <= full[name]
        assert got[name].total() > 0.6 * full[name].total()
    assert full["pairs"].total() > 20
    assert report.by_output["pairs"].delivered == full["pairs"].total()
    part, _ = run_all(
        spark,
        network,
        streams(spark, batches, tmp_path / "in"),
        tmp_path / "less",
        [ss.Drop("a->warm", 0.5), ss.Drop("b->pair", 0.7), ss.Drop("warm->minute", 0.0)],
    )
    assert part["pairs"] <= full["pairs"]
    assert 0 < part["pairs"].total() < full["pairs"].total()
    assert part["hot"] < full["hot"]
    assert not part["minutes"]
    assert part["tops"]
