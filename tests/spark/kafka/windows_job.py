"""A network with windows beside an output without, for test_real_time_network_windows: FOLDER BROKER INTO OUT…"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

import streamshed as ss
from streamshed.errors import EnvironmentProblem
from streamshed.lab.bench import kafka
from streamshed.network import Builder, Network
from streamshed.spark.network.real_time_network import RealTimeNetwork
from streamshed.spark.real_time.task_slots import SlotsWanted, check_slots
from streamshed.spark.session import leave_spark, local_session

ROWS = 20_000
SLOTS = 5
_WITHIN = 120.0  # seconds


def network() -> Network:
    """An output of rows, one of tumbling windows and one of sliding ones."""
    return (
        Builder("beside")
        .source("events", "n INT, at TIMESTAMP", arrived="at", rate=1000)
        .filter("even", "events", "n % 2 = 0", cost=0.001, selectivity=0.5)
        .aggregate("tumble", "events", "1 minute", {"rows": "count(*)"})
        .aggregate("slide", "even", "1 minute", {"rows": "count(*)"}, slide="30 seconds")
        .output("rows", "even", loss=[(100, 1.0), (0, 0.0)])
        .output("tumbling", "tumble", loss=[(100, 1.0), (0, 0.0)])
        .output("sliding", "slide", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )


def _all_there(running: RealTimeNetwork) -> bool:
    """Whether the batches with all rows are over, in every query."""
    by_query = running.report().by_query
    return len(by_query) == len(running.queries) and all(each.arrived == ROWS for each in by_query.values())


def main(folder: Path, address: str, into: str, *outs: str) -> None:
    settings = {"spark.jars": kafka.connector(), "spark.sql.shuffle.partitions": "1"}
    spark = local_session("windows", f"local[{SLOTS}]", **settings)
    source = {"kafka.bootstrap.servers": address, "subscribe": into, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**source).load()
    number = F.get_json_object(F.col("value").cast("string"), "$.n").cast("int").alias("n")
    # The watermark is that of the user's own stream.
    events = rows.select(number, F.col("timestamp").alias("at")).withWatermark("at", "1 hour")
    sinks = {
        name: {"format": "kafka", "options": {"kafka.bootstrap.servers": address, "topic": out}}
        for name, out in zip(("rows", "tumbling", "sliding"), outs, strict=True)
    }
    told: dict[str, object] = {}
    with ss.run(
        spark,
        network(),
        sources={"events": events},
        sinks=sinks,
        policy="lsrm-random",
        latency="200 ms",
        state=str(folder / "state"),
        trigger={"realTime": "8 seconds"},
    ) as running:
        assert isinstance(running, RealTimeNetwork)
        deadline = time.monotonic() + _WITHIN
        while not (_all_there(running) and "slots" in told):
            try:
                check_slots(spark, {"another": SlotsWanted(1)})
            except EnvironmentProblem as error:
                told["slots"] = str(error)
            failure = running.failure()
            if failure is not None or time.monotonic() > deadline:
                raise failure or TimeoutError(f"{running.report().by_query}, {told}")
            time.sleep(0.1)
        told["queries"] = list(running.queries)
    report = running.report()
    told["arrived"] = {name: each.arrived for name, each in report.by_query.items()}
    told["kept"] = {
        name: {on: rows.kept for on, rows in each.by_arc.items()} for name, each in report.by_query.items()
    }
    (folder / "result.json").write_text(json.dumps(told))
    leave_spark()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
