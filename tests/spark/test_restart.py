"""kill -9 in the middle of a batch, and again from the checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.helpers import put_rows

FILES, ROWS = 6, 500


def run(folder: Path, keep: float, die_at: int) -> int:
    command = [sys.executable, "-m", "tests.spark.restart_job", str(folder), str(keep), str(die_at)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if die_at < 0:
        assert done.returncode == 0, done.stderr[-3000:]
    return done.returncode


@pytest.mark.cluster
def test_a_batch_that_runs_again_drops_the_same_rows_and_the_books_balance(tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    for i in range(FILES):
        put_rows(tmp_path / "in", i * ROWS, ROWS)
    assert run(tmp_path, keep=0.6, die_at=3) != 0
    # The second run wants another plan from the start; the batch that runs again must not have it.
    run(tmp_path, keep=0.1, die_at=-1)
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
    report = json.loads((tmp_path / "report.json").read_text())
    assert report == {"arrived": FILES * ROWS, "kept": len(delivered), "unseen": 0}
