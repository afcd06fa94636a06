"""LAS V-B, Figure 9: queuing latency and dropped ratio while the stream changes: 140,000 rows in seven phases.

    A  arrivals as fast as the operator on average: gaps of W̄
    B  50 % under-provisioned: gaps of W̄/2
    C  as A
    D  the most frequent key changes places with a rare one of the highest cost
    E  50 % over-provisioned: gaps of 1.5 W̄
    F  gaps of W̄ again, and every row takes twice as long
    G  as A

Each phase changes what it says and leaves the rest: the keys stay swapped until G. W̄ is always that of phase A,
which is also what Straw-Man believes throughout. Points are means over the last 4,000 rows; the check is the
paper's, AVG over the whole stream. `las` asks with every 16th row let in; `las-letter` only after new matrices, as
the paper's listing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamshed.lab.experiments import chart, las
from streamshed.lab.experiments.las import QueueRow
from streamshed.lab.experiments.registry import Experiment, Progress
from streamshed.las.check import average
from streamshed.sim.operator.kernel import run_known
from streamshed.sim.operator.streams import MILLISECOND, Association, Floats, StreamShape, TimedRows, draw_keys

THRESHOLD_MS = 64.0
PHASE_ROWS = 20_000
POINT_ROWS = 4_000


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    under_provisioning: float = 0.0
    swapped: bool = False
    slowdown: int = 1


PHASES = (
    Phase("A"),
    Phase("B", under_provisioning=0.5),
    Phase("C"),
    Phase("D", swapped=True),
    Phase("E", under_provisioning=-0.5, swapped=True),
    Phase("F", swapped=True, slowdown=2),
    Phase("G"),
)


def stream(
    shape: StreamShape, association: Association, rng: np.random.Generator, phase_rows: int
) -> tuple[TimedRows, float]:
    """All phases in one stream; and W̄ of phase A."""
    keys = draw_keys(shape, rng, phase_rows * len(PHASES))
    mean = float(association.costs[keys[:phase_rows]].mean())
    costs, gaps = [], []
    for number, phase in enumerate(PHASES):
        table = association.swapped() if phase.swapped else association
        costs.append(table.costs[keys[number * phase_rows : (number + 1) * phase_rows]] * phase.slowdown)
        gaps.append(np.full(phase_rows, mean * (1 - phase.under_provisioning)))
    arrivals = np.concatenate(([0.0], np.cumsum(np.concatenate(gaps))[:-1]))
    return TimedRows(keys, np.concatenate(costs), arrivals), mean


def one_run(seed: int, run: int, phase_rows: int = PHASE_ROWS) -> tuple[TimedRows, Mapping[las.Key, Floats]]:
    """The rows, and their waits; Base Line is left out, as in the paper."""
    shape = StreamShape()
    association = Association.draw(shape, las.seeded(seed, 0, run % las.ASSOCIATIONS))
    rows, mean = stream(shape, association, np.random.default_rng(las.seeded(seed, 1, run)), phase_rows)
    threshold = THRESHOLD_MS * MILLISECOND
    found: dict[las.Key, Floats] = {}
    for name, settings in las.variants().items():
        both = las.las_both(rows, threshold, settings, shape, association, las.seeded(seed, 2, run))
        found |= {(name, start): waits for start, waits in zip(las.STARTS, both, strict=True)}
    straw_man = run_known(rows, average(threshold), np.full(len(rows), mean))
    truth = run_known(rows, average(threshold), rows.costs.astype(np.float64))
    for start in las.STARTS:
        found |= {("straw-man", start): straw_man, ("full-knowledge", start): truth}
    return rows, found


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    phase_rows: int = PHASE_ROWS,
    point_rows: int = POINT_ROWS,
) -> list[QueueRow]:
    waits: dict[las.Key, list[Floats]] = {}
    dropped: dict[las.Key, list[Floats]] = {}
    completions: dict[las.Key, list[Floats]] = {}
    for run in range(runs):
        progress(run, runs, f"run {run + 1}")
        arriving, found_by = one_run(seed, run, phase_rows)
        for key, found in found_by.items():
            kept = found.reshape(-1, point_rows) >= 0
            waits.setdefault(key, []).append(_means(found, kept))
            completions.setdefault(key, []).append(_means(arriving.completions(found), kept))
            dropped.setdefault(key, []).append(1 - kept.sum(axis=1) / point_rows)
    progress(runs, runs, "done")
    rows = []
    for key in waits:
        all_waits, all_completions, all_dropped = (np.array(each[key]) for each in (waits, completions, dropped))
        for number in range(all_waits.shape[1]):
            end = (number + 1) * point_rows
            share = PHASES[(end - 1) // phase_rows].under_provisioning
            some = ~np.isnan(all_waits[:, number])
            seen, done = all_waits[:, number][some], all_completions[:, number][some]
            lost = float(all_dropped[:, number].mean())
            ratio = (lost - share) / share if share > 0 else None
            mean, least, most = (float(f(seen)) for f in (np.mean, np.min, np.max)) if len(seen) else (None,) * 3
            completed = float(np.mean(done)) if len(done) else None
            rows.append(QueueRow(float(end), *key, mean, least, most, lost, ratio, completed))
    return rows


def _means(latencies: Floats, kept: NDArray[np.bool_]) -> Floats:
    """Of each window, in milliseconds; NaN where nothing was kept, which is left out of the mean over the runs."""
    count = kept.sum(axis=1)
    total = np.where(kept, latencies.reshape(kept.shape), 0.0).sum(axis=1)
    means: Floats = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return means / MILLISECOND


def draw(rows: Sequence[QueueRow], path: Path) -> None:
    chart.panels(
        las.named(rows),
        path,
        title="Load-aware shedding while the stream changes",
        note="means over 4,000 rows and all runs; whiskers from the least run to the most",
        x="rows",
        columns=las.COLUMNS[:2],
        reference=lambda x: THRESHOLD_MS,
        marks=[(float(number * PHASE_ROWS), phase.name) for number, phase in enumerate(PHASES)],
    )


EXPERIMENT = Experiment(
    "las-timeline", "Queuing latency while the stream changes", "LAS Figure 9", las.RUNS, measure, draw
)
