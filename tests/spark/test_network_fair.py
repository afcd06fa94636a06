"""What `fair` plans, carried out by Spark: eight queries of different weight end up with the same SIC."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.lab.bench import fair as bench
from streamshed.network import Builder, Catalog, Network
from streamshed.policies.registry import network_policy
from streamshed.quality.sic import jain
from streamshed.records import Drop
from streamshed.spark.network import fused_query
from tests.spark.helpers import in_force, wait_for

pytestmark = pytest.mark.spark
ROWS = 20_000


def network() -> Network:
    """The benchmark's queries, with maps of the same cost in place of its Python functions."""
    builder = Builder("eight", capacity=1.0)
    for name, share in bench.SHARES.items():
        builder.source(name, "id LONG, v DOUBLE", rate=10_000 * share, values={"v": (0, 100)})
    for number, (sources, least, length) in enumerate(bench.QUERIES):
        above = sources
        if len(sources) > 1:
            above = f"u{number}"
            builder.union(above, list(sources), cost=1e-7)
        builder.filter(f"f{number}", above, f"v >= {least}", cost=5e-8, selectivity=1 - least / 100)
        builder.map(f"m{number}", f"f{number}", {"id": "id"}, cost=bench._COSTS[length])
        builder.output(f"q{number}", f"m{number}", loss=[(100, 1.0), (0, 0.0)])
    return builder.build()


def test_eight_queries_keep_the_same_share_and_the_report_says_what_the_output_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    sent = {}
    for name, share in bench.SHARES.items():
        count = round(ROWS * share)
        sent[name] = rng.uniform(0, 100, count)
        (tmp_path / name).mkdir()
        table = pa.table({"id": np.arange(count), "v": sent[name]})
        parquet.write_table(table, tmp_path / name / "0.parquet")
    made = network()
    catalog = Catalog.of(made)
    found = {}
    for policy in bench.POLICIES:
        decision = network_policy(policy).planner(catalog).decide(catalog.overloaded(1.0).rates)
        reader = spark.readStream.schema("id LONG, v DOUBLE")
        running = ss.run(
            spark,
            made,
            sources={name: reader.parquet(str(tmp_path / name)) for name in sent},
            sinks={output.name: "memory" for output in made.outputs},
            latency="1 hour",
            trigger={"availableNow": True},
            pin=decision.drops,
        )
        running.await_termination()
        report = running.report()
        found[policy] = [report.by_output[output.name].sic for output in made.outputs]
        if policy == "fair":
            for number, (sources, least, _) in enumerate(bench.QUERIES):
                # What an offline count of the output says, for those with one source.
                if len(sources) == 1:
                    whole = int((sent[sources] >= least).sum())
                    got = len(running.rows(f"q{number}")) / whole
                    spread = 4 * (0.25 / whole) ** 0.5
                    assert report.by_output[f"q{number}"].sic == pytest.approx(got, abs=spread)
        running.close()
    assert jain(found["fair"]) > 0.999
    assert np.mean(found["fair"]) == pytest.approx(0.5, abs=0.03)
    assert jain(found["lsrm-random"]) < 0.9
    assert jain(found["input-uniform"]) < 0.95


def test_who_had_least_is_served_first_so_that_no_output_is_always_the_one_that_time_runs_out_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All outputs of a query have one deadline; those that are served last lose what comes behind it."""
    monkeypatch.setattr(fused_query, "_AT_A_TIME", 1)
    builder = Builder("four", capacity=1.0).source("s", "id LONG, v DOUBLE", rate=100)
    for name in "abcd":
        builder.map(f"m{name}", "s", {"id": "id"}, cost=1e-5).output(name, f"m{name}")
    served: list[list[str]] = []

    def sink(name: str) -> Callable[[DataFrame, int], None]:
        def write(rows: DataFrame, batch: int) -> None:
            rows.count()
            while len(served) <= batch:
                served.append([])
            served[batch].append(name)

        return write

    for policy, last in (("fair", ["c", "a", "d", "b"]), ("lsrm-random", ["a", "b", "c", "d"])):
        served.clear()
        source = tmp_path / policy
        source.mkdir()
        running = ss.run(
            spark,
            builder.build(),
            sources={"s": spark.readStream.schema("id LONG, v DOUBLE").parquet(str(source))},
            sinks={name: sink(name) for name in "abcd"},
            latency="1 hour",
            policy=policy,
        )
        keeps = {"a": 0.4, "c": 0.1, "d": 0.7}
        running.pin([Drop(f"s->m{name}", keep) for name, keep in keeps.items()])
        in_force(running)
        for number in range(3):
            table = pa.table({"id": np.arange(1000) + 1000 * number, "v": np.zeros(1000)})
            parquet.write_table(table, source / f"{number}.parquet")
            running.process_all_available()
            wait_for(lambda handle=running, seen=number: handle.report().batches > seen)  # type: ignore[misc]
        running.close()
        assert served[0] == ["a", "b", "c", "d"]
        assert served[-1] == last
