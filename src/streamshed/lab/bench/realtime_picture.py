"""A picture of micro-batches and real-time mode under the same burst, plain and with shedding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.extras import need
from streamshed.lab.bench.kafka import Kafka
from streamshed.lab.bench.kafka_play import Play, play
from streamshed.lab.bench.play import Say

BEGINS, ENDS, LASTS = 15.0, 25.0, 45.0  # seconds: the burst, and all of it
FACTOR = 4.0
SLOW_BOUND = 4.0  # seconds: what micro-batches can promise
_STEP = 0.5  # seconds that one point stands for
_COLOURS = {"micro-batches": "#E69F00", "real-time mode": "#0072B2"}


def draw_burst(spark: SparkSession, broker: Kafka, able: float, bound: float, out: Path, say: Say) -> None:
    """Play a burst of four times the capacity to four jobs, and draw the age at which rows came out."""
    runs: dict[tuple[str, bool], Play] = {}
    for mode in _COLOURS:
        for shedding in (False, True):
            say(f"the picture: {mode}, {'with shedding' if shedding else 'plain'}")
            runs[mode, shedding] = play(
                spark,
                broker,
                lambda second: (FACTOR if BEGINS <= second < ENDS else 0.4) * able,
                LASTS,
                _shed(mode, bound) if shedding else None,
                micro_batches=mode == "micro-batches",
            )
    out.mkdir(parents=True, exist_ok=True)
    lines = {
        f"{mode}{' shed' if shedding else ''}": p99_over_time(played) for (mode, shedding), played in runs.items()
    }
    (out / "realtime-burst.json").write_text(json.dumps(lines))
    _draw(lines, bound, out / "realtime-burst.png")


def _shed(mode: str, bound: float) -> Callable[[DataFrame], DataFrame]:
    if mode == "micro-batches":
        return lambda events: ss.shed(events, SLOW_BOUND)
    return lambda events: ss.shed(events, bound, trigger="real-time")


def p99_over_time(played: Play) -> list[tuple[float, float]]:
    """For each half second, the age in milliseconds that 99 of 100 rows did not exceed which came out in it."""
    ends = played.sent[played.came] + played.latencies / 1000.0
    points = []
    for begin in np.arange(0.0, LASTS, _STEP):
        chosen = played.latencies[(ends >= begin) & (ends < begin + _STEP)]
        if len(chosen):
            points.append((float(begin), float(np.percentile(chosen, 99))))
    return points


def _draw(lines: dict[str, list[tuple[float, float]]], bound: float, path: Path) -> None:
    need("matplotlib", "lab")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(BEGINS, ENDS, color="#EEEEEE")
    axes.text((BEGINS + ENDS) / 2, 2.4, f"{FACTOR:g} times the capacity", ha="center", color="#666666")
    for name, points in lines.items():
        mode = name.removesuffix(" shed")
        shed = name != mode
        axes.plot(
            [second for second, _ in points],
            [max(1.0, age) for _, age in points],
            color=_COLOURS[mode],
            linestyle="-" if shed else ":",
            linewidth=2.2 if shed else 1.6,
            label=f"{mode}, {'shed' if shed else 'plain'}",
        )
    for height, text in ((bound * 1000, "bound in real-time mode"), (SLOW_BOUND * 1000, "bound in micro-batches")):
        axes.axhline(height, color="#999999", linewidth=0.8)
        axes.text(LASTS, height * 1.06, text, ha="right", va="bottom", color="#666666", fontsize=8)
    axes.set(
        yscale="log", ylim=(2, 60_000), xlim=(0, LASTS), xlabel="seconds", ylabel="age of rows that come out, p99"
    )
    axes.set_yticks([10, 100, 1000, 10_000], ["10 ms", "100 ms", "1 s", "10 s"])
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Both modes under the same burst, Kafka to Kafka", loc="left")
    figure.savefig(path, dpi=120)
