"""What the four LSRM experiments share: the rates, the runs, and how losses become rows.

LSRM = Tatbul et al., Load Shedding in a Data Stream Manager, VLDB 2003, sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamshed.lab.experiments.registry import FigureRow, Progress, spread
from streamshed.network.generate import NetworkShape, generate
from streamshed.network.graph import Network
from streamshed.policies.contract import NetworkPolicy
from streamshed.policies.registry import network_policy
from streamshed.policies.road_map.random import RandomRoadMap
from streamshed.sim.scenario import Scenario
from streamshed.sim.simulate import expected, simulate

EXCESS = (0.22, 0.5, 1.0, 1.5, 2.0, 2.5, 3.07)
"""Load above what the node may carry: the paper goes from +22 % to +307 %."""
ADMISSION = ("input-random", "input-cost-top", "input-uniform", "input-cost-uniform")
QOS_DRIVEN = ("lsrm-random", "lsrm-semantic")
NOTE = "5 queries, 34 filters, 13 unions, 18 inputs; mean of the runs, whiskers from least to most"
"""On the main network."""
SECONDS = 12.0
WARM_UP = 2.0
_SLOWEST_RATE = 0.1
_STEP = 0.005
"""Of the random road map: so fine that the steps do not show, also where there is a single source."""
_RANDOM_RUNS = 4
"""The paper's figures for Input-Random are averages of four runs."""


def mean_rate(excess: float) -> float:
    """The paper's x axis: rows per unit of time and input; 0.1, its slowest, is +22 %.

    >>> round(mean_rate(3.07), 3)
    0.334
    """
    return _SLOWEST_RATE * (1 + excess) / (1 + EXCESS[0])


def excess_of(rate: float) -> int:
    """The other way round, as a percentage.

    >>> excess_of(0.1)
    22
    """
    return round(100 * (rate / _SLOWEST_RATE * (1 + EXCESS[0]) - 1))


def rate_tick(rate: float) -> str:
    """A rate with the excess load that it means."""
    return f"{rate:.2f}\n+{excess_of(rate)} %"


@dataclass(frozen=True, slots=True)
class Losses:
    """Percent of utility lost, by algorithm."""

    tuples: Mapping[str, float]
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One place of a figure: where it stands, and the network that a seed gives there."""

    x: float
    series: str
    load: float
    network: Callable[[int], Network]


def generated(shape: NetworkShape) -> Callable[[int], Network]:
    """The network of that shape, for any seed."""
    return lambda seed: generate(shape, seed=seed)


def ratio_of(algorithms: Sequence[str]) -> str:
    """The name of the first one's loss over the second one's."""
    return "/".join(algorithms)


def measure(
    points: Sequence[LoadPoint],
    algorithms: Sequence[str],
    utility: Callable[[Losses], Mapping[str, float]],
    *,
    runs: int,
    seed: int,
    seconds: float,
    progress: Progress,
    ratio: bool = False,
) -> list[FigureRow]:
    """All points of a figure, each over `runs` seeds; with `ratio` also the first loss over the second."""
    rows: list[FigureRow] = []
    for number, point in enumerate(points):
        found: dict[str, list[float]] = {name: [] for name in algorithms}
        for run in range(runs):
            what = f"+{point.load:.0%} load{point.series and ', ' + point.series}, run {run + 1}"
            progress(number * runs + run, len(points) * runs, what)
            lost = utility(losses(point.network(seed + run), algorithms, seed + run, seconds))
            for name in algorithms:
                found[name].append(lost[name])
        rows += [spread(point.x, point.series, name, found[name]) for name in algorithms]
        if ratio:
            rows.append(spread(point.x, point.series, ratio_of(algorithms), ratios(*found.values())))
    progress(len(points) * runs, len(points) * runs, "done")
    return rows


def losses(network: Network, algorithms: Sequence[str], seed: int, seconds: float) -> Losses:
    """Simulate each algorithm on the same rows."""
    scenario = Scenario.of(network, seconds=seconds, seed=seed)
    reference = expected(scenario)
    tuples: dict[str, float] = {}
    values: dict[str, float] = {}
    for name in algorithms:
        tries = _RANDOM_RUNS if name == "input-random" else 1
        outcomes = [
            simulate(scenario, _policy(name, seed * _RANDOM_RUNS + i), reference=reference, warm_up=WARM_UP)
            for i in range(tries)
        ]
        tuples[name] = float(np.mean([outcome.tuple_loss for outcome in outcomes]))
        values[name] = float(np.mean([outcome.value_loss for outcome in outcomes]))
    return Losses(tuples, values)


def _policy(name: str, seed: int) -> NetworkPolicy:
    return RandomRoadMap(step=_STEP) if name == "lsrm-random" else network_policy(name, seed)


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Loss over loss, run by run; runs in which neither lost anything measurable say nothing."""
    found = [a / b for a, b in zip(above, below, strict=True) if b > 0]
    return found or [1.0]
