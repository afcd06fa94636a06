"""The oracle: a network as plain batch DataFrames over all of the input, written without the compiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from streamshed.network.graph import Aggregate, Filter, Join, Map, Network, Udf, Union


def answers(network: Network, sources: Mapping[str, DataFrame]) -> dict[str, Counter[Row]]:
    """What each output gets when nothing is dropped."""
    rows: dict[str, DataFrame] = {
        source.name: sources[source.name].select(*(column.name for column in source.schema))
        for source in network.sources
    }
    for box in network.order:
        first = rows[box.inputs[0]]
        if isinstance(box, Filter):
            rows[box.name] = first.where(box.where.sql())
        elif isinstance(box, Map):
            types = {column.name: column.type for column in network.schemas[box.name]}
            rows[box.name] = first.select(
                *(F.expr(text.sql()).cast(types[name].lower()).alias(name) for name, text in box.select.items())
            )
        elif isinstance(box, Union):
            made = first
            for name in box.inputs[1:]:
                made = made.unionByName(rows[name])
            rows[box.name] = made
        elif isinstance(box, Join):
            left, right = box.inputs
            times = f"abs(unix_micros({network.times[left]}) - unix_micros({network.times[right]}))"
            pairs = rows[left].join(rows[right], list(box.on)).where(f"{times} <= {int(box.within * 1e6)}")
            rows[box.name] = pairs.select(*(column.name for column in network.schemas[box.name]))
        elif isinstance(box, Aggregate):
            size = f"{int(box.window * 1000)} milliseconds"
            slide = None if box.slide is None else f"{int(box.slide * 1000)} milliseconds"
            window = F.window(str(network.times[box.inputs[0]]), size, slide)
            types = {column.name: column.type for column in network.schemas[box.name]}
            computed = [
                F.expr(text.sql()).cast(types[name].lower()).alias(name) for name, text in box.compute.items()
            ]
            grouped = first.groupBy(window.alias("w"), *box.by).agg(*computed)
            rows[box.name] = grouped.select(
                F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"), *box.by, *box.compute
            )
        else:
            assert isinstance(box, Udf)
            raise NotImplementedError("give the test its own oracle")
    return {output.name: Counter(rows[output.input].collect()) for output in network.outputs}
