"""A job over Spark Connect, for `test_connect.py`: in a process of its own, since Spark's modes do not mix."""

from __future__ import annotations

import json
import sys
import time
import warnings

warnings.simplefilter("ignore")


def main(folder: str) -> None:
    from pyspark.sql import SparkSession

    import streamshed as ss

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.range(0, 4000, 1, 2).selectExpr(
        "id", "IF(id % 10 = 0, 'high', 'low') AS priority", "timestamp_seconds(1000000000 + id) AS at"
    ).write.parquet(f"{folder}/in/a")
    events = spark.readStream.schema("id LONG, priority STRING, at TIMESTAMP").parquet(f"{folder}/in/*")
    found: dict[str, object] = {}

    def run(name: str, **settings: object) -> None:
        kept = ss.shed(events, "4 seconds", name=name, **settings)  # type: ignore[arg-type]
        slow = kept.where("reflect('java.lang.Thread', 'sleep', 5L) = 'null'")
        query = slow.writeStream.format("noop").option("checkpointLocation", f"{folder}/{name}")
        query.trigger(availableNow=True).start().awaitTermination()
        handle = ss.shedder(kept)
        deadline = time.monotonic() + 30
        while not handle.report().batches and time.monotonic() < deadline:
            time.sleep(0.1)
        report = handle.report()
        found[name] = [report.arrived, report.kept, report.cut, report.expired]
        assert ss.handle(name) is handle

    run("budget", protect="priority = 'high'")
    run("expired", arrived="at", expired="drop", protect="id < 100", budget=False)
    for settings in ({"key": "id"}, {"mode": "dry-run"}, {"max_shed": 0.5}, {"budget": "1 hour"}):
        try:
            ss.shed(events, "4 seconds", **settings)  # type: ignore[arg-type]
        except ss.InvalidArgument as error:
            found["no " + next(iter(settings))] = str(error)
    print("RESULT " + json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
