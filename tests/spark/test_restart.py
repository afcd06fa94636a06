"""kill -9 in the middle of a batch, and again from the checkpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark import restart_job
from tests.spark.helpers import put_rows

FILES, ROWS = 6, 500


@pytest.mark.spark
def test_a_batch_that_runs_again_drops_the_same_rows_and_the_books_balance(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    for i in range(FILES):
        put_rows(tmp_path / "in", i * ROWS, ROWS)
    command = [sys.executable, "-m", "tests.spark.restart_job", str(tmp_path), "0.6", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    # The second run wants another plan from the start; the batch that runs again must not have it.
    report = restart_job.main(spark, tmp_path, keep=0.1)
    outputs: dict[int, list[set[int]]] = {}
    for file in sorted((tmp_path / "out").iterdir(), key=lambda f: f.stat().st_mtime):
        outputs.setdefault(int(file.name.split(".")[0]), []).append(set(json.loads(file.read_text())))
    assert sorted(outputs) == list(range(FILES))
    first, again = outputs[3]
    assert first == again
    assert 0 < len(first) < ROWS
    # Plans did differ from batch to batch, or this test would show nothing.
    assert len({len(attempts[-1]) for attempts in outputs.values()}) > 2
    # Protected rows: none shed, ever.
    delivered = set().union(*(attempts[-1] for attempts in outputs.values()))
    assert set(range(0, FILES * ROWS, 10)) <= delivered
    assert report == {"arrived": FILES * ROWS, "kept": len(delivered), "unseen": 0}
