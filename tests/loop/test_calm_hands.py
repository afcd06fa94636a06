"""Runs on a real Spark, replayed: a plan changes for what is needed, and not for every batch's noise.

Each is `ss.shed` with a bound of 4 s on 2 cores, calm at first and then at twice what the job can do; `disturbed`
beside a process that takes a core for 3 s in every 7. The last one reads Spark's rate source, which gives the rows
of whole seconds, so that batches have one or two of these, with protected rows and a floor of 0.05.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamshed.loop import Controller, Limits
from streamshed.policies import RandomShedding
from streamshed.records import Sample, load_samples

BOUND = 4.0
RUNS = {"files-2x": 0.02, "files-2x-disturbed": 0.02, "rate-2x": 0.05}
"""Floors."""


def samples(name: str) -> list[Sample]:
    return load_samples((Path(__file__).parent / "recorded" / f"{name}.jsonl").read_text())


def variation(keeps: list[float]) -> float:
    return float(np.abs(np.diff(keeps)).sum())


@pytest.mark.parametrize("name", RUNS)
def test_keep_moves_about_as_far_as_the_clairvoyants(name: str) -> None:
    """Who knew what fits would go there once, and back."""
    controller = Controller(RandomShedding("s"), latency=BOUND, limits=Limits(floor=RUNS[name]))
    plans = [(sample, controller.observe(sample)) for sample in samples(name)]
    keeps = [plan.keep if plan.drops else 1.0 for sample, plan in plans if sample.finished]
    shed = [sample for sample, _ in plans if sample.finished and sample.shed]
    fits = sum(sample.kept for sample in shed) / sum(sample.arrived for sample in shed)
    assert min(keeps) < 0.75, "it was an overload"
    assert variation(keeps) <= 2.0 * 2 * (1 - fits)


@pytest.mark.parametrize("name", RUNS)
def test_what_they_kept_was_in_time(name: str) -> None:
    assert all(sample.latency <= BOUND for sample in samples(name) if sample.finished and sample.shed)
