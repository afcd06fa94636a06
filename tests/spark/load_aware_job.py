"""The load-aware operator on separate executors, one worker of which is killed; run by test_load_aware_cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import streamshed as ss
from tests.spark.executors import executor_count
from tests.spark.helpers import run_all, stream


class DiesOnce:
    """The function's worker is killed, once, in the middle of a batch."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 2500 and not os.path.exists(self.mark):
            Path(self.mark).write_text("died")
            os.kill(os.getpid(), signal.SIGKILL)
        return {"id": row["id"], "worker": os.getpid()}


def main(spark: SparkSession, folder: Path) -> dict[str, Any]:
    out = ss.load_aware(
        stream(spark, folder / "in", files=2),
        DiesOnce(folder / "died"),
        cost_key="user",
        target="avg 100000 hours",
        schema="id LONG, worker LONG",
        arrived="at",
        window=500,
        name="learned",
    )
    rows = run_all(out, folder / "state", "learned")
    handle = ss.load_shedder(out)
    report = handle.report()
    return {
        "executors": executor_count(spark),
        "died": (folder / "died").exists(),
        "ids": sorted(row["id"] for row in rows),  # type: ignore[type-var]
        "workers": len({row["worker"] for row in rows}),
        "arrived": report.arrived,
        "ran": report.ran,
        "unseen": report.unseen,
        "learned": handle.costs["table"],
        "timed": int(handle.costs["learning_rows"]),
    }
