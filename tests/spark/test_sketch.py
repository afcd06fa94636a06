"""The hashes and sketches against Spark's own."""

from __future__ import annotations

import datetime
import math
import random
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamshed.sketch.count_min import CountMin
from streamshed.sketch.hashing import CarterWegman, digest, digest_sql, digests, xxhash64

pytestmark = pytest.mark.spark

UTC = datetime.timezone.utc
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "t": ("TINYINT", [0, -128, 127, None]),
    "s": ("SMALLINT", [1, -32768, 32767, None]),
    "i": ("INT", [0, -1, 2**31 - 1, -(2**31)]),
    "l": ("BIGINT", [0, -1, 2**63 - 1, -(2**63)]),
    "f": ("FLOAT", [0.0, -0.0, 1.5, math.nan]),
    "d": ("DOUBLE", [0.0, -0.0, -math.inf, math.nan]),
    "b": ("BOOLEAN", [True, False, None, True]),
    "x": ("STRING", ["", "Zürich", "a" * 100, None]),
    "y": ("BINARY", [b"", b"\x00\xff", bytes(range(70)), None]),
    "a": ("DATE", [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31), datetime.date(2026, 2, 3), None]),
    "z": (
        "TIMESTAMP",
        [datetime.datetime(year, 1, 2, 3, 4, 5, 6, UTC) for year in (2026, 1960, 1970, 2038)],
    ),
}
WIDTHS = {"TINYINT": np.int8, "SMALLINT": np.int16, "INT": np.int32, "FLOAT": np.float32}


def ours(kind: str, value: Any) -> Any:
    return value if value is None or kind not in WIDTHS else WIDTHS[kind](value)


@pytest.fixture
def rows(spark: SparkSession) -> Any:
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    return spark.createDataFrame(list(zip(*(values for _, values in COLUMNS.values()), strict=True)), schema)


def test_xxhash64_of_every_type_and_of_chained_columns(rows: Any) -> None:
    names = list(COLUMNS)
    found = rows.select(*(F.xxhash64(name).alias(name) for name in names), F.xxhash64(*names).alias("all"))
    for number, row in enumerate(found.collect()):
        values = {name: ours(kind, values[number]) for name, (kind, values) in COLUMNS.items()}
        assert {name: row[name] for name in names} == {name: xxhash64(values[name]) for name in names}
        assert row["all"] == xxhash64(*values.values())


def test_strings_of_every_length(spark: SparkSession) -> None:
    """XXH64 treats the last bytes in eights, fours and ones, and 32 together."""
    rng = random.Random(4)
    texts = ["".join(rng.choice("aé漢😀") for _ in range(n)) for n in range(80)]
    frame = spark.createDataFrame([(text,) for text in texts], "x STRING")
    assert [row[0] for row in frame.select(F.xxhash64("x")).collect()] == [xxhash64(text) for text in texts]


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("columns", [1, 3, 55, 2719])
def test_cells_in_sql_are_the_cells_in_python(spark: SparkSession, ansi: str, columns: int) -> None:
    hashes = CarterWegman.draw(7, columns, seed=columns)
    numbers = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 2_000, endpoint=True)
    numbers[:4] = [0, -1, 2**63 - 1, -(2**63)]
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.createDataFrame([(int(n), str(n)) for n in numbers], "n BIGINT, x STRING")
        found = frame.selectExpr(
            f"array({', '.join(hashes.sql(digest_sql('n')))})",
            f"array({', '.join(hashes.sql(digest_sql('x', 'n')))})",
        ).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert np.array_equal(np.array([row[0] for row in found]), hashes.cells(digests(numbers)))
    for row, number in zip(found, numbers.tolist(), strict=True):
        assert tuple(row[1]) == hashes.cells_of(digest(str(number), number))


def test_frequencies_agree_with_sparks_count_min_sketch(spark: SparkSession) -> None:
    rng = np.random.default_rng(8)
    weights = 1 / np.arange(1, 1_001)
    keys = rng.choice(1_000, 20_000, p=weights / weights.sum()).astype(np.int64)
    truth = np.bincount(keys, minlength=1_000)
    epsilon, confidence = 0.01, 0.99
    frame = spark.createDataFrame([(int(key),) for key in keys], "k BIGINT")
    data = frame.select(F.count_min_sketch("k", F.lit(epsilon), F.lit(confidence), F.lit(1))).first()[0]
    jvm: Any = spark.sparkContext._gateway.jvm
    theirs = jvm.org.apache.spark.util.sketch.CountMinSketch.readFrom(bytearray(data))
    sketch = CountMin.sized(epsilon, 1 - confidence, seed=1)
    sketch.add_many(digests(keys))
    assert sketch.total == theirs.totalCount() == len(keys)
    asked = [*range(20), *range(20, 1_000, 49)]
    wrong = 0
    for key in asked:
        mine, other = sketch.estimate(digest(key)), theirs.estimateCount(key)
        assert mine >= truth[key]
        assert other >= truth[key]
        wrong += abs(mine - other) > epsilon * len(keys)
    assert wrong <= 1


def test_one_sketch_for_each_partition_merges_to_one_pass(spark: SparkSession) -> None:
    from streamshed.sketch.cost import CostSketch

    def summarise(batches: Any) -> Any:
        import pyarrow as pa

        part = CostSketch.sized(0.05, 0.1, seed=3)
        for batch in batches:
            keys = batch.column("id").to_numpy()
            part.add_many(digests(keys), keys * 1_000 + 17)
        yield pa.RecordBatch.from_pydict({"sketch": [part.to_bytes()]})

    found = spark.range(0, 10_000, 1, 7).mapInArrow(summarise, "sketch BINARY").collect()
    merged = CostSketch.sized(0.05, 0.1, seed=3)
    for row in found:
        merged.merge(CostSketch.from_bytes(bytes(row.sketch)))
    whole = CostSketch.sized(0.05, 0.1, seed=3)
    keys = np.arange(10_000)
    whole.add_many(digests(keys), keys * 1_000 + 17)
    assert len(found) == 7
    assert merged.to_bytes() == whole.to_bytes()
