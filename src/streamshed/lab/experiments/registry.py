"""What experiments there are. A new one is a module with an `Experiment`, and a line here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from streamshed.errors import InvalidArgument

Progress = Callable[[int, int, str], None]
"""Told how much is done, out of how much, and what is being done."""

_WHERE = {
    "lsrm-tuple-utility": ("lsrm_by_rate", "TUPLE_UTILITY"),
    "lsrm-value-utility": ("lsrm_by_rate", "VALUE_UTILITY"),
    "lsrm-skew": ("lsrm_skew", "EXPERIMENT"),
    "lsrm-sharing": ("lsrm_sharing", "EXPERIMENT"),
    "road-map-distance": ("road_map_distance", "EXPERIMENT"),
    "promise": ("promise", "EXPERIMENT"),
    "las-throughput": ("las_throughput", "EXPERIMENT"),
    "las-threshold": ("las_threshold", "EXPERIMENT"),
    "las-wmax": ("las_wmax", "EXPERIMENT"),
    "las-distribution": ("las_distribution", "EXPERIMENT"),
    "las-precision": ("las_precision", "EXPERIMENT"),
    "las-timeline": ("las_timeline", "EXPERIMENT"),
    "sic-fairness": ("sic_fairness", "EXPERIMENT"),
    "sic-heterogeneous": ("sic_heterogeneous", "EXPERIMENT"),
    "sic-federated": ("sic_federated", "EXPERIMENT"),
    "sic-timeline": ("sic_timeline", "EXPERIMENT"),
    "sic-correlation": ("sic_correlation", "EXPERIMENT"),
    "las-spark-timeline": ("las_spark_timeline", "EXPERIMENT"),
    "las-spark-mentions": ("las_spark_mentions", "EXPERIMENT"),
}
"""Module and name of each, loaded when asked for."""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One point of a figure of losses, over all runs; other experiments have rows of their own.

    An algorithm named `a/b` stands for the loss of `a` over that of `b`, run by run.
    """

    x: float
    series: str
    algorithm: str
    loss_mean: float
    loss_min: float
    loss_max: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """A figure that can be made again."""

    name: str
    title: str
    figure: str
    """What it reproduces."""
    runs: int
    """How many seeds it takes unless told."""
    measure: Callable[[int, int, Progress], Sequence[Any]]
    """(runs, seed, progress) ─► rows, dataclasses that all have the same fields"""
    draw: Callable[[Sequence[Any], Path], None]
    """Make the picture from the rows alone."""


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    seed: int
    runs: int
    rows: tuple[Any, ...]

    def write(self, folder: Path, draw: Callable[[Sequence[Any], Path], None]) -> tuple[Path, Path]:
        """`NAME.json` and `NAME.png` in a folder, which is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        data, picture = folder / f"{self.name}.json", folder / f"{self.name}.png"
        content: Mapping[str, Any] = {
            "name": self.name,
            "seed": self.seed,
            "runs": self.runs,
            "rows": [asdict(row) for row in self.rows],
        }
        data.write_text(json.dumps(content, indent=1) + "\n")
        draw(self.rows, picture)
        return data, picture


def names() -> list[str]:
    return list(_WHERE)


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in _WHERE:
        raise InvalidArgument("no such experiment", got=name, hint="one of " + ", ".join(_WHERE))
    module, attribute = _WHERE[name]
    experiment: Experiment = getattr(import_module(f"streamshed.lab.experiments.{module}"), attribute)
    return experiment


def perform(experiment: Experiment, *, runs: int | None, seed: int, progress: Progress) -> Figure:
    """Run it; the same seed and number of runs give the same rows."""
    count = experiment.runs if runs is None else runs
    if count < 1:
        raise InvalidArgument("an experiment needs at least one run", got=count)
    return Figure(experiment.name, seed, count, tuple(experiment.measure(count, seed, progress)))


def spread(x: float, series: str, algorithm: str, losses: Sequence[float]) -> FigureRow:
    """A row from the losses of all runs.

    >>> spread(0.1, "", "random", [1.0, 2.0])
    FigureRow(x=0.1, series='', algorithm='random', loss_mean=1.5, loss_min=1.0, loss_max=2.0)
    """
    return FigureRow(x, series, algorithm, sum(losses) / len(losses), min(losses), max(losses))
