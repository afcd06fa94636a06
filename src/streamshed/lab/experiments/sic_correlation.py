"""What a SIC of 0.8 means: the error of averages, maxima, counts, top-k and joins, by the SIC of their results.

The same rows go through a node that can do all and through one that sheds fairly; the results are compared window
by window, and a window without a result is all wrong:

    average, max, count   |value − true value| / |true value|
    top-k, join           share of the true rows that are missing

What must come out: a count is off by 1 − SIC, a top-k and a join miss about 1 − SIC and more (a pair needs both of
its rows); an average and a maximum are off by far less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamshed.lab.experiments import chart
from streamshed.lab.experiments.registry import Experiment, Progress
from streamshed.lab.experiments.sic_queries import KINDS, mixed
from streamshed.sim.network.rows import Rows
from streamshed.sim.nodes.deployment import FederationSettings
from streamshed.sim.nodes.federation import Federation

OVERLOAD = (1.1, 1.25, 1.4, 1.6, 2.0, 2.5, 3.3, 5.0, 10.0)
QUERIES = 10
RATE = 100.0
SECONDS = 40.0
FROM, TO = 15.0, 35.0
"""Windows that end then are compared: both runs have settled, and have given their results."""
BIN = 0.1


@dataclass(frozen=True, slots=True)
class ErrorRow:
    x: float
    """Middle of a tenth of SIC."""
    algorithm: str
    """Kind of query."""
    sic_mean: float
    error_mean: float
    error_min: float
    """The tenth of the queries that are least off are below this."""
    error_max: float
    """The tenth that are most off are above this."""
    queries: int


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    overload: Sequence[float] = OVERLOAD,
    queries: int = QUERIES,
    seconds: float = SECONDS,
) -> list[ErrorRow]:
    points: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    total = len(overload) * runs
    for number, load in enumerate(overload):
        for run in range(runs):
            progress(number * runs + run, total, f"{load:g} times the load")
            for kind, sic, error in errors(load, queries, seed + 1000 * number + run, seconds):
                points[kind].append((sic, error))
    progress(total, total, "done")
    return [row for kind in KINDS for row in binned(kind, points[kind])]


def errors(load: float, queries: int, seed: int, seconds: float) -> list[tuple[str, float, float]]:
    """Kind, SIC and error of every query of one run."""
    asked = mixed(queries, ["node"], load, seed, exact=[RATE] * queries, costs=(1.0, 1.0))
    truth, shed = (
        Federation({"node": capacity}, asked, FederationSettings(seed=seed, results=True))
        for capacity in (1e9, 1.0)
    )
    truth.run(seconds)
    shed.run(seconds)
    moments = [moment.sic for moment in shed.history if FROM + 2 <= moment.at <= TO + 2]
    found = []
    for number, query in enumerate(asked):
        kind = KINDS[number % len(KINDS)]
        sic = float(np.mean([moment[query.name] for moment in moments]))
        found.append((kind, sic, error_of(kind, truth.results[query.name], shed.results[query.name])))
    return found


def error_of(kind: str, truth: Sequence[Rows], got: Sequence[Rows]) -> float:
    """How far results are from the true ones."""
    if kind in ("top-k", "join"):
        wanted, had = (_identities(results) for results in (truth, got))
        return 1.0 - len(wanted & had) / len(wanted) if wanted else 0.0
    true, found = (_values(results) for results in (truth, got))
    off = [abs(found[window] - value) / abs(value) if window in found else 1.0 for window, value in true.items()]
    return float(np.mean(off)) if off else 0.0


def _inside(rows: Rows) -> list[int]:
    return [int(i) for i in np.flatnonzero((rows.arrived >= FROM) & (rows.arrived <= TO))]


def _identities(results: Sequence[Rows]) -> set[tuple[float, ...]]:
    return {
        tuple(float(rows.columns[name][i]) for name in sorted(rows.columns))
        for rows in results
        for i in _inside(rows)
    }


def _values(results: Sequence[Rows]) -> dict[float, float]:
    return {
        float(rows.columns["window_start"][i]): float(rows.columns["x"][i])
        for rows in results
        for i in _inside(rows)
    }


def binned(kind: str, points: Sequence[tuple[float, float]]) -> list[ErrorRow]:
    """One row for each tenth of SIC that has queries in it."""
    tenths: dict[int, list[tuple[float, float]]] = {}
    for sic, error in points:
        tenths.setdefault(min(9, int(sic / BIN)), []).append((sic, error))
    rows = []
    for tenth, inside in sorted(tenths.items()):
        off = np.array([error for _, error in inside])
        rows.append(
            ErrorRow(
                round((tenth + 0.5) * BIN, 3),
                kind,
                float(np.mean([sic for sic, _ in inside])),
                float(off.mean()),
                float(min(off.mean(), np.percentile(off, 10))),
                float(max(off.mean(), np.percentile(off, 90))),
                len(inside),
            )
        )
    return rows


def draw(rows: Sequence[ErrorRow], path: Path) -> None:
    chart.curves(
        [
            chart.Panel(
                "error: mean, and from the 10th to the 90th percentile",
                "SIC of the results",
                [
                    chart.Curve(
                        kind,
                        [
                            (row.sic_mean, row.error_mean, row.error_min, row.error_max)
                            for row in rows
                            if row.algorithm == kind
                        ],
                    )
                    for kind in KINDS
                ],
                (0.0, 1.0),
                (),
                ((0.0, 1.0), (1.0, 0.0)),
            )
        ],
        path,
        title="What SIC says of a result's error",
        note="windows of 1 s with 100 rows of skewed values; grey: an error of 1 − SIC",
        columns=1,
    )


EXPERIMENT = Experiment(
    "sic-correlation", "SIC of results against their true error", "what 0.8 means", 10, measure, draw
)
