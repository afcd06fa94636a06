"""A time budget on executors that are processes of their own: one is lost inside a batch, and tasks run twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.cluster
def test_rows_are_kept_or_counted_when_an_executor_is_lost(tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-m", "tests.spark.budget_cluster_job", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "result.json").read_text())
    # One machine, one clock: what was measured is not more than the time that a clock takes to be read.
    assert result["skew"] < 0.5
    assert all(arrived == kept + cut for arrived, kept, cut in result["samples"])
    rows, different = result["delivered"]
    assert rows == different, "no row is delivered twice"
    # Spark adds up the rows of every task that ends well: a copy that also did is counted once more.
    assert result["arrived"] >= 3250
    assert result["kept"] >= rows
    assert 0 < result["cut"] < 3200
    if result["arrived"] == 3250:
        assert result["kept"] == rows
