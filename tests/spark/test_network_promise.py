"""Plans for networks with joins, carried out on Spark: what was claimed is delivered, and the report says both."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.network import Builder, Catalog, Network
from streamshed.policies.registry import network_policy
from tests.spark.plain import answers
from tests.spark.test_network_answers import fill, run_all, streams

pytestmark = pytest.mark.spark


def pair() -> Network:
    """Two sources, a join, a map: rows of either side are worth nothing without the other."""
    return (
        Builder("pair", capacity=1.0)
        .source("a", "k INT, x DOUBLE, at TIMESTAMP", arrived="at", watermark="10 seconds", rate=200,
                values={"k": (1, 40)})
        .source("b", "k INT, y DOUBLE, t TIMESTAMP", arrived="t", watermark="10 seconds", rate=200,
                values={"k": (1, 40)})
        .join("pair", ["a", "b"], on=["k"], within="3 seconds", cost=2e-3, selectivity=1.0)
        .map("m", "pair", {"k": "k", "x": "x"}, cost=2e-3)
        .output("o", "m", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )  # fmt: skip


def filtered_pair() -> Network:
    """The same behind a filter, and beside an output that does not need the join."""
    return (
        Builder("filtered", capacity=1.0)
        .source("a", "k INT, x DOUBLE, at TIMESTAMP", arrived="at", watermark="10 seconds", rate=200,
                values={"k": (1, 40), "x": (0, 100)})
        .source("b", "k INT, y DOUBLE, t TIMESTAMP", arrived="t", watermark="10 seconds", rate=200,
                values={"k": (1, 40), "y": (0, 100)})
        .filter("warm", "a", "x > 40", cost=1e-3, selectivity=0.6)
        .join("pair", ["warm", "b"], on=["k"], within="3 seconds", cost=2e-3, selectivity=1.0)
        .output("o", "pair", loss=[(100, 1.0), (0, 0.0)])
        .output("p", "warm", loss=[(100, 1.0), (20, 0.9), (0, 0.0)])
        .build()
    )  # fmt: skip


def keyed_pair() -> Network:
    """Both sides lose the same keys, on one of them behind a filter and beside an output without a join."""
    return (
        Builder("keyed", capacity=1.0)
        .source("a", "k INT, x DOUBLE, at TIMESTAMP", arrived="at", watermark="10 seconds", rate=200,
                values={"k": (0, 2000), "x": (0, 100)}, key="k")
        .source("b", "id INT, y DOUBLE, t TIMESTAMP", arrived="t", watermark="10 seconds", rate=200,
                values={"id": (0, 2000), "y": (0, 100)}, key="id")
        .filter("warm", "a", "x > 40", cost=1e-3, selectivity=0.6)
        .map("named", "b", {"k": "id", "y": "y", "t": "t"}, cost=1e-3)
        .join("pair", ["warm", "named"], on=["k"], within="5 minutes", cost=2e-3, selectivity=1.0)
        .output("o", "pair", loss=[(100, 1.0), (0, 0.0)])
        .output("p", "warm", loss=[(100, 1.0), (20, 0.9), (0, 0.0)])
        .build()
    )  # fmt: skip


def test_spark_drops_the_same_keys_on_both_sides_of_a_join(spark: SparkSession, tmp_path: Path) -> None:
    network = keyed_pair()
    batches = fill(spark, network, tmp_path / "in", rows=4000, seed=6, keys=2000)
    full = answers(network, batches)
    drops = [ss.Drop("a->warm", 0.8), ss.Drop("warm->pair", 0.5), ss.Drop("b->named", 0.4)]
    got, _ = run_all(spark, network, streams(spark, batches, tmp_path / "in"), tmp_path / "state", drops)
    kept = {row.k for row in got["o"]}
    # A key that any pair is left of has all of its pairs, and 0.8 · 0.5 and 0.4 are the same keys.
    assert got["o"] == Counter({row: count for row, count in full["o"].items() if row.k in kept})
    assert 100 * got["o"].total() / full["o"].total() == pytest.approx(40.0, abs=5.0)
    assert 100 * got["p"].total() / full["p"].total() == pytest.approx(80.0, abs=5.0)
    assert kept < {row.k for row in got["p"]}


@pytest.mark.parametrize("network", [pair(), filtered_pair(), keyed_pair()], ids=lambda network: network.name)
def test_spark_delivers_what_the_plan_claims_below_a_join(
    spark: SparkSession, tmp_path: Path, network: Network
) -> None:
    decision = network_policy("lsrm-random").planner(Catalog.of(network).overloaded(1.0)).decide()
    assert decision.row is not None
    keyed = any(source.key for source in network.sources)
    batches = fill(spark, network, tmp_path / "in", rows=4000, seed=5, keys=2000 if keyed else 20)
    full = answers(network, batches)
    got, report = run_all(
        spark, network, streams(spark, batches, tmp_path / "in"), tmp_path / "state", list(decision.drops)
    )
    for output in network.outputs:
        wanted = full[output.name].total()
        assert wanted > 1000
        percent = 100 * got[output.name].total() / wanted
        assert percent == pytest.approx(decision.row.delivery[output.name], abs=5.0), output.name
        planned = report.by_output[output.name].planned_percent
        assert planned == pytest.approx(decision.row.delivery[output.name], abs=5.0)
