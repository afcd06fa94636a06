"""`bench network`: five queries on one stream at two and four times what this machine can process.

Each policy gets the same rows at the same times (see `audience`). What an output got is told as a share of what
all of its rows would be worth in time; total utility is the mean over the outputs. `none` is the same network
with shedding off: what plain Spark does. What the boxes cost is calibrated first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import streamshed.lab.bench.play as playing
from streamshed.extras import need
from streamshed.lab.bench import audience
from streamshed.lab.bench.audience import Able, Played
from streamshed.lab.bench.feeder import Lines
from streamshed.lab.bench.play import Say
from streamshed.network import Builder, Network

POLICIES = ("none", "input-uniform", "lsrm-random", "lsrm-semantic")
FACTORS = (2.0, 4.0)
BOUND = 6.0
CALM = 10.0  # seconds with little to do at the start of each run: the controller learns what a batch costs
SETTLING = 10.0  # seconds of overload that do not count: the batch in which it begins cannot be shortened
COUNTED = 12.0
ROUNDS = 2
CALM_LOAD = 0.4
# For each query: least value it takes, length of its computation, cut between common and wanted values, worth of
# the common ones.
QUERIES = ((0, 1, 75, 0.05), (0, 3, 80, 0.9), (20, 2, 90, 0.1), (40, 2, 70, 0.4), (60, 1, 85, 0.02))
_BLOCK = b"streamshed" * 25
_DIGESTS = 400  # some 60 microseconds


def short(v: float) -> float:
    return _digested(v, _DIGESTS)


def middle(v: float) -> float:
    return _digested(v, 2 * _DIGESTS)


def long(v: float) -> float:
    return _digested(v, 3 * _DIGESTS)


def _digested(v: float, times: int) -> float:
    """Real work, 60 microseconds or a few times that: digests of a few hundred bytes."""
    for _ in range(times):
        hashlib.blake2b(_BLOCK)
    return 2.0 * v


_LENGTHS = {1: "short", 2: "middle", 3: "long"}


def network() -> Network:
    """Five queries behind one parse and one shared step, each with a Python function of its own.

    Of a random drop each output loses in proportion, which is its loss graph; of a drop by value, what its value
    graph says. Costs are guesses: `audience.calibrated` measures them.
    """
    builder = Builder("five").source(
        "rows", "id LONG, v DOUBLE, at TIMESTAMP", parse="json", arrived="at", values={"v": (0, 100)}
    )
    builder.map("shared", "rows", {"id": "id", "v": "v", "at": "at"}, cost=5e-7)
    for number, (least, length, cut, worth) in enumerate(QUERIES):
        builder.filter(f"f{number}", "shared", f"v >= {least}", cost=5e-8, selectivity=1 - least / 100)
        function = f"{__name__}:{_LENGTHS[length]}"
        builder.udf(f"m{number}", f"f{number}", function, ["v"], "score DOUBLE", cost=6e-5 * length)
        builder.output(
            f"q{number}",
            f"m{number}",
            loss=[(100, 1.0), (0, 0.0)],
            value=("v", [[least, cut, worth], [cut, 100, 1.0]]),
            latency=[(0, 1.0), (BOUND, 1.0), (2 * BOUND, 0.0)],
        )
    return builder.build()


def rows(count: int = 50_000, seed: int = 1) -> Lines:
    """Values spread evenly from 0 to 100."""
    values = np.random.default_rng(seed).uniform(0, 100, count)
    return Lines(json.dumps({"id": at, "v": round(float(v), 3)}) for at, v in enumerate(values))


def judge(played: Played, factor: float, able: Able, after: float, until: float) -> dict[str, Any]:
    """What a policy made of the arrivals in a span of time."""
    shares = played.utilities(able, after, until)
    counted = [b for b in played.run.batches if after <= b.started and b.committed <= until + 2 * BOUND]
    return {
        "factor": factor,
        "policy": played.policy,
        "utility": round(float(np.mean(list(shares.values()))), 4),
        "by_output": {name: round(share, 3) for name, share in shares.items()},
        "latency_median": round(played.latency(0.5, able, after, until), 2),
        "latency_p99": round(played.latency(0.99, able, after, until), 2),
        "latency_worst_from_the_start": round(played.latency(1.0, able, CALM, until), 2),
        "in_time": round(played.in_time(BOUND, able, after, until), 3),
        "batches": len(counted),
        "plans": len(played.plans),
        "shed": {name: rows.shed for name, rows in played.report.by_arc.items() if rows.shed},
    }


def summary(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each overload and policy, utility as the mean over the rounds and latency as the worst of them."""
    told = []
    for factor, policy in dict.fromkeys((one["factor"], one["policy"]) for one in found):
        mine = [one for one in found if (one["factor"], one["policy"]) == (factor, policy)]
        names = mine[0]["by_output"]
        told.append(
            {
                "factor": factor,
                "policy": policy,
                "utility": round(float(np.mean([one["utility"] for one in mine])), 4),
                "by_output": {n: round(float(np.mean([one["by_output"][n] for one in mine])), 3) for n in names},
                "latency_median": round(float(np.mean([one["latency_median"] for one in mine])), 2),
                "latency_p99": max(one["latency_p99"] for one in mine),
                "latency_worst_from_the_start": max(one["latency_worst_from_the_start"] for one in mine),
            }
        )
    return told


def run(say: Say, out: Path | None = None) -> dict[str, Any]:
    spark = audience.session("bench network")
    lines = rows()
    overloaded = CALM + SETTLING + COUNTED
    found: list[dict[str, Any]] = []
    runs: list[tuple[float, Played]] = []

    with playing.Workplace() as place:
        made = audience.calibrated(spark, place, network(), lines, say)

        def play(policy: str, factor: float) -> Played:
            def rate(second: float) -> float:
                return able.rate * (CALM_LOAD if second < CALM else factor)

            # The overload goes on until the last row that counts is worth nothing any more.
            seconds = overloaded + 2 * BOUND
            return audience.play(spark, place, made, policy, rate, seconds, lines=lines, latency=BOUND)

        able = audience.capacity(spark, place, made, lines, say, seconds=BOUND / 2)
        # The JVM compiles what drops as well, and each policy has plans of its own.
        for policy in POLICIES[1:]:
            say(f"warming up: {policy}")
            play(policy, FACTORS[0])
        able = audience.capacity(spark, place, made, lines, say, seconds=BOUND / 2)
        plays = [(factor, policy) for factor in FACTORS for policy in POLICIES]
        for turn in range(ROUNDS):
            # There and back: what grows with time falls on all alike.
            for factor, policy in plays if turn % 2 == 0 else reversed(plays):
                label = f"round {turn + 1} of {ROUNDS}, {factor:g}x, {policy}"
                say(label)
                played = play(policy, factor)
                judged = {"round": turn + 1} | judge(played, factor, able, CALM + SETTLING, overloaded)
                found.append(judged)
                if turn == 0:
                    runs.append((factor, played))
                say(f"{label}: utility {judged['utility']}, p99 {judged['latency_p99']} s")
    told = summary(found)
    result = {
        "bench": "network",
        "bound": BOUND,
        "capacity_rows_per_s": int(able.rate),
        "costs_us": {box.name: round(box.cost * 1e6, 2) for box in made.boxes},
        "parse_us": {one.name: round((one.parse or {}).get("cost", 0.0) * 1e6, 2) for one in made.sources},
        "summary": told,
        "rows": found,
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench-network.json").write_text(json.dumps(result, indent=1) + "\n")
        draw(runs, told, out / "bench-network.png")
    return result


_STYLES: Mapping[str, tuple[str, str, str]] = {
    "none": ("plain Spark", "#D55E00", "-"),
    "input-uniform": ("input-uniform", "#E69F00", "-"),
    "lsrm-random": ("lsrm-random", "#56B4E9", "-"),
    "lsrm-semantic": ("lsrm-semantic", "#00654a", "-"),
}


def draw(runs: list[tuple[float, Played]], found: list[dict[str, Any]], path: Path) -> None:
    """For each overload: latency over time by policy, in the first round; and utility by output, over all."""
    need("matplotlib", "lab")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(
        "Five queries on one stream: the same arrivals under four policies\n",
        x=0.01, ha="left", fontsize=13, fontweight="bold",
    )  # fmt: skip
    grid = figure.subplots(2, len(FACTORS), sharey="row")
    names = [output.name for output in runs[0][1].network.outputs]
    for column, factor in enumerate(FACTORS):
        above, below = grid[0][column], grid[1][column]
        above.set_title(f"{factor:g} times what fits", loc="left", fontsize=11)
        mine = [played for one, played in runs if one == factor]
        for number, played in enumerate(mine):
            label, colour, style = _STYLES[played.policy]
            audience.draw_latency(above, played, colour, label, style)
            judged = next(r for r in found if r["factor"] == factor and r["policy"] == played.policy)
            heights = [*judged["by_output"].values(), judged["utility"]]
            at = np.arange(len(heights)) + (number - (len(mine) - 1) / 2) * 0.2
            at[-1] += 0.3
            below.bar(at, heights, 0.185, color=colour)
        above.axvspan(CALM + SETTLING, CALM + SETTLING + COUNTED, color="#f3f3f3", zorder=0)
        above.axhline(BOUND, color="#333333", linewidth=1, linestyle="--")
        above.text(0.2, BOUND + 0.3, f"bound {BOUND:g} s", fontsize=9, color="#333333")
        above.set_xlabel("arrival (s); grey: what counts; dotted: not delivered, age at the end")
        below.set_xticks([*range(len(names)), len(names) + 0.3], [*names, "all"])
        below.set_ylim(0, 1.02)
        for axes in (above, below):
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
    grid[0][0].set_ylabel("end-to-end latency of a row (s)")
    grid[0][0].set_ylim(bottom=0)
    grid[1][0].set_ylabel("utility, of what all rows in time are worth")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=130, metadata={"Software": None})
