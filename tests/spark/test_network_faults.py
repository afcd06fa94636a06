"""Faults under a network with a time budget: rows are kept or counted as shed, whatever happens."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.network import Network
from streamshed.spark.orders import batch_clock
from streamshed.spark.orders.planned_data import java
from streamshed.spark.watch.clock_skew import ClockSkew
from tests.spark.executors import Executors
from tests.spark.helpers import fill, ids, run_all, stream
from tests.spark.test_network_budget import ROWS, guarded, run
from tests.spark.test_network_expired import assert_balanced

HOUR = 3_600_000  # milliseconds


@pytest.mark.cluster
def test_rows_are_kept_or_counted_when_an_executor_is_lost(
    tmp_path: Path, speculating_executors: Executors
) -> None:
    """A fused and a stateful query, tasks that run twice by speculation, a budget, and rows that are too old."""
    result = speculating_executors.run("network_faults_job", tmp_path)
    assert result["skew"] < 0.5
    assert set(result["by_query"]) == {"out", "counts"}
    for part in result["by_query"].values():
        assert part["unseen"] == 0
        assert part["arrived"] == part["kept"] + part["cut"] + part["expired"]
        assert part["thinned"] == 0
        for arrived, passed, cut, expired, thinned in part["arcs"].values():
            assert min(passed, cut, expired, thinned) >= 0
            assert arrived == passed + cut + expired + thinned
        # Spark adds up the rows of every task that ends well: a copy that also did is counted once more.
        assert part["arrived"] >= result["whole"]
        assert part["cut"] > 0
        assert part["expired"] > 0
    rows, different = result["delivered"]
    assert rows == different, "no row is delivered twice"
    fused, stateful = result["by_query"]["out"], result["by_query"]["counts"]
    assert fused["kept"] >= rows
    if fused["arrived"] == result["whole"]:
        assert fused["kept"] == rows
    assert stateful["kept"] >= result["counted"]
    if stateful["arrived"] == result["whole"]:
        assert stateful["kept"] == result["counted"]
    # Every tenth row is protected, however old it is and however late it comes.
    assert result["protected"] == (result["whole"] - 50) // 10


def moved(monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    """Clocks of executors that are moved by so many milliseconds once a batch was planned."""

    def source_then(package: str | None, *names: str) -> str:
        source = java(package, *names)
        assert source.count(asked) == names.count("TimeGate")
        return source.replace(asked, f"({asked} + {by}L)")

    asked = "System.currentTimeMillis()"
    monkeypatch.setattr(batch_clock, "java", source_then)


@pytest.mark.spark
@pytest.mark.parametrize(("by", "passes"), [(-HOUR, True), (HOUR, False)], ids=["set back", "set forward"])
def test_a_clock_that_is_moved_under_a_shed_stream(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: int, passes: bool
) -> None:
    moved(monkeypatch, by)
    fill(source, rows=400, files=1)  # one batch: behind it, short ones have no clock
    kept = ss.shed(stream(spark, source), "1 hour", floor=0.0, protect="priority = 'high'")
    handle = ss.shedder(kept)
    # Long over, or far away: by the clock alone.
    handle.pin(1.0, budget="1 ms" if passes else "30 minutes")
    rows = run_all(kept, tmp_path / "state", f"moved_{'back' if passes else 'forward'}")
    assert ids(rows) == set(range(0, 400, 1 if passes else 10))
    report = handle.report()
    assert (report.arrived, report.kept, report.cut) == (400, len(rows), 400 - len(rows))


@pytest.mark.spark
@pytest.mark.parametrize("network", [guarded(), guarded(stateful=True)], ids=["fused", "stateful"])
@pytest.mark.parametrize(("by", "passes"), [(-HOUR, True), (HOUR, False)], ids=["set back", "set forward"])
def test_a_clock_that_is_moved_under_a_network(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: Network, by: int, passes: bool
) -> None:
    moved(monkeypatch, by)
    running = run(spark, network, tmp_path, budget="1 ms" if passes else "30 minutes")
    report = running.report()
    assert (report.arrived, report.kept) == (3 * ROWS, 3 * ROWS if passes else ROWS)
    assert_balanced(report)


@pytest.mark.spark
@pytest.mark.complains
def test_executors_whose_clocks_are_wrong_mean_no_budget_for_a_network(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clocks = ClockSkew.of(spark)
    monkeypatch.setattr(clocks, "seconds", 500.0)
    monkeypatch.setattr(clocks, "_warned", False)
    running = run(spark, guarded(), tmp_path, budget="1 ms")
    assert running.report().cut == 0
    assert len(running.rows("out")) == 3 * ROWS
    assert "500.0 s off the driver's" in caplog.text


@pytest.mark.spark
@pytest.mark.complains
@pytest.mark.parametrize("off", [-500, 500])
def test_a_clock_that_is_off_is_found_by_asking(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, off: int
) -> None:
    asked = "streamshed.spark.watch.clock_skew._CLOCK"
    monkeypatch.setattr(asked, f"CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT) + {off * 1000}")
    clocks = ClockSkew(spark)
    clocks._alone = False  # as if there were executors with clocks of their own
    clocks.seconds = None
    assert not clocks.agree(1.0), "what is not known does not agree"
    assert caplog.text == ""
    began = time.time()
    clocks.look()
    clocks.wait(60)
    assert clocks.seconds is not None
    # As far as can be known: the clock was read between the question and the answer.
    assert 500 - (time.time() - began) - 0.01 <= clocks.seconds <= 500.01
    assert not clocks.agree(60.0)
    assert "batches get no time budget" in caplog.text
    assert clocks.agree(501.0)
