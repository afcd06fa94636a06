"""The load-aware operator on separate executors, one worker of which is killed; run by test_load_aware_cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import streamshed as ss
from streamshed.spark.session import local_session
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


def main(folder: Path) -> None:
    here = Path(__file__).parents[2]
    spark = local_session(
        "cluster",
        "local-cluster[2,1,1024]",
        **{
            "spark.driver.memory": "1g",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(Path(ss.__file__).parents[1]), str(here)]),
        },
    )
    out = ss.load_aware(
        stream(spark, folder / "in", files=2),
        DiesOnce(folder / "died"),
        cost_key="user",
        target="avg 100000 hours",
        schema="id LONG, worker LONG",
        arrived="at",
        window=500,
        name="c",
    )
    rows = run_all(out, folder / "state", "clustered")
    handle = ss.load_shedder(out)
    report = handle.report()
    result = {
        "executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,  # type: ignore[union-attr]
        "died": (folder / "died").exists(),
        "ids": sorted(row["id"] for row in rows),  # type: ignore[type-var]
        "workers": len({row["worker"] for row in rows}),
        "arrived": report.arrived,
        "ran": report.ran,
        "unseen": report.unseen,
        "learned": handle.costs["table"],
        "timed": int(handle.costs["learning_rows"]),
    }
    (folder / "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
