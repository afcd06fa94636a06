"""Count windows, top-k and distinct counts on Spark, and what SIC says of results made of a part of their rows."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.errors import InvalidArgument
from streamshed.loop import network_shedding
from streamshed.network import Builder, Network
from streamshed.network.graph import InvalidNetwork
from streamshed.quality.recent_information import RecentInformation

pytestmark = pytest.mark.spark
ROWS, FILES = 4000, 2


@pytest.fixture
def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "k": rng.integers(0, 3, ROWS).astype("int32"),
        "x": rng.uniform(0, 100, ROWS).round(6),
        "at": (1_700_000_000_000_000 + np.arange(ROWS) * 10_000).astype("int64"),  # 100 rows a second
    }


def stream(spark: SparkSession, table: dict[str, np.ndarray], folder: Path) -> DataFrame:
    folder.mkdir(exist_ok=True)
    for part in range(FILES):
        piece = slice(part * ROWS // FILES, (part + 1) * ROWS // FILES)
        columns = {
            "k": pa.array(table["k"][piece]),
            "x": pa.array(table["x"][piece]),
            "at": pa.array(table["at"][piece], pa.timestamp("us", tz="UTC")),
        }
        parquet.write_table(pa.table(columns), folder / f"{part}.parquet")
        os.utime(folder / f"{part}.parquet", (1e9 + part, 1e9 + part))  # Spark reads the oldest first
    reader = spark.readStream.schema("k INT, x DOUBLE, at TIMESTAMP").option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def network() -> Network:
    builder = Builder("windows").source("s", "k INT, x DOUBLE, at TIMESTAMP", arrived="at", watermark=1)
    builder.count_window("w", "s", 300, {"n": "count(*)", "x": "avg(x)", "u": "count(distinct x)"}, by="k")
    builder.top_k("t", "s", 3, "x", 10, by="k")
    builder.aggregate("d", "s", 10, {"n": "count(distinct k)", "all": "count(*)"})
    return builder.output("rows", "w").output("best", "t").output("different", "d").build()


def run(
    spark: SparkSession, made: Network, source: DataFrame, pin: list[ss.Drop] | None, state: str | None = None
):
    sinks = {output.name: "memory" for output in made.outputs}
    running = ss.run(
        spark, made, sources={"s": source}, sinks=sinks, latency="1 hour", trigger={"availableNow": True}, pin=pin,
        state=state,
    )  # fmt: skip
    running.await_termination()
    return running


def test_they_give_what_plain_python_gives(spark, table, tmp_path):
    running = run(spark, network(), stream(spark, table, tmp_path / "in"), None)
    expected = Counter()
    for key in range(3):
        mine = table["x"][table["k"] == key]
        for first in range(0, len(mine) - 299, 300):
            part = mine[first : first + 300]
            expected[key, 300, round(part.mean(), 9), len(set(part))] += 1
    found = Counter((row.k, row.n, round(row.x, 9), row.u) for row in running.rows("rows"))
    assert found == expected
    second = (table["at"] - table["at"][0]) // 1_000_000
    best = Counter()
    over = [window for window in range(4) if window < 3]  # the watermark closes all but the last
    for window in over:
        for key in range(3):
            mine = table["x"][(second // 10 == window) & (table["k"] == key)]
            best.update((key, x) for x in np.sort(mine)[-3:].tolist())
    assert Counter((row.k, row.x) for row in running.rows("best")) == best
    assert [(row.n, row["all"]) for row in running.rows("different")] == [(3, 1000)] * len(over)
    assert {name: counts.sic for name, counts in running.report().by_output.items()} == {
        "rows": 1.0, "best": 1.0, "different": 1.0,
    }  # fmt: skip
    running.close()


def test_the_sic_of_a_report_is_what_an_offline_count_of_the_output_says(spark, table, tmp_path):
    """Half of the rows are dropped: a count over them is off by half, though as many results come out as ever."""
    made = network()
    drops = [ss.Drop(on, 0.5) for on in ("s->w", "s->t", "s->d")]
    running = run(spark, made, stream(spark, table, tmp_path / "in"), drops)
    report = running.report()
    counted = [row["all"] for row in running.rows("different")]
    assert len(counted) == 3
    offline = sum(counted) / 3000
    assert offline == pytest.approx(0.5, abs=0.05)
    assert report.by_output["different"].sic == pytest.approx(offline, abs=0.02)  # the last window is still open
    assert report.by_output["different"].percent == 100 * report.by_output["different"].sic
    windows = sum(row.n for row in running.rows("rows"))
    kept = report.by_arc["s->w"].kept
    assert report.by_output["rows"].sic == pytest.approx(kept / ROWS)
    assert kept - 3 * 300 < windows <= kept
    assert running.sic["best"] == pytest.approx(report.by_output["best"].sic)
    running.close()


def test_rows_that_wait_for_their_window_survive_a_restart(spark, table, tmp_path):
    made = Builder("waits").source("s", "k INT, x DOUBLE, at TIMESTAMP", arrived="at")
    made = made.count_window("w", "s", 1500, {"n": "count(*)", "top": "max(x)"}).output("o", "w").build()
    source = tmp_path / "in"
    source.mkdir()
    rows = stream(spark, table, tmp_path / "whole")
    for part in range(FILES):
        (tmp_path / "whole" / f"{part}.parquet").rename(tmp_path / f"{part}.parquet")
    found = []
    for part in range(FILES):
        (tmp_path / f"{part}.parquet").rename(tmp_path / "whole" / f"{part}.parquet")
        running = run(spark, made, rows, None, str(tmp_path / "state"))
        found += running.rows("o")
        running.close()
    assert [(row.n, row.top) for row in found] == [
        (1500, table["x"][:1500].max()), (1500, table["x"][1500:3000].max()),
    ]  # fmt: skip


def test_fair_is_a_policy_of_run_and_weights_must_be_positive(spark, table, tmp_path):
    made = (
        Builder("n").source("s", "k INT, x DOUBLE, at TIMESTAMP", arrived="at").output("o", "s", weight=2).build()
    )
    with ss.run(
        spark, made, sources={"s": stream(spark, table, tmp_path / "in")}, sinks={"o": "memory"}, policy="fair",
        latency="1 hour", trigger={"availableNow": True},
    ) as running:  # fmt: skip
        running.await_termination()
        assert running.policy == "fair"
        assert running.sic == {"o": 1.0}
    with pytest.raises(InvalidNetwork, match=r"outputs\.o\.weight: out of bounds"):
        Builder("n").source("s", "x INT").output("o", "s", weight=0).build()
    with pytest.raises(InvalidArgument, match="no such policy"):
        ss.run(spark, made, sources={}, policy="fairest")


def test_a_window_that_is_over_before_the_results_are_there_is_told_once(
    spark, table, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(network_shedding, "RecentInformation", partial(RecentInformation, 0.001))
    made = Builder("n").source("s", "k INT, x DOUBLE, at TIMESTAMP", arrived="at").output("o", "s").build()
    for policy, times in (("fair", 1), ("random", 0)):
        caplog.clear()
        source = stream(spark, table, tmp_path / "in")
        with ss.run(spark, made, sources={"s": source}, sinks={"o": "memory"}, policy=policy, latency="1 hour",
                    trigger={"availableNow": True}) as running:  # fmt: skip
            running.await_termination()
            assert running.sic_too_late > 0.001
            assert running.report().batches == FILES
        told = [each.getMessage() for each in caplog.records if "source time window" in each.getMessage()]
        assert len(told) == times
        assert not told or "is not longer than the delay of" in told[0]


def test_state_below_these_windows_is_refused(spark, table, tmp_path):
    made = (
        Builder("deep").source("s", "k INT, x DOUBLE, at TIMESTAMP", arrived="at", watermark=1)
        .top_k("t", "s", 3, "x", 10).aggregate("a", "t", 20, {"n": "count(*)"}).output("o", "a").build()
    )  # fmt: skip
    with pytest.raises(InvalidNetwork, match="state below a window is not supported"):
        run(spark, made, stream(spark, table, tmp_path / "in"), None)


def test_every_row_can_have_the_sic_of_what_went_into_it(spark, table, tmp_path):
    """Results of windows have the part of their rows that was kept; a row that is just passed on is whole."""
    builder = Builder("sic").source("s", "k INT, x DOUBLE, at TIMESTAMP", arrived="at", watermark=1)
    builder.map("m", "s", {"k": "k", "x": "x * 2", "at": "at"}).count_window("w", "m", 200, {"n": "count(*)"})
    builder.top_k("t", "s", 3, "x", 10).map("z", "t", {"x": "x"}).aggregate(
        "d", "s", 10, {"n": "count(*)"}, by="k"
    )
    for name, end in (("rows", "w"), ("best", "z"), ("counted", "d"), ("plain", "s")):
        builder.output(name, end, sic="sic")
    made = builder.build()
    keeps = {"s->m": 0.25, "s->t": 0.4, "s->d": 0.5, "s->plain": 0.5}
    running = run(spark, made, stream(spark, table, tmp_path / "in"), [ss.Drop(on, k) for on, k in keeps.items()])
    found = {output.name: {round(row.sic, 6) for row in running.rows(output.name)} for output in made.outputs}
    assert found == {"rows": {0.25}, "best": {0.4}, "counted": {0.5}, "plain": {1.0}}
    # What each result says of itself, and what the rows of the window say.
    second = (table["at"] - table["at"][0]) // 1_000_000
    for row in running.rows("counted"):
        window = round((row.window_start.timestamp() - table["at"][0] / 1e6) / 10)
        whole = int(((second // 10 == window) & (table["k"] == row.k)).sum())
        assert row.n / whole == pytest.approx(row.sic, abs=0.12)
    running.close()
    untouched = run(spark, made, stream(spark, table, tmp_path / "in"), None)
    assert all({row.sic for row in untouched.rows(output.name)} == {1.0} for output in made.outputs)
    untouched.close()


def test_a_sic_column_that_is_there_already_is_refused():
    with pytest.raises(InvalidNetwork, match=r"outputs\.o\.sic: the column is there already"):
        Builder("n").source("s", "x INT").output("o", "s", sic="x").build()
