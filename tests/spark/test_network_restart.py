"""A network on separate executors, and one that is killed in the middle of a batch and goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark import network_job
from tests.spark.executors import Executors
from tests.spark.helpers import put_rows

FILES, ROWS = 5, 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    for i in range(FILES):
        put_rows(tmp_path / "in", i * ROWS, ROWS)
    return tmp_path


@pytest.mark.spark
def test_after_a_kill_nothing_kept_is_lost_or_doubled_and_the_books_balance(
    spark: SparkSession, folder: Path
) -> None:
    command = [sys.executable, "-m", "tests.spark.network_job", str(folder), "0.6", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    # The second run wants another plan; the batch that runs again must have that of its first run.
    result = network_job.main(spark, folder, keep=0.2)
    outputs: dict[int, list[set[int]]] = {}
    for file in sorted((folder / "out").iterdir(), key=lambda f: f.stat().st_mtime):
        outputs.setdefault(int(file.name.split(".")[0]), []).append(set(json.loads(file.read_text())))
    assert sorted(outputs) == list(range(FILES))
    first, again = outputs[2]
    assert first == again
    assert first
    ids = result["all"]
    assert len(ids) == len(set(ids)), "doubled in the file sink"
    assert set().union(*(attempts[-1] for attempts in outputs.values())) <= set(ids)
    by_batch = [sum(i // ROWS == batch for i in ids) for batch in range(FILES)]
    # Two plans: 0.6 of the even rows in the first three batches, the replayed one among them, 0.2 in the others.
    assert min(by_batch[:3]) > 0.45 * ROWS / 2
    assert max(by_batch[3:]) < 0.35 * ROWS / 2
    report = result["report"]
    assert report["arrived"] == FILES * ROWS
    assert report["by_output"]["all"]["delivered"] == len(ids)
    assert report["kept"] + report["shed"] == FILES * ROWS
    assert report["by_arc"]["s->even"]["kept"] + report["by_arc"]["s->even"]["shed"] == FILES * ROWS


@pytest.mark.cluster
def test_separate_executors_carry_out_the_plan(folder: Path, executors: Executors) -> None:
    result = executors.run("network_job", folder, 0.5)
    assert result["executors"] == 2
    ids = result["all"]
    assert len(ids) == len(set(ids))
    assert 0.4 * FILES * ROWS / 2 < len(ids) < 0.6 * FILES * ROWS / 2
    report = result["report"]
    assert report["arrived"] == FILES * ROWS
    assert report["by_output"]["all"]["delivered"] == len(ids)
    # The query with state has drops of its own, and they take the same rows.
    assert result["counted"] == len(ids)
