"""Everything that can be wrong with a network on this Spark, found before any query starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.errors import InvalidArgument
from streamshed.network.graph import InvalidNetwork, Network, Problem, Source
from streamshed.spark.sql import spark_type

_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "bigint": (),
    "float": ("double",),
}


def streams(
    spark: SparkSession, network: Network, given: Mapping[str, DataFrame] | None
) -> dict[str, DataFrame]:
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
            found[source.name] = _shaped(source, rows)
        except InvalidNetwork as error:
            problems.extend(error.problems)
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r}")
    return found


def _read(spark: SparkSession, source: Source) -> DataFrame:
    path = f"sources.{source.name}"
    if source.read is None:
        raise InvalidNetwork(
            [Problem(path, "nothing says where its rows come from", None, "a `read`, or a DataFrame in sources=")]
        )
    options = {str(key): value for key, value in dict(source.read.get("options", {})).items()}
    reader: Any = spark.readStream.format(str(source.read.get("format", ""))).options(**options)
    needs_schema = str(source.read.get("format", "")).lower() in ("json", "csv", "parquet", "orc")
    if needs_schema:
        reader = reader.schema(", ".join(f"`{column.name}` {spark_type(column)}" for column in source.schema))
    try:
        return reader.load()
    except (AnalysisException, PySparkException, Exception) as error:
        raise InvalidNetwork(
            [Problem(f"{path}.read", "Spark cannot read this", first_line(error), str(dict(source.read)))]
        ) from error


def _shaped(source: Source, rows: DataFrame) -> DataFrame:
    """The source's columns in order, each of its type."""
    path = f"sources.{source.name}"
    if not isinstance(rows, DataFrame) or not rows.isStreaming:
        got = "a batch DataFrame" if isinstance(rows, DataFrame) else type(rows).__name__
        raise InvalidNetwork([Problem(path, "not a streaming DataFrame", got, "spark.readStream…load()")])
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
            columns.append(F.col(f"`{column.name}`") if same else F.col(f"`{column.name}`").cast(wanted).alias(column.name))
    if problems:
        raise InvalidNetwork(problems)
    return rows.select(*columns)


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


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
            problems.append(Problem(path, "nothing says where its rows go", None, "a `write`, or sinks="))
            continue
        found[output.name] = spec
        if isinstance(spec, Mapping):
            options = dict(spec.get("options", {}))
            place = options.get("path") or options.get("topic") or options.get("dbtable")
            if place is not None:
                place = str(place).rstrip("/")
                if place in places:
                    problems.append(Problem(f"{path}.write", "two outputs write to one place", f"{place}, also {places[place]}"))
                places.setdefault(place, output.name)
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r}")
    return found
