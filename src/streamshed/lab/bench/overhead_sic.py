"""What SIC accounting costs a job that has nothing to shed: a part of `bench overhead`.

Five queries of the light job (parse JSON, filter, average and count by window and user) stand side by side and
take the same rows in turns:

    plain, plain again    by hand, without any of ours
    shed                  `ss.shed(…, sic="sic")`, and every result says its SIC: count(*) / sum(1 / sic)
    network               the same job as a network, whose SIC is in the report
    network, column       the same with `sic` on every row of the output

What must come out, written before the first run: all against the plain job at most 1.03. A network is more than
its SIC: what the column alone costs is told beside it, against the network without one.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.lab.bench import jobs
from streamshed.lab.bench.play import Say, Workplace
from streamshed.lab.bench.standing import FILES, Standing, in_turns, ratios
from streamshed.network import Builder, Network

BATCHES = 3  # in a turn
WARM_UP = 2  # turns of each that are not counted


def network(column: str | None) -> Network:
    """The light job as a network; with `column`, its results tell their SIC."""
    return (
        Builder(f"light-{column or 'plain'}")
        .source("lines", f"{jobs.SCHEMA}, arrived TIMESTAMP", parse="json", arrived="arrived",
                watermark="10 seconds", rate=10_000)
        .filter("some", "lines", "v > 10")
        .aggregate("by_user", "some", "10 seconds", {"v": "avg(v)", "n": "count(*)"}, by="user")
        .output("out", "by_user", write={"mode": "update"}, sic=column)
        .build()
    )  # fmt: skip


def with_sic(lines: DataFrame) -> DataFrame:
    """The light job behind a shed stream; every result tells its SIC."""
    kept = ss.shed(lines, latency=3600, arrived="arrived", floor=0.0, sic="sic")
    rows = kept.select(F.from_json("value", jobs.SCHEMA).alias("r"), "arrived", "sic")
    rows = rows.select("r.*", "arrived", "sic").where("v > 10").withWatermark("arrived", "10 seconds")
    of_a_result = F.count("*") / F.sum(1 / F.col("sic"))
    told = (F.avg("v").alias("v"), F.count("*").alias("n"), of_a_result.alias("sic"))
    return rows.groupBy(F.window("arrived", "10 seconds"), "user").agg(*told)


def measure(spark: SparkSession, place: Workplace, supply: Path, pairs: int, say: Say) -> dict[str, Any]:
    def by_hand(job: jobs.Job) -> Standing:
        def start(source: Path) -> StreamingQuery:
            return jobs.start(job(jobs.read(spark, source, FILES)), place.fresh("sic-state"))

        return Standing(place, start)

    def compiled(column: str | None) -> Standing:
        def start(source: Path) -> StreamingQuery:
            rows = {"lines": jobs.read(spark, source, FILES)}
            state = str(place.fresh("sic-network"))
            running = ss.run(
                spark, network(column), sources=rows, sinks={"out": "noop"}, latency=3600, state=state
            )
            (query,) = running.queries.values()
            return query

        return Standing(place, start)

    queries = {
        "plain": by_hand(jobs.light),
        "plain again": by_hand(jobs.light),
        "shed": by_hand(with_sic),
        "network": compiled(None),
        "network, column": compiled("sic"),
    }
    took = in_turns(queries, supply, BATCHES, pairs, WARM_UP, say)
    return told(took)


def told(took: dict[str, list[float]]) -> dict[str, Any]:
    """Medians of the turns' ratios to the plain jobs', and quartiles; and of the column's, to the network's."""
    found = {name: sorted(ratios(times, took["plain"], took["plain again"])) for name, times in took.items()}

    def quartiles(name: str) -> list[float]:
        quarter = len(found[name]) // 4
        return [round(found[name][quarter], 4), round(found[name][-1 - quarter], 4)]

    names = {"sic": "shed", "sic_network": "network", "sic_network_column": "network, column"}
    return {
        **{f"{key}_ratio": round(statistics.median(found[name]), 4) for key, name in names.items()},
        **{f"{key}_quartiles": quartiles(name) for key, name in names.items()},
        "sic_column_ratio": round(statistics.median(ratios(took["network, column"], took["network"])), 4),
        "sic_noise": round(statistics.median(ratios(took["plain again"], took["plain"])), 4),
        "sic_batch_s": round(statistics.median(took["plain"]) / BATCHES, 3),
        "sic_pairs": len(took["plain"]),
    }
