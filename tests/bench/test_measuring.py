"""The benchmarks' own arithmetic, on runs made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamshed.lab.bench.burst import BURST, CALM, judge
from streamshed.lab.bench.feeder import Feeder, JsonRows
from streamshed.lab.bench.jobs import Batch, Run, weighted_quantile

NOTHING = np.array([])


def batch(number: int, started: float, committed: float, arrivals: list[float], kept: int | None = None) -> Batch:
    rows = np.full(len(arrivals), 10.0)
    return Batch(number, started, committed, np.array(arrivals), rows, int(rows.sum()) if kept is None else kept)


def run(*batches: Batch) -> Run:
    return Run(list(batches), sum(b.arrived for b in batches), NOTHING, NOTHING, batches[-1].committed)


def test_quantiles_are_weighted_by_the_rows_that_were_kept() -> None:
    both = run(batch(0, 1.0, 2.0, [0.0, 1.0]), batch(1, 2.0, 10.0, [2.0], kept=1))
    # 20 rows with latencies 2 and 1, and one with 8.
    assert both.latency(0.5) == 2.0
    assert both.latency(1.0) == 8.0
    assert both.latency(1.0, after=0.5) == 8.0
    assert run(both.batches[0]).latency(1.0, after=0.5) == 1.0


def test_rows_that_were_never_delivered_count_with_their_age() -> None:
    behind = Run([batch(0, 0.0, 1.0, [0.0])], 110, np.array([50.0]), np.array([100.0]), 51.0)
    assert behind.latency(0.99) == 1.0
    assert behind.latency(0.99, with_waiting=True) == 50.0


def test_goodput_is_kept_rows_over_busy_time() -> None:
    some = run(batch(0, 0.0, 1.0, [0.0]), batch(1, 5.0, 7.0, [4.0], kept=4))
    assert some.goodput(0.0, 10.0) == pytest.approx(14 / 3)
    assert some.goodput(4.0, 10.0) == pytest.approx(2.0)


def test_weighted_quantile_agrees_with_repeating_the_values() -> None:
    rng = np.random.default_rng(1)
    values, weights = rng.uniform(0, 10, 50), rng.integers(1, 9, 50)
    flat = np.sort(np.repeat(values, weights))
    for quantile in (0.1, 0.5, 0.9, 0.99):
        assert weighted_quantile(values, weights.astype(float), quantile) in flat
        position = int(np.ceil(quantile * len(flat))) - 1
        assert weighted_quantile(values, weights.astype(float), quantile) == pytest.approx(flat[position])


def test_a_burst_is_judged_by_batches() -> None:
    calm = batch(0, 10.0, 11.0, [9.0])
    saw_it = batch(1, CALM + 1, CALM + 5, [CALM])
    late = batch(2, CALM + 5, CALM + 12, [CALM + 2], kept=3)
    well = batch(3, CALM + 12, CALM + 13, [CALM + 9], kept=5)
    over = batch(4, CALM + 14, CALM + 15, [CALM + BURST + 3])
    seen = judge(run(calm, saw_it, late, well, over), bound=8.0)
    assert seen["batches_to_bound"] == 2
    assert seen["batches_to_full_keep"] == 0
    assert seen["shed_before_burst"] == 0
    assert seen["shed"] == 12


def test_a_feeder_delivers_its_schedule(tmp_path: Path) -> None:
    rows = JsonRows(count=1000)
    feeder = Feeder(tmp_path, lambda second: 2000.0 if second < 0.3 else 0.0, 0.6, rows=rows)
    feeder.start()
    feeder.join()
    assert sum(count for _, count in feeder.files.values()) == 600
    lines = [line for file in sorted(tmp_path.glob("*.json")) for line in file.read_text().splitlines()]
    assert len(lines) == 600
    assert {len(line) for line in lines} == {rows.width - 1}
