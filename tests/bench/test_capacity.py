"""How the benchmarks find out what a job can process, on a job that is made up and a clock that is not real."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamshed.lab.bench import capacity
from streamshed.lab.bench.capacity import Fed
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.network import summary


class Job:
    """Takes some seconds for any batch, and some for each row; both fall from batch to batch while it warms up."""

    def __init__(self, source: Path, fixed: float, row: float, warm_up: float = 0.0) -> None:
        self.source, self.fixed, self.row, self.warm_up = source, fixed, row, warm_up
        self.now = 1000.0
        self.batches: list[int] = []

    def process(self) -> None:
        files = list(self.source.iterdir())
        count = sum(len(file.read_bytes().splitlines()) for file in files)
        for file in files:
            file.unlink()
        slow = 1.0 + self.warm_up / (1 + len(self.batches)) ** 2
        self.batches.append(count)
        self.now += slow * (self.fixed + self.row * count)


def find(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: float) -> Fed:
    monkeypatch.setattr(capacity.time, "time", lambda: job.now)
    folder = tmp_path / "chunk"
    folder.mkdir()
    given = {"seconds": 2.0, "most": 600.0} | options
    return capacity.fastest(folder, job.source, JsonRows(1000), job.process, lambda text: None, **given)  # type: ignore[arg-type]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_the_rate_is_that_of_batches_of_the_wanted_length(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(source, fixed=0.5, row=1e-4)
    fed = find(job, tmp_path, monkeypatch)
    assert fed.rate == pytest.approx(15_000 / 2.0, rel=0.02)  # 1.5 s of rows in 2 s
    assert fed.rows == sum(job.batches)


def test_a_slow_start_is_not_taken_for_the_rate(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = find(Job(source, fixed=0.5, row=1e-4, warm_up=20.0), tmp_path, monkeypatch, least=30.0)
    assert fed.rate == pytest.approx(7_500, rel=0.2)  # the first batch alone would say 290


def test_it_ends_in_time(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(source, fixed=0.5, row=1e-4, warm_up=1000.0)
    find(job, tmp_path, monkeypatch, most=10.0)
    assert len(job.batches) == 1


def test_rounds_are_told_by_their_mean_utility_and_worst_latency() -> None:
    rounds = [
        {"utility": u, "by_output": {"q": u}, "latency_median": 1.0, "latency_p99": late}
        for u, late in [(0.2, 3.0), (0.4, 2.0)]
    ]
    found = [{"factor": 2.0, "policy": "p", "latency_worst_from_the_start": 9.0, **one} for one in rounds]
    (told,) = summary(found)
    assert told["utility"] == told["by_output"]["q"] == pytest.approx(0.3)
    assert (told["latency_p99"], told["latency_worst_from_the_start"]) == (3.0, 9.0)
