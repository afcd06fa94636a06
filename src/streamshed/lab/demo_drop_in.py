"""The drop-in's demo: a burst at three times what one job can process, with and without one line of shedding."""

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
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.jobs import Run, heavy
from streamshed.lab.bench.play import Glance

OVERLOAD = 3.0
CALM, BURST, AFTER = 8.0, 20.0, 12.0
CALM_LOAD = 0.4


@dataclass(frozen=True)
class DropInShown:
    """Both runs, on the same arrivals."""

    bound: float
    able: float
    plain: Run
    shed: Run

    def summary(self) -> list[dict[str, Any]]:
        return [self._row("plain Spark", self.plain), self._row("Streamshed", self.shed)]

    def _row(self, name: str, run: Run) -> dict[str, Any]:
        delivered = sum(b.arrived for b in run.batches)
        inside = sum(_kept_inside(b, self.bound) for b in run.batches)
        return {
            "job": name,
            "p50_s": round(run.latency(0.5, with_waiting=True), 2),
            "p99_s": round(run.latency(0.99, with_waiting=True), 2),
            "rows_arrived": run.arrived,
            "rows_kept": run.kept,
            "rows_waiting": int(run.waiting_rows.sum()),
            "rows_shed": delivered - run.kept,
            # What a consumer with this bound gets: the share of all rows that came in time.
            "in_time_share": round(inside / max(1, run.arrived), 3),
        }


def _kept_inside(batch: Any, bound: float) -> float:
    in_time = batch.committed - batch.arrivals <= bound
    return float((batch.rows * in_time).sum() * batch.kept / max(1, batch.arrived))


def run(console: Console, out: Path, bound: float = 4.0) -> DropInShown:
    """Calibrate, play the same arrivals to both jobs, draw and tell."""
    seconds = CALM + BURST + AFTER
    rows = JsonRows()
    with playing.Workplace() as place:
        with console.status("starting Spark") as status:
            spark = playing.session("streamshed demo")
            able = playing.capacity(
                spark,
                place,
                heavy,
                rows,
                lambda text: status.update(f"finding out what this machine can do · {text}"),
                most=35.0,
            )
        console.print(
            f"This job can process [bold]{able:,.0f} rows/s[/] here. Now {OVERLOAD:.0f} times that arrives."
        )

        def rate(second: float) -> float:
            return able * (OVERLOAD if CALM <= second < CALM + BURST else CALM_LOAD)

        board = _Board(bound, seconds)
        runs: dict[str, Run] = {}
        with Live(board.render(), console=console, refresh_per_second=4, transient=False) as live:

            def watch(name: str, glance: Glance) -> None:
                board.see(name, glance)
                live.update(board.render())

            for name, latency in (("plain", None), ("shed", bound)):
                runs[name] = playing.play(
                    spark,
                    place,
                    heavy,
                    rate,
                    seconds,
                    rows=rows,
                    latency=latency,
                    settle=4.0,
                    name=name,
                    watch=lambda glance, name=name: watch(name, glance),  # type: ignore[misc]
                )
    outcome = DropInShown(bound, able, runs["plain"], runs["shed"])
    draw(outcome, out)
    out.with_suffix(".json").write_text(json.dumps({"bound_s": bound, "rows": outcome.summary()}, indent=1) + "\n")
    return outcome


class _Board:
    """The live table: one line every few seconds, both jobs side by side."""

    def __init__(self, bound: float, seconds: float) -> None:
        self._bound = bound
        self._seconds = seconds
        self._seen: dict[str, dict[int, Glance]] = {"plain": {}, "shed": {}}
        self._keep: dict[int, float] = {}
        self._now: tuple[str, Glance] | None = None

    def see(self, name: str, glance: Glance) -> None:
        slot = int(glance.second // 4) * 4
        self._seen[name][slot] = glance
        if glance.shedder is not None:
            self._keep[slot] = glance.shedder.keep
        self._now = (name, glance)

    def render(self) -> Group:
        table = Table(title=f"the oldest row not yet delivered, in seconds (bound: {self._bound:g} s)")
        for column in ("second", "arriving rows/s", "plain Spark", "Streamshed", "keep"):
            table.add_column(column, justify="right")
        for slot in sorted(self._seen["plain"].keys() | self._seen["shed"].keys()):
            plain, shed = self._seen["plain"].get(slot), self._seen["shed"].get(slot)
            arriving = (plain or shed).arriving  # type: ignore[union-attr]
            keep = f"{self._keep[slot]:.0%}" if slot in self._keep else ""
            table.add_row(f"{slot}", f"{arriving:,.0f}", self._lag(plain), self._lag(shed), keep)
        if self._now is None:
            return Group(table)
        name, glance = self._now
        job = "plain Spark" if name == "plain" else "Streamshed"
        line = f"{job}: second {glance.second:.0f} of {self._seconds + 4:.0f}"
        line += f", batch {glance.batch} took {glance.took:.1f} s"
        if glance.shedder is not None and glance.shedder.plan.drops:
            line += f" · {glance.shedder.reason}"
        return Group(table, Text(line, style="dim"))

    def _lag(self, glance: Glance | None) -> Text:
        if glance is None:
            return Text("")
        return Text(f"{glance.behind:.1f}", style="red" if glance.behind > self._bound else "green")


def summary_table(outcome: DropInShown) -> Table:
    table = Table(title="the same arrivals, twice: latency, rows, and the share that came in time")
    headings = {
        "job": "job",
        "p50_s": "p50",
        "p99_s": "p99",
        "rows_kept": "delivered",
        "rows_shed": "shed",
        "rows_waiting": "waiting",
        "in_time_share": f"within {outcome.bound:g} s",
    }
    for name, heading in headings.items():
        table.add_column(heading, justify="left" if name == "job" else "right", no_wrap=True)
    for row in outcome.summary():
        table.add_row(
            row["job"],
            f"{row['p50_s']:.1f} s",
            f"{row['p99_s']:.1f} s",
            *(f"{row[name]:,}" for name in ("rows_kept", "rows_shed", "rows_waiting")),
            f"{row['in_time_share']:.0%}",
        )
    return table


def draw(outcome: DropInShown, out: Path) -> None:
    """Latency over time for both jobs, and what was kept."""
    need("matplotlib", "lab")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(9, 6), sharex=True, height_ratios=[3, 1.2], layout="constrained"
    )
    for run, label, colour in (
        (outcome.plain, "plain Spark", "#b5432a"),
        (outcome.shed, "Streamshed", "#1f6f8b"),
    ):
        times, latencies = _by_arrival(run)
        above.plot(times, latencies, label=label, color=colour, linewidth=2)
        if len(run.waiting):
            ages = np.sort(run.waiting)[::-1]
            above.plot(run.ended - ages, ages, color=colour, linestyle=":", linewidth=2)
    above.axhline(outcome.bound, color="#444444", linewidth=1, linestyle="--")
    above.annotate(
        f"bound {outcome.bound:g} s",
        (0.0, outcome.bound),
        textcoords="offset points",
        xytext=(4, 4),
        color="#444444",
    )
    for axes in (above, below):
        axes.axvspan(CALM, CALM + BURST, color="#f3e9d2", zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    above.text(
        CALM + 0.3, above.get_ylim()[1] * 0.97, f"{OVERLOAD:.0f}× capacity arrives", va="top", color="#8a7340"
    )
    above.set_ylabel("end-to-end latency of a row (s)")
    above.set_title("A burst, with and without load shedding", loc="left")
    above.legend(frameon=False, loc="upper right")
    starts = [b.arrivals.min() for b in outcome.shed.batches] + [outcome.shed.batches[-1].arrivals.max()]
    keeps = [100.0 * b.kept / b.arrived for b in outcome.shed.batches]
    below.stairs(keeps, starts, color="#1f6f8b", fill=True, alpha=0.35)
    below.stairs(keeps, starts, color="#1f6f8b", linewidth=1.5)
    below.set_ylim(0, 105)
    below.set_ylabel("rows kept (%)")
    below.set_xlabel("arrival time (s)      dotted: never delivered, age at the end")
    figure.savefig(out, dpi=130)
    pyplot.close(figure)


def _by_arrival(run: Run) -> tuple[np.ndarray, np.ndarray]:
    arrivals = np.concatenate([b.arrivals for b in run.batches])
    latencies = np.concatenate([b.committed - b.arrivals for b in run.batches])
    order = np.argsort(arrivals)
    return arrivals[order], latencies[order]
