"""A stateful job on separate executors; run by test_cluster with: FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F

import streamshed as ss
from streamshed.spark.session import local_session
from tests.spark.helpers import expected_ids, run_all, stream


def main(folder: Path) -> None:
    spark = local_session("cluster", "local-cluster[2,1,1024]", **{"spark.driver.memory": "1g"})
    kept = ss.shed(stream(spark, folder / "in", files=2), "1 hour", arrived="at", key="id", name="c", salt="test")
    handle = ss.shedder(kept)
    handle.pin(0.5)
    counts = kept.withWatermark("at", "1 hour").groupBy(F.window("at", "10 minutes")).agg(F.count("*").alias("n"))
    rows = run_all(counts, folder / "state", "clustered", mode="complete")
    result = {
        "executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,  # type: ignore[union-attr]
        "counted": sum(row["n"] for row in rows),  # type: ignore[misc]
        "expected": len(expected_ids(spark, folder / "in", 0.5, "id")),
        "arrived": handle.report().arrived,
        "kept": handle.report().kept,
    }
    (folder / "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
