"""A time budget on executors that are processes of their own: one is lost inside a batch, and tasks run twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.executors import Executors


@pytest.mark.cluster
def test_rows_are_kept_or_counted_when_an_executor_is_lost(
    tmp_path: Path, speculating_executors: Executors
) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    result = speculating_executors.run("budget_cluster_job", tmp_path)
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
