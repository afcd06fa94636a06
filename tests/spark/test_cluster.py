"""Executors that are processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.helpers import put_rows


@pytest.mark.cluster
def test_it_sheds_and_counts_on_separate_executors(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for i in range(6):
        put_rows(source, i * 1000, 1000)
    command = [sys.executable, "-m", "tests.spark.cluster_job", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["executors"] == 2
    assert result["counted"] == result["kept"] == result["expected"]
    assert result["arrived"] == 6000
    assert 2500 < result["kept"] < 3500
