"""`bench overhead`: its parts, and that with SIC accounting on the same job is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.errors import InvalidArgument
from streamshed.lab.bench import bench, jobs, overhead, overhead_sic
from streamshed.lab.bench.feeder import JsonRows, put

ROWS = 3000


def test_parts_are_named_and_others_are_refused() -> None:
    assert callable(bench("overhead", parts=["sic"]))
    with pytest.raises(InvalidArgument, match=r"no such part(.|\n)*light, stateless, columnar, sic"):
        bench("overhead", parts=["heavy"])
    for name in ("drain", "fair-decision"):
        with pytest.raises(InvalidArgument, match=r"no such part(.|\n)*those with parts: overhead, realtime"):
            bench(name, parts=["sic"])
    assert overhead.PARTS[-1] == "sic"


def test_what_is_told_of_sic_accounting() -> None:
    took = {
        "plain": [1.0, 2.0, 1.0, 1.0],
        "plain again": [1.0, 2.0, 1.0, 1.02],
        "shed": [1.01, 2.02, 1.01, 1.5],
        "network": [1.1, 2.2, 1.1, 1.1],
        "network, column": [1.2, 2.4, 1.2, 1.2],
    }
    told = overhead_sic.told(took)
    assert (told["sic_ratio"], told["sic_network_ratio"], told["sic_network_column_ratio"]) == (1.01, 1.1, 1.2)
    assert told["sic_quartiles"] == [1.01, 1.01]
    assert told["sic_column_ratio"] == pytest.approx(1.2 / 1.1, abs=1e-4)
    assert (told["sic_noise"], told["sic_pairs"]) == (1.0, 4)


@pytest.mark.spark
def test_with_sic_accounting_the_results_are_those_of_the_plain_job(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    put(source, "0.json", JsonRows(ROWS).take(ROWS))

    def results(job: Callable[[DataFrame], DataFrame], name: str) -> set[tuple[object, ...]]:
        writer = job(jobs.read(spark, source)).writeStream.format("memory").queryName(name).outputMode("update")
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination()
        columns = [column for column in ("user", "v", "n", "sic") if column in spark.table(name).columns]
        return {tuple(row) for row in spark.table(name).select(columns).collect()}

    plain = results(jobs.light, "light_plain")
    assert len(plain) > 100
    assert results(overhead_sic.with_sic, "light_sic") == {(*row, 1.0) for row in plain}
    for column in (None, "sic"):
        running = ss.run(
            spark,
            overhead_sic.network(column),
            sources={"lines": jobs.read(spark, source)},
            sinks={"out": "memory"},
            latency="1 hour",
            trigger={"availableNow": True},
        )
        running.await_termination()
        told = ("user", "v", "n") if column is None else ("user", "v", "n", "sic")
        found = {tuple(row[name] for name in told) for row in running.rows("out")}
        assert found == (plain if column is None else {(*row, 1.0) for row in plain})
        assert running.report().by_output["out"].sic == 1.0
        running.close()
