"""`calibrate`: what each box of a network costs on this Spark, measured on a sample, by difference.

A box's rows are written to nowhere with and without the box, in turn, several times; the difference of the
fastest times, times the cores that worked, over the rows that entered, is its cost. Its selectivity is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from streamshed.network.graph import Aggregate, Join, Network
from streamshed.spark.layout import QueryLayout
from streamshed.spark.prepare import register_functions
from streamshed.spark.slots import Slots
from streamshed.spark.sql import Marks, Parser, Writer

LEAST = 1e-8
"""Seconds a row: what is too quick to be told from nothing still costs something."""


@dataclass(frozen=True)
class Measured:
    """What was measured of one box."""

    box: str
    cost: float
    """Core-seconds per row that enters."""
    selectivity: float
    rows: int
    """Rows that entered."""


def calibrate(
    spark: SparkSession, network: Network, samples: Mapping[str, DataFrame], *, repeats: int = 3, copies: int = 1
) -> Iterator[Measured]:
    """Measure every box on samples of the sources (batch DataFrames); boxes are told as they are done.

    `copies`: how often each sample is taken, so that small ones take long enough to be timed.
    """
    functions = register_functions(spark, network)
    layout = QueryLayout(network, "calibrate", tuple(output.name for output in network.outputs), False)
    marks = Marks(dict.fromkeys(network.nodes, 1))
    parsers = {
        source.name: Parser.of(source, samples[source.name].columns)
        for source in network.sources
        if source.parse is not None
    }
    inputs = {source.name: f"streamshed_sample_{index}" for index, source in enumerate(network.sources)}
    writer = Writer(
        layout, Slots.of(network), marks, inputs, {}, lambda on: False, lambda at: "NULL", functions, parsers
    )
    cores = float(spark.sparkContext.defaultParallelism)
    kept: list[DataFrame] = []
    views: dict[str, str] = {}
    counts: dict[str, int] = {}
    try:
        for source in network.sources:
            rows = samples[source.name]
            for _ in range(copies - 1):
                rows = rows.unionAll(samples[source.name])
            rows.createOrReplaceTempView(inputs[source.name])
            _hold(spark, source.name, writer, kept, views, counts)
        for box in network.order:
            entered = sum(counts[name] for name in box.inputs)
            before = " UNION ALL ".join(f"SELECT 1 FROM {views[name]}" for name in box.inputs)
            alone = spark.sql(before)
            whole = spark.sql(writer.computed(box.name))
            times: dict[str, list[float]] = {"alone": [], "whole": []}
            for turn in range(repeats + 1):  # the first compiles
                for name, rows in (("alone", alone), ("whole", whole)):
                    took = _timed(lambda rows=rows: rows.write.format("noop").mode("overwrite").save())  # type: ignore[misc]
                    if turn:
                        times[name].append(took)
            spent = max(0.0, min(times["whole"]) - min(times["alone"])) * cores
            _hold(spark, box.name, writer, kept, views, counts)
            cost = max(LEAST, spent / entered) if entered else box.cost
            selectivity = counts[box.name] / entered if entered else box.selectivity
            yield Measured(box.name, float(f"{cost:.3g}"), float(f"{selectivity:.4g}"), entered)
    finally:
        for held in kept:
            held.unpersist()
        for view in (*views.values(), *inputs.values()):
            spark.catalog.dropTempView(view)


def _hold(
    spark: SparkSession,
    name: str,
    writer: Writer,
    kept: list[DataFrame],
    views: dict[str, str],
    counts: dict[str, int],
) -> None:
    """Keep a node's rows in memory, so that what is above it is not measured again."""
    rows = spark.sql(writer.computed(name)).persist()
    kept.append(rows)
    counts[name] = rows.count()
    views[name] = f"streamshed_held_{len(views)}"
    rows.createOrReplaceTempView(views[name])
    writer.views = dict(views)


def _timed(what: Callable[[], None]) -> float:
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


def with_costs(network: Network, measured: Mapping[str, Measured]) -> Network:
    """The network with what was measured; a join's or window's selectivity on a sample says little and is left."""
    boxes = tuple(
        box
        if box.name not in measured
        else replace(box, cost=measured[box.name].cost)
        if isinstance(box, Join | Aggregate)
        else replace(box, cost=measured[box.name].cost, selectivity=measured[box.name].selectivity)
        for box in network.boxes
    )
    return replace(network, boxes=boxes)
