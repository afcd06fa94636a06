"""A network in Python: the same object that a YAML spec gives.

>>> from streamshed.network.builder import Builder
>>> network = (
...     Builder("triage", capacity=2.0)
...     .source("vitals", "soldier INT, bpm DOUBLE", rate=1200)
...     .filter("alarm", "vitals", "bpm > 140", cost=2e-6, selectivity=0.1)
...     .output("triage", "alarm", loss=[[100, 1.0], [50, 0.7], [0, 0.0]])
...     .build()
... )
>>> network.arcs
('vitals->alarm', 'alarm->triage')
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.network.expressions.analysis import Inverse
from streamshed.network.expressions.expression import Expression, parse
from streamshed.network.graph import (
    DEFAULT_COST,
    Aggregate,
    Box,
    CountWindow,
    Filter,
    Join,
    LoadAware,
    Map,
    Network,
    Output,
    Source,
    TopK,
    Udf,
    Union,
    schema_of,
)
from streamshed.network.qos import Histogram, LatencyGraph, LossGraph, QoS, ValueGraph

Text = str | Expression
Points = Iterable[Sequence[float]]


def _expression(text: Text) -> Expression:
    return text if isinstance(text, Expression) else parse(text)


class Builder:
    """Collects nodes; `build` checks them all and gives the network."""

    def __init__(self, name: str, *, capacity: float | None = None, headroom: float = 0.9) -> None:
        self._name = name
        self._capacity = capacity
        self._headroom = headroom
        self._sources: list[Source] = []
        self._boxes: list[Box] = []
        self._outputs: list[Output] = []

    def source(
        self,
        name: str,
        schema: str,
        *,
        arrived: str | None = None,
        rate: float = 1.0,
        read: Mapping[str, Any] | None = None,
        parse: Mapping[str, Any] | str | None = None,
        watermark: str | float | None = None,
        protect: Text | None = None,
        protected: float = 0.0,
        key: str | Sequence[str] = (),
        values: Mapping[str, Histogram | Sequence[float]] | None = None,
    ) -> Builder:
        """`parse` names the format of a raw column, parsed after drops that do not need its fields.

        `key` names columns by which rows are dropped whole keys at a time (`value_flow.shared_keys`).

        `values` may give a field's histogram, or just `(low, high)` where values spread evenly.
        """
        spreads = {
            field: spread if isinstance(spread, Histogram) else Histogram.uniform(*spread)
            for field, spread in (values or {}).items()
        }
        self._sources.append(
            Source(
                name=name,
                schema=schema_of(schema),
                arrived=arrived,
                rate=float(rate),
                read=read,
                parse=parsing(parse),
                watermark=None if watermark is None else seconds(watermark),
                protect=None if protect is None else _expression(protect),
                protected=float(protected),
                key=(key,) if isinstance(key, str) else tuple(key),
                values=spreads,
            )
        )
        return self

    def filter(
        self, name: str, input: str, where: Text, *, cost: float = DEFAULT_COST, selectivity: float = 1.0
    ) -> Builder:
        return self.add(
            Filter(name=name, inputs=(input,), where=_expression(where), cost=cost, selectivity=selectivity)
        )

    def map(
        self,
        name: str,
        input: str,
        select: Mapping[str, Text],
        *,
        inverse: Mapping[str, str] | None = None,
        cost: float = DEFAULT_COST,
        selectivity: float = 1.0,
    ) -> Builder:
        """`inverse` declares a field as a function of a column that `select` computes: see `declared`."""
        return self.add(
            Map(
                name=name,
                inputs=(input,),
                select={column: _expression(text) for column, text in select.items()},
                inverse={column: declared(column, text) for column, text in (inverse or {}).items()},
                cost=cost,
                selectivity=selectivity,
            )
        )

    def union(self, name: str, inputs: Iterable[str], *, cost: float = DEFAULT_COST) -> Builder:
        return self.add(Union(name=name, inputs=tuple(inputs), cost=cost))

    def join(
        self,
        name: str,
        inputs: Iterable[str],
        on: str | Iterable[str],
        within: str | float,
        *,
        cost: float = DEFAULT_COST,
        selectivity: float = 1.0,
    ) -> Builder:
        return self.add(
            Join(
                name=name,
                inputs=tuple(inputs),
                on=_names(on),
                within=seconds(within, "within"),
                cost=cost,
                selectivity=selectivity,
            )
        )

    def aggregate(
        self,
        name: str,
        input: str,
        window: str | float,
        compute: Mapping[str, Text],
        *,
        by: str | Iterable[str] = (),
        slide: str | float | None = None,
        cost: float = DEFAULT_COST,
        selectivity: float = 1.0,
    ) -> Builder:
        return self.add(
            Aggregate(
                name=name,
                inputs=(input,),
                window=seconds(window, "window"),
                slide=None if slide is None else seconds(slide, "slide"),
                by=_names(by),
                compute={column: _expression(text) for column, text in compute.items()},
                cost=cost,
                selectivity=selectivity,
            )
        )

    def count_window(
        self,
        name: str,
        input: str,
        rows: int,
        compute: Mapping[str, Text],
        *,
        by: str | Iterable[str] = (),
        cost: float = DEFAULT_COST,
        selectivity: float | None = None,
    ) -> Builder:
        """One row for every `rows` rows of a value of `by`."""
        return self.add(
            CountWindow(
                name=name,
                inputs=(input,),
                rows=rows,
                by=_names(by),
                compute={column: _expression(text) for column, text in compute.items()},
                cost=cost,
                selectivity=1.0 / max(1, rows) if selectivity is None else selectivity,
            )
        )

    def top_k(
        self,
        name: str,
        input: str,
        k: int,
        field: str,
        window: str | float,
        *,
        by: str | Iterable[str] = (),
        cost: float = DEFAULT_COST,
        selectivity: float = 1.0,
    ) -> Builder:
        """The `k` rows with the largest `field` of each window and value of `by`."""
        return self.add(
            TopK(
                name=name,
                inputs=(input,),
                k=k,
                field=field,
                window=seconds(window, "window"),
                by=_names(by),
                cost=cost,
                selectivity=selectivity,
            )
        )

    def udf(
        self,
        name: str,
        input: str,
        function: str,
        reads: str | Iterable[str],
        adds: str,
        *,
        load_aware: LoadAware | None = None,
        cost: float = DEFAULT_COST,
        selectivity: float = 1.0,
    ) -> Builder:
        """`function` is `package.module:name`; `adds` is the new column, such as "score DOUBLE".

        With `load_aware`, such as LoadAware(latency="avg 2 seconds", key=("user",)), the box drops rows by itself.
        """
        (column,) = schema_of(adds)
        return self.add(
            Udf(
                name=name,
                inputs=(input,),
                function=function,
                reads=_names(reads),
                adds=column,
                load_aware=load_aware,
                cost=cost,
                selectivity=selectivity,
            )
        )

    def add(self, box: Box) -> Builder:
        self._boxes.append(box)
        return self

    def output(
        self,
        name: str,
        input: str,
        *,
        loss: Points | None = None,
        latency: Points | None = None,
        value: tuple[str, Points] | None = None,
        histogram: Histogram | None = None,
        write: Mapping[str, Any] | None = None,
        weight: float = 1.0,
        minimum_sic: float = 0.0,
        sic: str | None = None,
    ) -> Builder:
        """`value` is the field and its intervals, each `[from, to, utility]`.

        `weight` and `minimum_sic` are for `fair`; `sic` names a column to add, on Spark.
        """
        qos = QoS(
            loss=None if loss is None else LossGraph.of(loss),
            latency=None if latency is None else LatencyGraph.of(latency),
            value=None if value is None else ValueGraph.of(*value),
            histogram=histogram,
        )
        self._outputs.append(
            Output(name=name, input=input, qos=qos, write=write, weight=weight, minimum_sic=minimum_sic, sic=sic)
        )
        return self

    def build(self) -> Network:
        return Network(
            self._name,
            tuple(self._sources),
            tuple(self._boxes),
            tuple(self._outputs),
            capacity=self._capacity,
            headroom=self._headroom,
        )


def _names(columns: str | Iterable[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


PARSERS = ("json", "csv")


def parsing(given: Mapping[str, Any] | str | None) -> dict[str, Any] | None:
    """A parse step, with what is not given filled in.

    >>> parsing("json")
    {'format': 'json', 'column': 'value', 'options': {}}
    """
    if given is None:
        return None
    asked = dict(given) if isinstance(given, Mapping) else {"format": given}
    cost = asked.pop("cost", 0.0)
    wrong = asked.get("format") not in PARSERS or set(asked) - {"format", "column", "options"}
    if wrong or isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf:
        raise InvalidArgument(
            "not a parse step",
            got=given,
            hint=f"format: one of {', '.join(PARSERS)}; column: the raw column; options; cost: seconds a row",
        )
    made: dict[str, Any] = {
        "format": asked["format"],
        "column": asked.get("column", "value"),
        "options": asked.get("options", {}),
    }
    return made | {"cost": float(cost)} if cost else made


def declared(column: str, text: str) -> Inverse:
    """A user's inverse for a column: `field = expression of the column`, increasing unless it says `falling`.

    >>> declared("f", "bpm = f * f").increasing, declared("f", "bpm = 100 / f, falling").increasing
    (True, False)
    """
    match = re.fullmatch(r"\s*(\w+)\s*=(?!=)(.+?)(?:,\s*(rising|falling))?\s*", text)
    if not match:
        raise InvalidArgument(
            "not an inverse",
            got=repr(text),
            hint=f'such as "field = {column} * {column}", then ", falling" if so',
        )
    field, formula, direction = match.groups()
    expression = parse(formula)
    if expression.fields() != {column}:
        raise InvalidArgument(f"the inverse must be a function of {column!r} alone", got=repr(text))
    return Inverse(field, column, expression, direction != "falling")
