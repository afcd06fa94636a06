"""What outputs got, and how late: on runs made by hand, and the pieces on a real Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from streamshed.errors import InvalidArgument
from streamshed.lab.bench import BENCHES, audience, bench
from streamshed.lab.bench.audience import Able, Heard, Played
from streamshed.lab.bench.jobs import Batch, Run
from streamshed.network import Builder, Network
from streamshed.network.qos import ValueGraph
from streamshed.quality import Report

ABLE = Able(100.0, {"value": 1.0, "loss": 0.5}, {"value": 0.4, "loss": 0.5})


def network() -> Network:
    late = [(0, 1.0), (4, 1.0), (8, 0.0)]
    return (
        Builder("n").source("s", "v DOUBLE, at TIMESTAMP").filter("f", "s", "v > 50").filter("g", "s", "v >= 0")
        .output("value", "g", value=("v", [[0, 75, 0.2], [75, 100, 1.0]]), latency=late)
        .output("loss", "f", loss=[(100, 1.0), (50, 0.9), (0, 0.0)], latency=late)
        .build()
    )  # fmt: skip


def heard(*groups: tuple[float, float, float, float]) -> Heard:
    arrivals, latencies, rows, worth = np.array(groups, dtype=float).reshape(-1, 4).T
    return Heard(arrivals, latencies, rows, worth)


def played(value: Heard, loss: Heard, waiting: float = 0.0) -> Played:
    """A hundred rows at 0 s, a hundred at 5 s; and some that nobody took."""
    batches = [
        Batch(0, 0.0, 2.0, np.array([0.0]), np.array([100.0]), 100),
        Batch(1, 5.0, 11.0, np.array([5.0]), np.array([100.0]), 100),
    ]
    ages, rows = (np.array([10.0]), np.array([waiting])) if waiting else (np.array([]), np.array([]))
    run = Run(batches, int(200 + waiting), ages, rows, 20.0)
    return Played("p", network(), run, {"value": value, "loss": loss}, Report())


def test_a_row_is_worth_its_value_times_what_its_delay_leaves_of_it() -> None:
    value, loss = network().outputs
    # All of the first hundred in time; the second six seconds late, where half of the worth is gone.
    full = played(heard((0, 2, 100, 40), (5, 6, 100, 40)), heard((0, 2, 50, 50), (5, 6, 50, 50)))
    assert full.utility(value, ABLE) == pytest.approx(0.75)
    assert full.utility(value, ABLE, after=3) == pytest.approx(0.5)
    # Half of the late rows count: 75 % of the rows.
    assert full.utility(loss, ABLE) == pytest.approx(0.95)
    assert full.in_time(4.0, ABLE) == pytest.approx(0.5)
    assert full.delivered("loss", ABLE) == pytest.approx(1.0)


def test_rows_that_never_came_are_worth_nothing_and_wait_on() -> None:
    value, loss = network().outputs
    some = played(heard((0, 2, 10, 10)), heard((0, 2, 25, 25)), waiting=200)
    assert some.arrived() == 400
    assert some.utility(value, ABLE) == pytest.approx(10 / 160)
    assert some.utility(loss, ABLE) == pytest.approx(0.9 * 12.5 / 50)
    assert some.latency(0.05, ABLE) == 2.0
    assert some.latency(0.5, ABLE) == 10.0  # 35 rows came, 300 wait
    assert some.latency(0.5, ABLE, until=3.0) == 2.0
    nothing = played(heard(), heard())
    assert nothing.utility(value, ABLE) == nothing.utility(loss, ABLE) == 0.0


def test_a_run_that_delivered_nothing_can_be_drawn() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    run = Run([], 100, np.array([5.0, 4.0]), np.array([50.0, 50.0]), 5.0)
    audience.draw_latency(axes, Played("p", network(), run, {}, Report()), "red", "p")
    assert len(axes.lines) == 2


def test_spark_finds_the_same_worth_as_the_graph(spark: SparkSession) -> None:
    graph = ValueGraph.of("v", [[0, 10, 0.1], [10, 20, 0.2, 0.8], [30, 40, 1.0]])
    values = [-1.0, 0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 39.0, 40.0, 41.0]
    rows = spark.createDataFrame([(v,) for v in values], "v DOUBLE").select(audience.worth(graph).alias("w"))
    assert [row.w for row in rows.collect()] == pytest.approx(list(graph.many(np.array(values))))


def test_only_some_benchmarks_have_a_picture() -> None:
    assert "network" in BENCHES
    assert callable(bench("network", Path("out")))
    with pytest.raises(InvalidArgument, match="has no picture"):
        bench("overhead", Path("out"))
