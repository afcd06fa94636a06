"""Executors that are processes of their own, and a worker that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.executors import Executors
from tests.spark.helpers import put_rows


@pytest.mark.cluster
def test_it_learns_on_separate_executors_and_a_worker_that_dies_counts_once(
    tmp_path: Path, executors: Executors
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for i in range(6):
        put_rows(source, i * 1000, 1000)
    result = executors.run("load_aware_job", tmp_path)
    assert result["executors"] == 2
    assert result["died"]
    assert result["workers"] >= 3  # the one that died left no rows; another took its place
    # Spark ran the dead worker's task again: each row came out once and was counted once.
    assert result["ids"] == list(range(6000))
    assert (result["arrived"], result["ran"], result["unseen"]) == (6000, 6000, 0)
    assert result["learned"] >= 1


@pytest.mark.cluster
def test_it_works_where_there_is_no_numba(tmp_path: Path) -> None:
    """Neither in the driver nor in the workers; the rule then runs as the plain Python that it is."""
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('not here')")
    (tmp_path / "in").mkdir()
    for i in range(2):
        put_rows(tmp_path / "in", i * 500, 500)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.load_aware_plain", str(tmp_path)],
        capture_output=True, text=True, timeout=240, check=False, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["numba"] == []
    assert (result["arrived"], result["unseen"]) == (1000, 0)
    assert 200 <= result["kept"] <= 210  # nothing but the floor
    assert result["learning"] == result["kept"]
