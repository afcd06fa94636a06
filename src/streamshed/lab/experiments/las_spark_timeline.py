"""LAS V-C, Figure 10 on Spark: seven phases, each with a sudden change of load, of keys or of costs.

Keys and costs are those of the paper (4,096 keys, Zipf-1.0, 64 costs from 0.1 to 6.4 ms), with real work. Scaled
is the target, 64 ms there and 2 s here (31 times; a micro-batch waits for its own start). The average is over the
last 4,000 rows, the width of the paper's points, so that a calm phase earns no credit for the next. A phase is
12 s here and 20,000 rows there. Loads are relative to the measured capacity of the plain job; plotted is queuing
latency, where the paper could measure completion only.

| phase | arrives, of capacity | change |
|---|---|---|
| A | 1 | |
| B | 2 (50 % under-provisioned) | |
| C | 1 | |
| D | 1 | the most frequent key changes places with one that costs most |
| E | 1/1.5 (50 % over-provisioned) | |
| F | 1 | every cost doubles |
| G | 1 | as A |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamshed.lab.experiments import las_spark
from streamshed.lab.experiments.las_spark import ALGORITHMS, LivePoint, Recording, TimeRow, steady
from streamshed.lab.experiments.registry import Experiment, Progress

KEYS, COSTS = 4096, 64
TARGET = "avg 2 seconds over 4000 rows"
WARM_UP = 15.0
PHASE = 12.0
LOADS = {"A": 1.0, "B": 2.0, "C": 1.0, "D": 1.0, "E": 1 / 1.5, "F": 1.0, "G": 1.0}
WIDTH = 2.0


def costs(seed: int) -> NDArray[np.float64]:
    """Cost of each key in ms: each of the 64 values goes to as many keys, at random."""
    values = np.linspace(0.1, 6.4, COSTS)
    ms: NDArray[np.float64] = np.random.default_rng(seed).permutation(np.repeat(values, KEYS // COSTS))
    return ms


def recording(able: float, seed: int, seconds: float = PHASE) -> Recording:
    """Warm-up at 0.6 of the capacity, and the seven phases."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, KEYS + 1)
    shares /= shares.sum()
    ms = costs(seed)
    dearest = int(np.flatnonzero(ms == ms.max())[-1])
    swapped = np.arange(KEYS)
    swapped[[0, dearest]] = dearest, 0
    stream: Recording | None = None
    for phase, load in {"": 0.6, **LOADS}.items():
        rate = load * able
        length = seconds if phase else WARM_UP
        keys = rng.choice(KEYS, int(rate * length) + 1, p=shares)
        if phase in ("D", "E", "F"):
            keys = swapped[keys]
        part = steady(rate, length, keys, ms[keys] * (2.0 if phase == "F" else 1.0))
        stream = part if stream is None else stream.then(part)
    assert stream is not None
    return stream


def phase_at(x: float, seconds: float = PHASE) -> str | None:
    number = int((x - WARM_UP) // seconds)
    return list(LOADS)[number] if x >= WARM_UP and number < len(LOADS) else None


def measure(
    runs: int,
    seed: int,
    progress: Progress,
    *,
    algorithms: Sequence[str] = ALGORITHMS,
    seconds: float = PHASE,
) -> list[TimeRow]:
    spark = las_spark.session("las-spark-timeline")
    busy = las_spark.calibrated(spark)
    found: dict[str, list[list[LivePoint]]] = {name: [] for name in algorithms}
    total = int(len(algorithms) * runs * (WARM_UP + len(LOADS) * seconds))
    done = 0.0
    for run in range(runs):
        shares = 1.0 / np.arange(1, KEYS + 1)
        ms = costs(seed + run)
        mean_ms = float(ms @ shares / shares.sum())
        calm = np.random.default_rng(seed).choice(KEYS, 16_000, p=shares / shares.sum())
        able = las_spark.capacity(spark, busy, steady(1000.0, 16.0, calm, ms[calm]))
        stream = recording(able, seed + run, seconds)
        for name in algorithms:

            def tell(second: float, before: float = done, what: str = f"{name}, run {run + 1}") -> None:
                progress(int(before + second), total, what)

            found[name].append(las_spark.play(spark, stream, busy, name, TARGET, mean_ms, tell))
            done += stream.seconds
    progress(total, total, "done")
    return [
        row
        for name in algorithms
        for row in las_spark.by_time(found[name], name, WIDTH, lambda x: phase_at(x, seconds))
    ]


def draw(rows: Sequence[TimeRow], path: Path) -> None:
    las_spark.draw(
        rows,
        path,
        title="Seven phases on Spark: queuing latency and share of rows dropped",
        note=f"target {TARGET}; real work of 0.1 to 6.4 ms a row on {las_spark.CORES} cores",
        target_ms=2000.0,
    )


EXPERIMENT = Experiment(
    "las-spark-timeline", "Seven phases of load, keys and costs, on Spark", "LAS Figure 10", 1, measure, draw
)
