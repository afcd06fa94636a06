"""The same network, rates and policy in virtual time and on Spark: outputs get the same share of their rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamshed.network import Catalog
from streamshed.network.generate import generate_sharing
from streamshed.policies.registry import network_policy
from streamshed.sim.scenario import Scenario
from streamshed.sim.simulate import simulate
from tests.spark.plain import answers
from tests.spark.test_network_answers import fill, run_all, streams

pytestmark = pytest.mark.spark
ROWS = 6000


@pytest.mark.parametrize("policy", ["input-uniform", "lsrm-random", "lsrm-semantic"])
def test_spark_delivers_what_the_simulator_delivers(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    network = generate_sharing(queries=5, seed=3, skew=1.0, excess=0.8)
    chosen = network_policy(policy)
    virtual = simulate(Scenario.of(network, seconds=120, seed=2), chosen)
    drops = network_policy(policy).planner(Catalog.of(network)).decide().drops
    assert drops
    batches = fill(spark, network, tmp_path / "in", rows=ROWS, seed=7)
    full = answers(network, batches)
    got, _ = run_all(spark, network, streams(spark, batches, tmp_path / "in"), tmp_path / "state", list(drops))
    for output in network.outputs:
        wanted = full[output.name].total()
        share = got[output.name].total() / wanted
        there = virtual.outputs[output.name].delivered / virtual.outputs[output.name].expected
        error = 4 * (max(there * (1 - there), 0.01) / wanted) ** 0.5
        assert abs(share - there) < error + 0.03, (output.name, share, there)
