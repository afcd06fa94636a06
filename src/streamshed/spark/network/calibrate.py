"""`calibrate`: what each box of a network costs on this Spark, measured on a sample, by difference.

A box's rows are written to nowhere with and without the box, in turn, several times; the difference of the
fastest times, times the cores that worked, over the rows that entered, is its cost. Where several read them they
are kept as in a running batch instead, and each reader looks at all of them to say which it drops: both are part
of the cost, since a row that was dropped above spares them, and one that is dropped behind does not. Its
selectivity is counted. The parsing of raw rows is measured in the same way, and told by the name of the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from streamshed.network.graph import Network, ends
from streamshed.spark.network.fused_query import literals
from streamshed.spark.network.prepare import register_functions
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.slots import Slots
from streamshed.spark.network.sql import Marks, Parser, Writer

LEAST = 1e-8
"""Seconds a row: what is too quick to be told from nothing still costs something."""
_SHARED = "streamshed_shared"


@dataclass(frozen=True)
class Measured:
    """What was measured of one box, or of the parsing of one source."""

    box: str
    cost: float
    """Core-seconds per row that enters."""
    selectivity: float
    rows: int
    """Rows that entered; 0: nothing could be measured, and this is what the network says."""


def calibrate(
    spark: SparkSession, network: Network, samples: Mapping[str, DataFrame], *, repeats: int = 3, copies: int = 1
) -> Iterator[Measured]:
    """Measure every box on samples of the sources (batch DataFrames); boxes are told as they are done.

    `copies`: how often each sample is taken, so that small ones take long enough to be timed.
    """
    functions = register_functions(spark, network)
    layout = QueryLayout(network, "calibrate", tuple(output.name for output in network.outputs), False)
    marks = Marks(dict.fromkeys((*network.nodes, *network.arcs), 1))
    parsers = {
        source.name: Parser.of(source, samples[source.name].columns)
        for source in network.sources
        if source.parse is not None
    }
    inputs = {source.name: f"streamshed_sample_{index}" for index, source in enumerate(network.sources)}
    slots = Slots.of(network)
    writer = Writer(layout, slots, marks, inputs, {}, lambda on: False, lambda at: "NULL", functions, parsers)
    kept: list[DataFrame] = []
    views: dict[str, str] = {}
    counts: dict[str, int] = {}

    def cost_of(name: str, before: str, entered: int) -> float:
        if name in layout.shared:
            # As many jobs without any rows: each job takes its time.
            idle = replace(writer, inputs=_emptied(writer.inputs), views=_emptied(writer.views))
            spent = _difference(lambda: _share(spark, name, idle), lambda: _share(spark, name, writer), repeats)
        else:
            alone, whole = spark.sql(before), spark.sql(writer.computed(name))
            spent = _difference(lambda: _discard(alone), lambda: _discard(whole), repeats)
        return max(LEAST, spent * spark.sparkContext.defaultParallelism / entered)

    try:
        for source in network.sources:
            rows = samples[source.name]
            for _ in range(copies - 1):
                rows = rows.unionAll(samples[source.name])
            raw = rows.select("*").persist()  # what reading costs is nobody's
            kept.append(raw)
            raw.createOrReplaceTempView(inputs[source.name])
            entered = raw.count()
            if source.parse is not None and entered:
                cost = cost_of(source.name, f"SELECT 1 FROM {inputs[source.name]}", entered)
                yield Measured(source.name, float(f"{cost:.3g}"), 1.0, entered)
            _hold(spark, source.name, writer, kept, views, counts)
        for box in network.order:
            entered = sum(counts[name] for name in box.inputs)
            before = " UNION ALL ".join(f"SELECT 1 FROM {views[name]}" for name in box.inputs)
            if not entered:
                _hold(spark, box.name, writer, kept, views, counts)
                yield Measured(box.name, box.cost, box.selectivity, 0)
                continue
            cost = cost_of(box.name, before, entered)
            _hold(spark, box.name, writer, kept, views, counts)
            selectivity = counts[box.name] / entered
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


def _emptied(views: Mapping[str, str]) -> dict[str, str]:
    """The same with all of their rows read, and none left."""
    return {name: f"(SELECT * FROM {view} WHERE spark_partition_id() < 0)" for name, view in views.items()}


def _discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _share(spark: SparkSession, name: str, writer: Writer) -> None:
    """As a running batch does with rows that several read: keep them, and ask of each which reader wants it."""
    slots = writer.slots
    arcs = [on for on in writer.layout.arcs if ends(on)[0] == name]
    asking = replace(
        writer,
        dropping=lambda on: on in arcs and on in slots.slots,
        number=literals(slots, slots.rehearsal()),
        ranges=lambda on: min(1, slots.slots[on].size - 1),
    )
    kept = spark.sql(asking.wanted(name)).localCheckpoint(eager=True)
    kept.createOrReplaceTempView(_SHARED)
    try:
        reading = replace(asking, views={**writer.views, name: _SHARED})
        for on in arcs:
            _discard(spark.sql(f"SELECT 1 FROM ({reading.passing(on)})"))
    finally:
        spark.catalog.dropTempView(_SHARED)
        kept._jdf.queryExecution().logical().rdd().unpersist(False)


def _difference(alone: Callable[[], None], whole: Callable[[], None], repeats: int) -> float:
    """By how many seconds the one takes longer than the other, each at its fastest; measured in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats + 1):  # the first compiles
        for what, into in zip((alone, whole), times, strict=True):
            begin = time.perf_counter()
            what()
            if turn:
                into.append(time.perf_counter() - begin)
    return max(0.0, min(times[1]) - min(times[0]))


def with_costs(network: Network, measured: Mapping[str, Measured]) -> Network:
    """The network with what was measured; a join's or window's selectivity on a sample says little and is left."""
    boxes = tuple(
        box
        if box.name not in measured
        else replace(box, cost=measured[box.name].cost)
        if box.makes_rows
        else replace(box, cost=measured[box.name].cost, selectivity=measured[box.name].selectivity)
        for box in network.boxes
    )
    sources = tuple(
        source
        if source.parse is None or source.name not in measured
        else replace(source, parse={**source.parse, "cost": measured[source.name].cost})
        for source in network.sources
    )
    return replace(network, sources=sources, boxes=boxes)
