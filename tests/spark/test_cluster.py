"""Executors that are processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.executors import Executors
from tests.spark.helpers import put_rows


@pytest.mark.cluster
def test_it_sheds_and_counts_on_separate_executors(tmp_path: Path, executors: Executors) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for i in range(6):
        put_rows(source, i * 1000, 1000)
    result = executors.run("cluster_job", tmp_path)
    assert result["executors"] == 2
    assert result["counted"] == result["kept"] == result["expected"]
    assert result["arrived"] == 6000
    assert 2500 < result["kept"] < 3500
