"""`shed` over Spark Connect: a fixed budget, its books, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster


def test_a_budget_over_spark_connect_is_kept_and_counted(tmp_path: Path) -> None:
    job = [sys.executable, "-m", "tests.spark.connect_job", str(tmp_path)]
    done = subprocess.run(job, capture_output=True, text=True, timeout=300, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    assert line is not None, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(line.removeprefix("RESULT "))
    # 4,000 rows of 5 ms on two cores take 10 s; a budget of 1.6 s does not let them all in, but every tenth.
    arrived, kept, cut, expired = found["budget"]
    assert (arrived, expired) == (4000, 0)
    assert 400 <= kept < 4000
    assert cut == 4000 - kept
    assert found["expired"] == [4000, 100, 0, 3900]
    assert "nothing else is shed" in found["no key"]
    assert "nothing else is shed" in found["no max_shed"]
    assert "would have been dropped" in found["no mode"]
    assert "longer than the bound" in found["no budget"]
