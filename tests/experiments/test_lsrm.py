"""The experiments on tiny sizes: their rows have the right form, and what holds robustly holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamshed.errors import InvalidArgument
from streamshed.lab.experiments import (
    lsrm,
    lsrm_by_rate,
    lsrm_sharing,
    lsrm_skew,
    registry,
)
from streamshed.lab.experiments.registry import FigureRow
from streamshed.network.generate import NetworkShape, generate


def silent(done: int, total: int, what: str) -> None:
    assert 0 <= done <= total
    assert what


def means(rows: Sequence[FigureRow], x: float, series: str = "") -> dict[str, float]:
    return {row.algorithm: row.loss_mean for row in rows if row.x == x and row.series == series}


def test_qos_driven_algorithms_lose_the_least_tuple_utility() -> None:
    rows = lsrm_by_rate.TUPLE_UTILITY.measure(2, 1, silent, excess=(0.5, 2.0), seconds=6.0)
    for excess in (0.5, 2.0):
        found = means(rows, lsrm.mean_rate(excess))
        assert set(found) == {*lsrm.ADMISSION, *lsrm.QOS_DRIVEN}
        assert found["lsrm-random"] < min(found[name] for name in lsrm.ADMISSION)
        assert found["lsrm-semantic"] <= found["lsrm-random"]


@pytest.mark.parametrize("excess", lsrm.EXCESS)
def test_semantic_drops_never_lose_more_than_random_ones(excess: float) -> None:
    """Run by run, of either utility: all of the figures' loads, on networks that the figures do not have."""
    network = generate(NetworkShape(excess=excess), seed=round(1000 * excess))
    lost = lsrm.losses(network, lsrm.QOS_DRIVEN, seed=1, seconds=6.0)
    for utility in (lost.tuples, lost.values):
        assert utility["lsrm-semantic"] <= utility["lsrm-random"]


def test_semantic_drops_save_at_least_half_of_the_value() -> None:
    rows = lsrm_by_rate.VALUE_UTILITY.measure(2, 1, silent, excess=(0.5,), seconds=6.0)
    found = means(rows, lsrm.mean_rate(0.5))
    assert found["lsrm-semantic"] <= found["lsrm-random"] / 2


def test_the_semantic_advantage_grows_with_skew_and_shrinks_with_rate() -> None:
    rows = lsrm_skew.measure(2, 1, silent, skew=(0.0, 2.0), excess=(0.5, 3.0), seconds=6.0)
    ratio = {(row.series, row.x): row.loss_mean for row in rows if row.algorithm == lsrm_skew.RATIO}
    slow, fast = dict.fromkeys(series for series, _ in ratio)
    assert ratio[slow, 2.0] > ratio[slow, 0.0]
    assert ratio[fast, 2.0] > ratio[fast, 0.0]
    assert ratio[slow, 2.0] > ratio[fast, 2.0]


def test_the_road_maps_advantage_with_sharing_grows_with_skew_and_fades_with_load() -> None:
    rows = lsrm_sharing.measure(2, 1, silent, skew=(0.0, 2.0), excess=(0.22, 3.0), seconds=5.0, queries=10)
    ratio = {(row.series, row.x): row.loss_mean for row in rows if row.algorithm == lsrm_sharing.RATIO}
    even, skewed = dict.fromkeys(series for series, _ in ratio)
    assert ratio[skewed, 22] > 1.5 > ratio[even, 22]
    assert ratio[skewed, 22] > ratio[skewed, 300] > 0.9


@pytest.mark.parametrize("name", [name for name in registry.names() if name.startswith("lsrm")])
def test_every_experiment_can_be_found_drawn_and_written(name: str, tmp_path: Path) -> None:
    experiment = registry.find(name)
    assert experiment.name == name
    kinds = [("", "lsrm-random"), ("one", lsrm_skew.RATIO), ("one", lsrm_sharing.RATIO), ("worst", "own stream")]
    rows = [FigureRow(x, series, a, x, x / 2, 2 * x) for x in (1.0, 2.0) for series, a in kinds]
    outcome = registry.Figure(name, 7, 3, tuple(rows))
    data, picture = outcome.write(tmp_path / "new", experiment.draw)
    assert picture.read_bytes().startswith(b"\x89PNG")
    content = json.loads(data.read_text())
    assert {key: content[key] for key in ("name", "seed", "runs")} == {"name": name, "seed": 7, "runs": 3}
    assert set(content["rows"][0]) == {"x", "series", "algorithm", "loss_mean", "loss_min", "loss_max"}


def test_an_unknown_experiment_and_no_runs_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="no such experiment"):
        registry.find("lsrm-magic")
    with pytest.raises(InvalidArgument, match="at least one run"):
        registry.perform(registry.find("lsrm-skew"), runs=0, seed=1, progress=silent)
