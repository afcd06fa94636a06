"""The load-aware operator where numba cannot be imported; run by test_load_aware_cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import streamshed as ss
from streamshed import jit
from streamshed.spark.session import local_session
from tests.spark.helpers import run_all, stream


def has_numba(row: dict[str, Any]) -> dict[str, Any]:
    from streamshed import jit

    return {"id": row["id"], "numba": jit.numba is not None}


def main(folder: Path) -> None:
    assert jit.numba is None
    spark = local_session("plain", "local[1]")
    out = ss.load_aware(
        stream(spark, folder / "in", files=1),
        has_numba,
        cost_key="user",
        target="max 1 ms",
        cost="0.001",
        schema="id LONG, numba BOOLEAN",
        arrived="at",
        floor=0.2,
    )
    rows = run_all(out, folder / "state", "plain")
    handle = ss.load_shedder(out)
    report = handle.report()
    result = {
        "numba": [row["id"] for row in rows if row["numba"]],
        "arrived": report.arrived,
        "kept": report.kept,
        "unseen": report.unseen,
        "learning": handle.costs["learning_rows"],
    }
    (folder / "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
