"""The demo: a burst at twice what this machine can process (or more), through a network of four outputs.

The same arrivals three times: plain Spark, drops at the input whoever wants the rows, and drops by what they are
worth to whom.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import streamshed.lab.bench.play as playing
from streamshed.extras import need
from streamshed.lab.bench import audience, shop
from streamshed.lab.bench.audience import Able, Look, Played

OVERLOAD = 2.0
CALM_LOAD = 0.4
SAMPLE = 100_000
"""Rows on which it is measured what each box costs."""
NAMES = {"none": "plain Spark", "input-uniform": "input-uniform", "lsrm-semantic": "lsrm-semantic"}
COLOURS = {"none": "#D55E00", "input-uniform": "#E69F00", "lsrm-semantic": "#00654a"}


@dataclass(frozen=True)
class Times:
    """How long the parts of the demo take, seconds."""

    calm: float = 7.0
    burst: float = 20.0
    after: float = 6.0
    settle: float = 2.0
    calibrate: float = 30.0

    @property
    def arrivals(self) -> float:
        return self.calm + self.burst + self.after

    @property
    def whole(self) -> float:
        return self.arrivals + self.settle


@dataclass(frozen=True)
class Shown:
    """All runs, on the same arrivals."""

    bound: float
    overload: float
    able: Able
    times: Times
    runs: dict[str, Played]

    def summary(self) -> list[dict[str, Any]]:
        return [self._row(policy, played) for policy, played in self.runs.items()]

    def _row(self, policy: str, played: Played) -> dict[str, Any]:
        by_output = played.utilities(self.able)
        return {
            "policy": policy,
            "p50_s": round(played.latency(0.5, self.able), 2),
            "p99_s": round(played.latency(0.99, self.able), 2),
            "rows_arrived": played.run.arrived,
            "rows_waiting": int(played.run.waiting_rows.sum()),
            "in_time_share": round(played.in_time(self.bound, self.able), 3),
            "delivered": {name: round(played.delivered(name, self.able), 3) for name in by_output},
            "utility": round(float(np.mean(list(by_output.values()))), 3),
            "utility_by_output": {name: round(share, 3) for name, share in by_output.items()},
        }


def run(
    console: Console, out: Path, bound: float = 6.0, times: Times | None = None, overload: float = OVERLOAD
) -> Shown:
    """Find out what fits and what each box costs; play the same arrivals under each policy, draw and tell.

    `overload`: times the capacity.
    """
    times = times or Times()
    network, lines = shop.network(bound), shop.events()
    with playing.Workplace() as place:
        with console.status("starting Spark") as status:
            spark = audience.session("streamshed demo")
            able = audience.capacity(
                spark,
                place,
                network,
                lines,
                lambda text: status.update(f"finding out what this machine can do · {text}"),
                seconds=bound / 2,
                first=20_000,
                most=times.calibrate,
            )
            network = audience.calibrated(
                spark,
                place,
                network,
                lines,
                lambda text: status.update(f"finding out what each step costs here · {text}"),
                sample=SAMPLE,
            )
        console.print(network_table(network.name, able))
        console.print(f"Now {overload:g} times that arrives, in a burst of {times.burst:.0f} s.")

        def rate(second: float) -> float:
            return able.rate * (overload if times.calm <= second < times.calm + times.burst else CALM_LOAD)

        board = _Board(bound, times.whole, able)
        runs: dict[str, Played] = {}
        with Live(board.render(), console=console, refresh_per_second=4, transient=False) as live:

            def watch(look: Look) -> None:
                board.see(look)
                live.update(board.render())

            for policy in NAMES:
                runs[policy] = audience.play(
                    spark,
                    place,
                    network,
                    policy,
                    rate,
                    times.arrivals,
                    lines=lines,
                    latency=bound,
                    settle=times.settle,
                    watch=watch,
                )
    outcome = Shown(bound, overload, able, times, runs)
    draw(outcome, out)
    told: dict[str, Any] = {"bound_s": bound, "overload": overload, "capacity_rows_per_s": int(able.rate)}
    told["rows"] = outcome.summary()
    out.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")
    return outcome


_WANTS = {
    "fraud": "large carts, in time",
    "offers": "carts in the middle, in time",
    "suggestions": "most rows, soon or not at all",
    "trends": "a sample, a minute later will do",
}


def network_table(name: str, able: Able) -> Table:
    table = Table(title=f"the network: {name}, {able.rate:,.0f} rows/s fit on this machine")
    for column in ("output", "wants"):
        table.add_column(column)
    table.add_column("of the rows", justify="right")
    for output, share in able.rows.items():
        table.add_row(output, _WANTS.get(output, ""), f"{share:.0%}")
    return table


class _Board:
    """The live table: one line every few seconds, all policies side by side."""

    def __init__(self, bound: float, seconds: float, able: Able) -> None:
        self._bound = bound
        self._seconds = seconds
        self._able = able
        self._seen: dict[str, dict[int, Look]] = {policy: {} for policy in NAMES}
        self._now: Look | None = None

    def see(self, look: Look) -> None:
        self._seen[look.policy][int(look.second // 4) * 4] = look
        self._now = look

    def render(self) -> Group:
        table = Table(title=f"the oldest row not yet delivered, in seconds (bound: {self._bound:g} s)")
        table.add_column("second", justify="right")
        table.add_column("arriving rows/s", justify="right")
        for name in NAMES.values():
            table.add_column(name, justify="right", min_width=13)
        for slot in sorted({slot for seen in self._seen.values() for slot in seen}):
            looks = [seen.get(slot) for seen in self._seen.values()]
            arriving = next(look.arriving for look in looks if look is not None)
            table.add_row(f"{slot}", f"{arriving:,.0f}", *(self._lag(look) for look in looks))
        parts: list[Any] = [table, self._got()]
        if self._now is not None:
            look = self._now
            line = f"{NAMES[look.policy]}: second {look.second:.0f} of {self._seconds:.0f}"
            line += f", batch {look.batch} took {look.took:.1f} s"
            if look.running.plan.drops:
                line += f" · {look.running.plan.reason}"
            parts.append(Text(line, style="dim"))
        return Group(*parts)

    def _lag(self, look: Look | None) -> Text:
        if look is None:
            return Text("")
        return Text(f"{look.behind:.1f}", style="red" if look.behind > self._bound else "green")

    def _got(self) -> Table:
        table = Table(title="delivered so far, of what had arrived for it")
        table.add_column("output", min_width=24)
        for name in NAMES.values():
            table.add_column(name, justify="right", min_width=13)
        last = [max(seen.values(), key=lambda look: look.second, default=None) for seen in self._seen.values()]
        for output, share in self._able.rows.items():
            cells = [
                "" if look is None else f"{min(1.0, look.delivered[output] / max(1.0, share * look.arrived)):.0%}"
                for look in last
            ]
            table.add_row(output, *cells)
        return table


def summary_table(outcome: Shown) -> Table:
    table = Table(title="the same arrivals under each policy")
    table.add_column("", no_wrap=True)
    rows = outcome.summary()
    for row in rows:
        table.add_column(NAMES[row["policy"]], justify="right", no_wrap=True)
    table.add_row("latency p50", *(f"{row['p50_s']:.1f} s" for row in rows))
    late = [
        Text(f"{row['p99_s']:.1f} s", style="red" if row["p99_s"] > outcome.bound else "green") for row in rows
    ]
    table.add_row("latency p99", *late)
    table.add_row(f"came within {outcome.bound:g} s", *(f"{row['in_time_share']:.0%}" for row in rows))
    for name in outcome.able.rows:
        table.add_row(f"utility of {name}", *(f"{row['utility_by_output'][name]:.2f}" for row in rows))
    table.add_row("utility, mean", *(Text(f"{row['utility']:.2f}", style="bold") for row in rows))
    return table


def draw(outcome: Shown, out: Path) -> None:
    """Latency over time for all runs, and utility by output."""
    need("matplotlib", "lab")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7.4), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=[1.35, 1])
    times = outcome.times
    for policy, played in outcome.runs.items():
        audience.draw_latency(above, played, COLOURS[policy], NAMES[policy])
    above.axvspan(times.calm, times.calm + times.burst, color="#f3e9d2", zorder=0, linewidth=0)
    above.axhline(outcome.bound, color="#333333", linewidth=1, linestyle="--")
    above.annotate(
        f"bound {outcome.bound:g} s",
        (0, outcome.bound),
        textcoords="offset points",
        xytext=(4, 4),
        color="#333333",
    )
    above.set_xlim(0, times.arrivals)
    above.set_ylim(bottom=0)
    above.text(
        times.calm + 0.3,
        above.get_ylim()[1] * 0.97,
        f"{outcome.overload:g}× capacity arrives",
        va="top",
        color="#8a7340",
    )
    above.set_ylabel("end-to-end latency of a row (s)")
    above.set_xlabel("arrival time (s)      dotted: never delivered, age at the end", fontsize=9)
    above.set_title("A burst through one network of four outputs, three times", loc="left", fontweight="bold")
    above.legend(frameon=False, loc="upper right")
    names = [*outcome.able.rows, "all four"]
    places = np.arange(len(names), dtype=float)
    places[-1] += 0.35
    for number, row in enumerate(outcome.summary()):
        heights = [*row["utility_by_output"].values(), row["utility"]]
        at = places + (number - 1) * 0.26
        below.bar(at, heights, 0.24, color=COLOURS[row["policy"]])
        for place, height in zip(at, heights, strict=True):
            below.text(place, height + 0.015, f"{height:.2f}", ha="center", fontsize=8, color="#444444")
    wanted = [name + "\n" + _WANTS.get(name, "").replace(", ", ",\n") for name in outcome.able.rows]
    below.set_xticks(places, [*wanted, "all four\nmean"], fontsize=9)
    below.set_ylim(0, 1.1)
    below.set_ylabel("utility")
    below.set_title(
        "What the outputs got, of what all rows in time are worth to them", loc="left", fontweight="bold"
    )
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(True)
    figure.savefig(out, dpi=130, metadata={"Software": None})
