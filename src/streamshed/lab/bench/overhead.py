"""`bench overhead`: what `shed` costs a job that has nothing to shed.

Two queries of the light job (parse JSON, filter, windowed aggregate) stand side by side, one with
`shed` and one without. They get the same rows in turns, several batches at a time; each pair of turns
gives a ratio of times, and the median of them is told. A third query, plain as well, takes its turns
too. The plain job's time is the mean of both; how far the ratio of one to the other is from 1 is what this
machine's noise alone makes of a number.

Then the same for a job that reads one column of a hundred, from Parquet, and counts: whatever `shed` has read
beside that column would show there. Once without a key and once with one. Its batches are short, and one is as
often 8 % longer than another as not: it has three times as many turns, so that their median tells 1.05 from 1.08.

Every batch has a time budget, as by default: the clock is in the plan, and nothing is ever too late. Adaptive
execution does nothing for jobs with state, so a third job, parse and filter alone, is run with it on and off.
What must come out (written down before the first run): every ratio at most 1.02.

A last part has SIC accounting on (`overhead_sic`): at most 1.03. `--part` runs one part alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import streamshed as ss
import streamshed.lab.bench.play as playing
from streamshed.lab.bench import jobs, overhead_sic
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.play import Say, Workplace
from streamshed.lab.bench.standing import FILES, Standing, StandingJob, in_turns, ratios, stock

BATCH_SECONDS = 2.0  # half of a bound of 4 seconds: the size of batch that a job near its bound has
BATCHES = 3  # in a turn
WARM_UP = 2  # turns of each that are not counted: the JVM compiles
WARM_UP_BATCHES = 40  # of a few rows, before
WARM_UP_PLANS = (
    600  # of a batch: a job that runs for days has planned more than that, and the JVM has compiled it all
)
PARTS = ("light", "stateless", "columnar", "sic")
SIC_PAIRS = 15
COLUMNS = 100
COLUMNAR_ROWS = 2_000_000  # in a batch
COLUMNAR_PAIRS = 3  # turns for each of the other jobs'


def run(say: Say, pairs: int = 15, parts: Sequence[str] = PARTS) -> dict[str, Any]:
    spark = playing.session("bench overhead")
    rows = JsonRows()
    told: dict[str, Any] = {"bench": "overhead"}
    with playing.Workplace() as place:
        if {*parts} - {"columnar"}:
            able = playing.capacity(spark, place, jobs.light, rows, say, seconds=BATCH_SECONDS)
            supply = stock(place, rows, int(able * BATCH_SECONDS))
        if "light" in parts:
            told |= _light(spark, place, supply, pairs, say) | {"rows_per_batch": int(able * BATCH_SECONDS)}
        if "stateless" in parts:
            told |= _stateless(spark, place, supply, pairs, say)
        if "columnar" in parts:
            told |= _columnar(spark, place, pairs, say)
        if "sic" in parts:
            told |= overhead_sic.measure(spark, place, supply, min(pairs, SIC_PAIRS), say)
    return told


def _light(spark: SparkSession, place: Workplace, supply: Path, pairs: int, say: Say) -> dict[str, Any]:
    """The light job."""
    names = ("plain", "plain again", "shed")
    queries = {name: StandingJob(spark, place, jobs.light, attached=name == "shed") for name in names}
    took = in_turns(queries, supply, BATCHES, pairs, WARM_UP, say)
    found = ratios(took["shed"], took["plain"], took["plain again"])
    return {
        "ratio": round(statistics.median(found), 4),
        "pairs": pairs,
        "ratio_low": round(sorted(found)[pairs // 4], 4),
        "ratio_high": round(sorted(found)[-1 - pairs // 4], 4),
        "ratio_of_totals": round(2 * sum(took["shed"]) / sum(took["plain"] + took["plain again"]), 4),
        "noise": round(statistics.median(ratios(took["plain again"], took["plain"])), 4),
        "batch_s": round(statistics.median(took["plain"]) / BATCHES, 3),
    }


def _stateless(spark: SparkSession, place: Workplace, supply: Path, pairs: int, say: Say) -> dict[str, Any]:
    """Parse and filter, with adaptive execution and without."""

    def parse(lines: DataFrame) -> DataFrame:
        return lines.select(F.from_json("value", jobs.SCHEMA).alias("r")).select("r.*").where("v > 10")

    queries: dict[str, Standing] = {}
    for adaptive in ("on", "off"):
        spark.conf.set("spark.sql.adaptive.enabled", str(adaptive == "on").lower())
        for name in ("plain", "shed"):
            queries[f"{name} {adaptive}"] = StandingJob(spark, place, parse, attached=name == "shed")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    took = in_turns(queries, supply, BATCHES, pairs, WARM_UP, say)
    return {
        f"stateless_adaptive_{each}_ratio": round(
            statistics.median(ratios(took[f"shed {each}"], took[f"plain {each}"])), 4
        )
        for each in ("on", "off")
    }


def _columnar(spark: SparkSession, place: Workplace, pairs: int, say: Say) -> dict[str, Any]:
    """One column of a hundred is read and counted by its values."""
    say(f"writing {COLUMNAR_ROWS:,} rows of {COLUMNS} columns")
    schema, folder = _columns(spark, place, COLUMNAR_ROWS)
    _, little = _columns(spark, place, FILES)

    def standing(key: str | None, attached: bool) -> Standing:
        def start(source: Path) -> StreamingQuery:
            reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES)
            events: DataFrame = reader.parquet(str(source))
            if attached:
                events = ss.shed(events, latency=3600, key=key)
            counts = events.groupBy("c0").count()
            return jobs.start(counts, place.fresh("columnar-state"))

        return Standing(place, start)

    queries = {
        "plain": standing(None, False),
        "plain again": standing(None, False),
        "shed": standing(None, True),
        "shed by key": standing("c0", True),
    }
    for name, query in queries.items():
        say(f"{WARM_UP_BATCHES} small batches, to have what runs them compiled: {name}")
        query.take(little, WARM_UP_BATCHES)
    for _ in range(4):
        for name, query in queries.items():
            say(f"{WARM_UP_PLANS // 4} plans, to have what makes them compiled: {name}")
            query.plan_again(WARM_UP_PLANS // 4)
    pairs *= COLUMNAR_PAIRS
    took = in_turns(queries, folder, BATCHES, pairs, WARM_UP, say)
    plain = took["plain"], took["plain again"]
    found = {name: ratios(took[name], *plain) for name in queries}
    return {
        "columnar_ratio": round(statistics.median(found["shed"]), 4),
        "columnar_keyed_ratio": round(statistics.median(found["shed by key"]), 4),
        "columnar_quartiles": [round(sorted(found["shed"])[i], 4) for i in (pairs // 4, -1 - pairs // 4)],
        "columnar_keyed_quartiles": [
            round(sorted(found["shed by key"])[i], 4) for i in (pairs // 4, -1 - pairs // 4)
        ],
        "columnar_noise": round(statistics.median(ratios(took["plain again"], took["plain"])), 4),
        "columnar_pairs": pairs,
        "columnar_batch_s": round(statistics.median(took["plain"]) / BATCHES, 3),
    }


def _columns(spark: SparkSession, place: Workplace, count: int) -> tuple[StructType, Path]:
    """Parquet files of one batch."""
    folder = place.fresh("columnar")
    numbers = [((F.col("id") * (2 * i + 3)) % 1009).cast("double").alias(f"c{i}") for i in range(1, COLUMNS)]
    rows = spark.range(0, count, 1, FILES).select((F.col("id") % 1000).alias("c0"), *numbers)
    rows.write.mode("overwrite").parquet(str(folder))
    for file in folder.iterdir():
        if file.suffix != ".parquet" or file.name.startswith("."):
            file.unlink()
    return rows.schema, folder
