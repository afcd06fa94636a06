"""Where an output's rows go, batch by batch.

A fused query hands every output its own batch, so a sink is something that takes (rows, number of the batch). A
batch that runs again after a crash comes with the same number: files are then written once, as by Spark's own
file sink, which is what writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from streamshed.errors import InvalidArgument
from streamshed.spark.orders.store import Store

Sink = Callable[[DataFrame, int], None]
SinkSpec = Mapping[str, Any] | str | Sink

FILE_FORMATS = {
    "parquet": "parquet.ParquetFileFormat",
    "json": "json.JsonFileFormat",
    "csv": "csv.CSVFileFormat",
    "text": "text.TextFileFormat",
    "orc": "orc.OrcFileFormat",
}


def qualified(spark: SparkSession, path: str) -> str:
    """A path as Spark's own writers make it: absolute, with the scheme of its file system."""
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs.Path(path)
    files = hadoop.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return str(files.makeQualified(hadoop).toString())


class MemorySink:
    """Keeps the rows here in the driver: for tests and for a look."""

    def __init__(self) -> None:
        self._batches: dict[int, list[Row]] = {}

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self._batches[batch] = rows.collect()

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self._batches) for row in self._batches[number]]


class FileSink:
    """Spark's own file sink: a log beside the files says which of them count, so each batch counts once."""

    def __init__(self, spark: SparkSession, format: str, path: str, options: Mapping[str, str]) -> None:
        jvm: Any = spark._jvm
        package = jvm.org.apache.spark.sql.execution
        file_format = spark.sparkContext._gateway.jvm  # type: ignore[union-attr]
        for name in f"org.apache.spark.sql.execution.datasources.{FILE_FORMATS[format]}".split("."):
            file_format = getattr(file_format, name)
        convert = jvm.org.apache.spark.api.python.PythonUtils
        self.path = qualified(spark, path)
        self._written = Store(spark, f"{self.path}/_spark_metadata")
        self._is_first = True
        self._sink = package.streaming.sinks.FileStreamSink(
            spark._jsparkSession,
            self.path,
            file_format(),
            convert.toSeq([]),
            convert.toScalaMap({**options, "path": self.path}),
        )

    def __call__(self, rows: DataFrame, batch: int) -> None:
        # Only the first batch can be one that runs again.
        if self._is_first and self._has(batch):
            # Spark's sink leaves out what it has; but this run's rows are to be counted as they were delivered.
            rows.write.format("noop").mode("overwrite").save()
        self._is_first = False
        self._sink.addBatch(batch, rows._jdf)

    def _has(self, batch: int) -> bool:
        """Whether a run before this one has written the batch, and ended before the query could say so."""
        return not {str(batch), f"{batch}.compact"}.isdisjoint(self._written.names())


class WriterSink:
    """Any other format that Spark can write a batch to."""

    def __init__(self, format: str, options: Mapping[str, str], mode: str = "append") -> None:
        self._format, self._options, self._mode = format, options, mode

    def __call__(self, rows: DataFrame, batch: int) -> None:
        rows.write.format(self._format).options(**self._options).mode(self._mode).save()


class ConsoleSink:
    """Prints the first rows of each batch."""

    def __init__(self, output: str, rows: int = 20) -> None:
        self._output, self._rows = output, rows

    def __call__(self, rows: DataFrame, batch: int) -> None:
        print(f"── {self._output}, batch {batch}")
        rows.show(self._rows, truncate=False)


def sink_for(spark: SparkSession, output: str, spec: SinkSpec) -> Sink:
    """The sink that a spec asks for: a function, a format, or `{format, options}`."""
    if callable(spec):
        return spec
    given: Mapping[str, Any] = {"format": spec} if isinstance(spec, str) else spec
    format = str(given.get("format", "")).lower()
    options = {str(key): str(value) for key, value in dict(given.get("options", {})).items()}
    if format == "memory":
        return MemorySink()
    if format == "console":
        return ConsoleSink(output, int(options.get("numRows", 20)))
    if format in FILE_FORMATS:
        path = options.pop("path", None)
        if path is None:
            raise InvalidArgument(
                f"outputs.{output}.write: files need a path", got=dict(given), hint="options: {path: out/…}"
            )
        return FileSink(spark, format, path, options)
    return WriterSink(str(given.get("format", "")), options)
