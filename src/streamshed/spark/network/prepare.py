"""Everything that can be wrong with a network on this Spark, found before any query starts."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.errors import InvalidArgument
from streamshed.network.check import type_of
from streamshed.network.expressions.expression import Binary, Expression
from streamshed.network.graph import (
    Aggregate,
    Box,
    Column,
    CountWindow,
    Filter,
    InvalidNetwork,
    Map,
    Network,
    Problem,
    Schema,
    Source,
    TopK,
    Udf,
)
from streamshed.spark.arguments import check_choice
from streamshed.spark.load_aware.cost_control import Goal
from streamshed.spark.network.expiry_gates import tells_age
from streamshed.spark.network.query_layout import NetworkLayout, QueryLayout
from streamshed.spark.network.slots import Slots
from streamshed.spark.network.sql import Marks, Parser, Writer, spark_type
from streamshed.spark.worker import Shipped

_function_numbers = itertools.count(1)
_FILES = ("json", "csv", "parquet", "orc", "text")

_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "bigint": (),
    "float": ("double",),
}


def streams(spark: SparkSession, network: Network, given: Mapping[str, DataFrame] | None) -> dict[str, DataFrame]:
    """The rows of each source: what the program gives, or what the spec says to read."""
    given = dict(given or {})
    names = {source.name for source in network.sources}
    problems = [
        Problem(f"sources.{name}", "the network has no such source", name, ", ".join(sorted(names)))
        for name in given
        if name not in names
    ]
    found: dict[str, DataFrame] = {}
    for source in network.sources:
        try:
            rows = given[source.name] if source.name in given else _read(spark, source)
            found[source.name] = stamped(network, source, _shaped(source, rows))
        except InvalidNetwork as error:
            problems.extend(error.problems)
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r}")
    return found


def _counts_milliseconds(network: Network, source: Source) -> bool:
    """Whether a source above a join or a window has its arrival times as numbers, as DISSP's are."""
    if source.arrived is None or not network.column(source.name, source.arrived).whole or source.parse is not None:
        return False
    return any(box.makes_rows and source in network.above(box.name)[0] for box in network.boxes)


def stamped(network: Network, source: Source, rows: DataFrame) -> DataFrame:
    """Rows whose arrival, counted in milliseconds since 1970, is a time that Spark can window and join by."""
    if not _counts_milliseconds(network, source):
        return rows
    arrived = str(source.arrived)
    return rows.withColumns({arrived: F.timestamp_millis(F.col(f"`{arrived}`"))})


def with_timestamps(network: Network) -> Network:
    """The network of the rows that `stamped` makes."""
    sources = tuple(
        replace(
            source,
            schema=tuple(
                Column(column.name, "TIMESTAMP") if column.name == source.arrived else column
                for column in source.schema
            ),
            values={name: spread for name, spread in source.values.items() if name != source.arrived},
        )
        if _counts_milliseconds(network, source)
        else source
        for source in network.sources
    )
    return network if sources == network.sources else replace(network, sources=sources)


def _read(spark: SparkSession, source: Source) -> DataFrame:
    path = f"sources.{source.name}"
    if source.read is None:
        raise InvalidNetwork(
            [Problem(path, "nothing says where its rows come from", None, "a `read`, or a DataFrame in sources=")]
        )
    options = {str(key): value for key, value in dict(source.read.get("options", {})).items()}
    _check_path(spark, f"{path}.read", source, options)
    reader: Any = spark.readStream.format(str(source.read.get("format", ""))).options(**options)
    needs_schema = str(source.read.get("format", "")).lower() in ("json", "csv", "parquet", "orc")
    if source.parse is not None:
        needs_schema = False
    if needs_schema:
        reader = reader.schema(", ".join(f"`{column.name}` {spark_type(column)}" for column in source.schema))
    try:
        return reader.load()
    except Exception as error:
        raise InvalidNetwork(
            [Problem(f"{path}.read", "Spark cannot read this", first_line(error), str(dict(source.read)))]
        ) from error


def _check_path(spark: SparkSession, path: str, source: Source, options: Mapping[str, Any]) -> None:
    """A folder that does not exist: some formats would wait for it to appear, others fail in the first batch."""
    place = str(options.get("path", ""))
    if not place or str((source.read or {}).get("format")).lower() not in _FILES:
        return
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs.Path(place)
    found = hadoop.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).globStatus(hadoop)
    if found is None or not len(found):
        raise InvalidNetwork([Problem(path, "there is no such file or folder", place, "a folder that exists")])


def check_expired(network: Network, expired: str) -> None:
    """Whether rows that are too old can be told: `expired="drop"` needs an arrival time at every source."""
    check_choice("way with rows that are too late already (expired)", expired, ("keep", "drop"))
    if expired == "keep":
        return
    problems = []
    for source in network.sources:
        path = f"sources.{source.name}.arrived"
        hint = "`arrived` at the source: a TIMESTAMP of its schema"
        if source.arrived is None:
            problems.append(Problem(path, 'expired="drop" needs the time at which rows arrived', None, hint))
        elif not tells_age(network, source):
            got = network.column(source.name, source.arrived).type
            problems.append(Problem(path, 'expired="drop" needs a time, and this column is none', got, hint))
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r}")


def check_before_spark(network: Network, *, local: bool) -> None:
    """What is wrong with a network that nobody gives anything to, as far as it shows without Spark.

    `local`: whether a path without a scheme is one of this machine.
    """
    check_sinks(network, None)
    problems: list[Problem] = []
    for source in network.sources:
        path = f"sources.{source.name}"
        if source.read is None:
            problems.append(Problem(path, "nothing says where its rows come from", None, "a `read`, or --read"))
            continue
        place = str(dict(source.read.get("options", {})).get("path", ""))
        if not place or str(source.read.get("format")).lower() not in _FILES:
            continue
        if (local or place.startswith("file:")) and not check_local_path(place):
            problems.append(
                Problem(f"{path}.read", "there is no such file or folder", place, "a folder that exists")
            )
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r}")


def check_local_path(place: str) -> bool:
    """Whether there is something at a path of this machine; yes, where only Spark can tell."""
    scheme = re.match(r"([a-zA-Z][\w+.-]+):", place)
    if re.search(r"[*?\[\]{}\\]", place) or (scheme is not None and scheme[1].lower() != "file"):
        return True  # a pattern, or another file system
    return Path(unquote(urlsplit(place).path) if scheme is not None else place).exists()


def read_sample(spark: SparkSession, source: Source, path: str) -> DataFrame:
    """A batch of a source's rows from files, in the format that its `read` names (or JSON)."""
    format = str((source.read or {}).get("format", "json"))
    if source.parse is not None:
        format = "text"
    elif format not in ("json", "csv", "parquet", "orc"):
        format = "json"
    options = {key: value for key, value in dict((source.read or {}).get("options", {})).items() if key != "path"}
    reader: Any = spark.read.format(format).options(**options)
    if source.parse is None:
        reader = reader.schema(", ".join(f"`{column.name}` {spark_type(column)}" for column in source.schema))
    try:
        rows = reader.load(path)
        return rows if source.parse is not None else rows.select(*(column.name for column in source.schema))
    except PySparkException as error:
        raise InvalidArgument(f"no sample for {source.name!r}", got=f"{path}: {first_line(error)}") from error


def _shaped(source: Source, rows: DataFrame) -> DataFrame:
    """The source's columns in order, each of its type."""
    path = f"sources.{source.name}"
    if not isinstance(rows, DataFrame) or not rows.isStreaming:
        got = "a batch DataFrame" if isinstance(rows, DataFrame) else type(rows).__name__
        raise InvalidNetwork([Problem(path, "not a streaming DataFrame", got, "spark.readStream…load()")])
    if source.parse is not None:
        return _raw(source, rows)
    has = {field.name: field.dataType.simpleString() for field in rows.schema}
    problems: list[Problem] = []
    columns = []
    for column in source.schema:
        wanted = spark_type(column).lower()
        at = f"{path}.schema.{column.name}"
        if column.name not in has:
            problems.append(Problem(at, "the stream lacks this column", ", ".join(has) or "no columns"))
        elif has[column.name] != wanted and wanted not in _WIDER.get(has[column.name], ()):
            problems.append(
                Problem(at, "the stream's column has another type", has[column.name], f"{wanted}; cast it before")
            )
        else:
            same = has[column.name] == wanted
            columns.append(
                F.col(f"`{column.name}`") if same else F.col(f"`{column.name}`").cast(wanted).alias(column.name)
            )
    if problems:
        raise InvalidNetwork(problems)
    return rows.select(*columns)


def _raw(source: Source, rows: DataFrame) -> DataFrame:
    """The raw column of a source that is parsed late, and those columns of its schema that are there already."""
    assert source.parse is not None
    raw = source.parse["column"]
    has = {field.name: field.dataType.simpleString() for field in rows.schema}
    path = f"sources.{source.name}.parse"
    if raw not in has:
        raise InvalidNetwork([Problem(path, "the stream lacks the raw column", raw, ", ".join(has))])
    if has[raw] not in ("string", "binary"):
        raise InvalidNetwork(
            [Problem(path, "the raw column is neither text nor bytes", has[raw], "string or binary")]
        )
    ready = []
    for column in source.schema:
        if column.name in has and column.name != raw:
            if has[column.name] != spark_type(column).lower():
                raise InvalidNetwork(
                    [Problem(f"{path}.{column.name}", "the stream's column has another type", has[column.name])]
                )
            ready.append(column.name)
    return rows.select(raw, *ready)


def first_line(error: BaseException) -> str:
    """The line that says what is wrong."""
    text = str(error)
    with contextlib.suppress(Exception):  # only what was raised in the JVM has one, and the JVM may be gone
        text = str(error.java_exception.toString())  # type: ignore[attr-defined]
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def check_sinks(network: Network, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """What each output is written to; two may not write to one place."""
    given = dict(given or {})
    names = {output.name for output in network.outputs}
    for name in given:
        if name not in names:
            raise InvalidArgument("the network has no such output", got=repr(name), hint=", ".join(sorted(names)))
    found: dict[str, Any] = {}
    places: dict[str, str] = {}
    problems: list[Problem] = []
    for output in network.outputs:
        spec = given.get(output.name, output.write)
        path = f"outputs.{output.name}"
        if spec is None:
            problems.append(Problem(path, "nothing says where its rows go", None, "a `write`, sinks= or --write"))
            continue
        found[output.name] = spec
        if isinstance(spec, Mapping):
            options = dict(spec.get("options", {}))
            place = options.get("path") or options.get("topic") or options.get("dbtable")
            if place is not None:
                place = str(place).rstrip("/")
                if place in places:
                    problems.append(
                        Problem(
                            f"{path}.write", "two outputs write to one place", f"{place}, also {places[place]}"
                        )
                    )
                places.setdefault(place, output.name)
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r}")
    return found


def check_formats(spark: SparkSession, specs: Mapping[str, Any]) -> None:
    """Formats that Spark does not know: found now and not when the first batch is written."""
    look_up: Any = spark._jvm
    problems: list[Problem] = []
    for output, spec in specs.items():
        if callable(spec):
            continue
        format = spec if isinstance(spec, str) else str(spec.get("format", ""))
        if format in ("memory", "console"):
            continue  # ours
        try:
            conf = spark._jsparkSession.sessionState().conf()
            look_up.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(format, conf)
        except Exception as error:
            if spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(format):
                continue  # one written in Python
            problems.append(
                Problem(f"outputs.{output}.write", f"Spark does not know the format {format!r}", first_line(error))
            )
    if problems:
        raise InvalidNetwork(problems)


def check_boxes(
    spark: SparkSession, network: Network, rows: Mapping[str, DataFrame], functions: Mapping[str, str]
) -> None:
    """Have Spark look at every box on no rows at all, so that what it cannot do is known now, and where."""
    problems: list[Problem] = [*_comparisons(network), *_state(network, rows), *_load_aware(network)]
    views: dict[str, str] = {}
    layout = QueryLayout(network, "check", tuple(output.name for output in network.outputs), False)
    parsers = {
        source.name: Parser.of(source, rows[source.name].columns)
        for source in network.sources
        if source.parse is not None
    }
    marks = Marks(dict.fromkeys(network.nodes, 1))
    writer = Writer(
        layout, Slots.of(network), marks, {}, {}, lambda on: False, lambda at: "NULL", functions, parsers
    )
    token = f"streamshed_check_{id(writer)}"
    catalog = spark.catalog
    try:
        for name, stream in rows.items():
            view = f"{token}_in_{len(views)}"
            spark.createDataFrame([], stream.schema).createOrReplaceTempView(view)
            views[f"in {name}"] = view
        writer.inputs = {name: views[f"in {name}"] for name in rows}
        nodes: list[Source | Box] = [*network.sources, *network.order]
        for node in nodes:
            group = "sources" if isinstance(node, Source) else "boxes"
            if isinstance(node, Box) and not all(name in views for name in node.inputs):
                continue
            try:
                made = spark.sql(writer.computed(node.name))
            except PySparkException as error:
                problems.append(Problem(f"{group}.{node.name}", "Spark cannot run this", first_line(error)))
                continue
            views[node.name] = f"{token}_{len(views)}"
            made.createOrReplaceTempView(views[node.name])
            writer.views = {name: view for name, view in views.items() if name in network.nodes}
    finally:
        for view in views.values():
            catalog.dropTempView(view)
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r}")


def _state(network: Network, rows: Mapping[str, DataFrame]) -> Iterator[Problem]:
    """Joins and windows need a time, and a watermark that tells when a row can no longer matter."""
    for box in network.order:
        if not box.makes_rows:
            continue
        path = f"boxes.{box.name}"
        for name in box.inputs:
            time = network.times[name]
            if time is None:
                yield Problem(
                    path, f"the rows of {name!r} have no time", None, "`arrived` at the source, and kept"
                )
        sources, above = network.above(box.name)
        for other in above:
            if isinstance(other, Aggregate | CountWindow | TopK):
                yield Problem(path, "state below a window is not supported", other.name, "a network of its own")
        for source in () if isinstance(box, CountWindow) else sources:
            if source.watermark is None and not _has_watermark(rows[source.name], source):
                yield Problem(
                    path,
                    f"a {box.op} needs a watermark, or its state grows for ever",
                    f"none on the source {source.name!r}",
                    f'sources.{source.name}.watermark: "10 seconds", or withWatermark on its DataFrame',
                )


def _has_watermark(rows: DataFrame, source: Source) -> bool:
    return any(
        field.name == source.arrived and "spark.watermarkDelayMs" in (field.metadata or {})
        for field in rows.schema
    )


def function_of(box: Udf) -> Any:
    """The Python function that a udf box names."""
    module, _, attribute = box.function.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _load_aware(network: Network) -> Iterator[Problem]:
    """A box that drops rows by itself needs their arrival, and a batch that is built anew every time."""
    layout = NetworkLayout.of(network)
    for box in network.boxes:
        if not isinstance(box, Udf) or box.load_aware is None:
            continue
        path = f"boxes.{box.name}.load_aware"
        try:
            Goal.parse(box.load_aware.latency)
        except InvalidArgument as error:
            yield Problem(f"{path}.latency", str(error).splitlines()[0], box.load_aware.latency, "avg 2 seconds")
        above = box.inputs[0]
        if network.times[above] is None:
            yield Problem(path, f"the rows of {above!r} have no arrival time", None, "`arrived` at the source")
        for query in layout.queries:
            if query.stateful and box.name in query.nodes:
                yield Problem(
                    path,
                    "not above a join or a window",
                    f"the output {query.outputs[0]!r} has one",
                    "ss.load_aware on the source's stream, before the network",
                )


def register_functions(spark: SparkSession, network: Network) -> dict[str, str]:
    """The functions of the udf boxes, known to SQL; for each box the name."""
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for box in network.boxes:
        if not isinstance(box, Udf):
            continue
        try:
            function = function_of(box)
        except (ImportError, AttributeError, ValueError) as error:
            problems.append(
                Problem(f"boxes.{box.name}.function", "no such function", box.function, first_line(error))
            )
            continue
        found[box.name] = f"streamshed_udf_{next(_function_numbers)}"
        spark.udf.register(found[box.name], F.udf(Shipped(function), spark_type(box.adds), useArrow=True))
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r}")
    return found


def _comparisons(network: Network) -> Iterator[Problem]:
    """Numbers compared with text: Spark would take the text for a number, and fail on the first that is none."""
    for source in network.sources:
        if source.protect is not None:
            yield from _mixed(f"sources.{source.name}.protect", source.protect, source.schema)
    for box in network.boxes:
        above = network.schemas[box.inputs[0]]
        if isinstance(box, Filter):
            yield from _mixed(f"boxes.{box.name}.where", box.where, above)
        elif isinstance(box, Map):
            for name, expression in box.select.items():
                yield from _mixed(f"boxes.{box.name}.select.{name}", expression, above)


def _mixed(path: str, expression: Expression, schema: Schema) -> Iterator[Problem]:
    names = {column.name: column for column in schema}
    if isinstance(expression, Binary) and expression.op not in ("AND", "OR"):
        kinds = [_kind(Column("", type_of(side, names))) for side in (expression.left, expression.right)]
        if set(kinds) == {"text", "number"}:
            yield Problem(path, "a number and text do not compare", str(expression), "both of one kind")
    for child in expression.children():
        yield from _mixed(path, child, schema)


def _kind(column: Column) -> str:
    return "number" if column.numeric else "text" if column.type == "STRING" else "other"
