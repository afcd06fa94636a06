"""Pictures of experiments: lines with their spread, and grouped bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamshed.extras import need
from streamshed.lab.experiments.registry import FigureRow

# Okabe and Ito's colours, told apart by every kind of eyesight; the darkest go to the QoS-driven policies.
_STYLES: Mapping[str, tuple[str, str, str]] = {
    "input-random": ("#999999", "o", ":"),
    "input-cost-top": ("#CC79A7", "v", ":"),
    "input-uniform": ("#E69F00", "s", "--"),
    "input-cost-uniform": ("#56B4E9", "D", "--"),
    "lsrm-random": ("#0072B2", "^", "-"),
    "lsrm-semantic": ("#009E73", "P", "-"),
    "optimal": ("#000000", "x", "-."),
    "base-line": ("#999999", "o", ":"),
    "straw-man": ("#E69F00", "s", "--"),
    "las-letter": ("#0072B2", "^", "-"),
    "las (cold)": ("#56B4E9", "v", ":"),
    "las": ("#009E73", "D", "-"),
    "full-knowledge": ("#000000", "x", "-."),
    "fair": ("#009E73", "D", "-"),
    "fair, as told": ("#D55E00", "v", "-"),
    "fair, no feedback": ("#56B4E9", "^", "--"),
    "all-knowing": ("#000000", "x", "-."),
    "random": ("#999999", "o", ":"),
}
_SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_MARKERS = "o^sDvPX"


@dataclass(frozen=True, slots=True)
class Labels:
    """What is written on a picture."""

    title: str
    x: str
    y: str
    note: str = ""
    """Below the title: what was measured."""


def lines(
    rows: Sequence[FigureRow],
    path: Path,
    labels: Labels,
    *,
    by: Callable[[FigureRow], str],
    log: bool = False,
    ticks: Callable[[float], str] | None = None,
    reference: float | None = None,
) -> None:
    """One line for each `by(row)`, the mean, with whiskers from the smallest to the largest run."""
    figure, axes = _canvas(labels)
    groups = _groups(rows, by)
    width = max(row.x for row in rows) - min(row.x for row in rows)
    for number, (name, group) in enumerate(groups.items()):
        group = sorted(group, key=lambda row: row.x)
        fallback = (_SERIES[number % len(_SERIES)], _MARKERS[number % len(_MARKERS)], "-")
        colour, marker, style = _STYLES.get(name, fallback)
        # Beside each other, so that the whiskers can be told apart.
        aside = (number - (len(groups) - 1) / 2) * width * 0.006
        axes.errorbar(
            [row.x + aside for row in group],
            [row.loss_mean for row in group],
            yerr=_whiskers(group),
            color=colour,
            marker=marker,
            linestyle=style,
            markersize=5,
            elinewidth=0.8,
            capsize=2,
            label=name,
        )
    if reference is not None:
        axes.axhline(reference, color="#666666", linewidth=0.8)
    if ticks is not None:
        places = sorted({row.x for row in rows})
        axes.set_xticks(places, [ticks(place) for place in places])
    if log:
        _log_axis(axes)
    else:
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    _save(figure, path)


def bars(
    rows: Sequence[FigureRow],
    path: Path,
    labels: Labels,
    *,
    by: Callable[[FigureRow], str],
    ticks: Callable[[float], str] = str,
    reference: float | None = None,
) -> None:
    """At each x one bar for each `by(row)`, with whiskers from the smallest to the largest run."""
    figure, axes = _canvas(labels)
    groups = _groups(rows, by)
    places = sorted({row.x for row in rows})
    width = 0.8 / len(groups)
    for number, (name, group) in enumerate(groups.items()):
        at = [places.index(row.x) + (number - (len(groups) - 1) / 2) * width for row in group]
        axes.bar(
            at,
            [row.loss_mean for row in group],
            width * 0.92,
            yerr=_whiskers(group),
            color=_SERIES[number % len(_SERIES)],
            label=name,
            error_kw={"linewidth": 0.9, "capsize": 2.5, "ecolor": "#444444"},
        )
    axes.set_xticks(range(len(places)), [ticks(place) for place in places])
    if reference is not None:
        axes.axhline(reference, color="#666666", linewidth=0.8)
    axes.legend(frameon=False, fontsize=9)
    _save(figure, path)


def stacks(
    rows: Sequence[FigureRow],
    path: Path,
    labels: Labels,
    *,
    by: Callable[[FigureRow], str],
    order: Sequence[str],
) -> None:
    """At each x one bar, made up of what each `by(row)` adds, in that order."""
    figure, axes = _canvas(labels)
    groups = _groups(rows, by)
    heights = dict.fromkeys(sorted({row.x for row in rows}), 0.0)
    for name in (each for each in order if each in groups):
        group = groups[name]
        axes.bar(
            [row.x for row in group],
            [row.loss_mean for row in group],
            0.75,
            bottom=[heights[row.x] for row in group],
            color=_SERIES[order.index(name) % len(_SERIES)],
            label=name,
        )
        for row in group:
            heights[row.x] += row.loss_mean
    axes.set_xticks(list(heights), [f"{place:g}" for place in heights])
    axes.legend(frameon=False, fontsize=9)
    _save(figure, path)


def _whiskers(rows: Sequence[FigureRow]) -> list[list[float]]:
    """From the mean down to the least and up to the most."""
    return [[row.loss_mean - row.loss_min for row in rows], [row.loss_max - row.loss_mean for row in rows]]


def _groups(rows: Sequence[FigureRow], by: Callable[[FigureRow], str]) -> dict[str, list[FigureRow]]:
    groups: dict[str, list[FigureRow]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return groups


def _canvas(labels: Labels) -> tuple[Any, Any]:
    # Not through pyplot: no global state, no display.
    need("matplotlib", "lab")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(labels.title, loc="left", fontsize=12, fontweight="bold", pad=22 if labels.note else 10)
    axes.text(0, 1.02, labels.note, transform=axes.transAxes, fontsize=9, color="#555555")
    axes.set_xlabel(labels.x)
    axes.set_ylabel(labels.y)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _log_axis(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _save(figure: Any, path: Path) -> None:
    # No date and no version in the file: the same rows give the same bytes.
    figure.savefig(path, dpi=130, metadata={"Software": None})


Spread = tuple[float, float, float]
"""A mean, the least and the most."""


def panels(
    groups: Sequence[tuple[str, Sequence[Any]]],
    path: Path,
    *,
    title: str,
    note: str,
    x: str,
    columns: Sequence[tuple[str, Callable[[Any], Spread | None]]],
    reference: Callable[[float], float] | None = None,
    log_x: bool = False,
    ticks: Callable[[float], str] | None = None,
    marks: Sequence[tuple[float, str]] = (),
) -> None:
    """Several quantities of the same rows beside each other, the first on a logarithmic axis.

    `reference` gives the target of the first quantity at an x; `marks` are names for stretches that begin there.
    """
    need("matplotlib", "lab")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(columns), 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.text(0.011, 0.925, note, fontsize=9, color="#555555")
    places = sorted({row.x for _, group in groups for row in group})
    for number, (label, pick) in enumerate(columns):
        axes = figure.add_subplot(1, len(columns), number + 1)
        for name, group in groups:
            found = [(row.x, pick(row)) for row in sorted(group, key=lambda row: row.x)]
            points = [(place, spread) for place, spread in found if spread is not None]
            if not points:
                continue
            colour, marker, style = _STYLES[name]
            mean = [spread[0] for _, spread in points]
            # A mean of equal numbers may be off them by its last bit.
            below = [max(0.0, spread[0] - spread[1]) for _, spread in points]
            above = [max(0.0, spread[2] - spread[0]) for _, spread in points]
            axes.errorbar(
                [place for place, _ in points],
                mean,
                yerr=[below, above] if number == 0 else None,
                color=colour,
                marker=marker,
                linestyle=style,
                markersize=4,
                elinewidth=0.7,
                capsize=2,
                label=name,
            )
        if number == 0:
            _log_axis(axes)
            if reference is not None:
                targets = [reference(place) for place in places]
                axes.plot(places, targets, color="#D55E00", linewidth=1.0, label="target τ", zorder=1)
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9
            )
        if log_x:
            axes.set_xscale("log")
            axes.minorticks_off()
        if ticks is not None:
            axes.set_xticks(places, [ticks(place) for place in places], fontsize=8)
        if marks:
            axes.set_xticks([place for place, _ in marks], [f"{place:,.0f}" for place, _ in marks], fontsize=8)
        for place, text in marks:
            axes.axvline(place, color="#bbbbbb", linewidth=0.7, zorder=0)
            axes.text(place, 1.0, f" {text}", transform=axes.get_xaxis_transform(), va="bottom", fontsize=8)
        axes.set_xlabel(x)
        axes.set_ylabel(label)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    _save(figure, path)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a panel: points (x, y), or (x, mean, least, most), which also have a band."""

    name: str
    points: Sequence[tuple[float, ...]]
    markers: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    """One of several pictures beside each other."""

    title: str
    x: str
    curves: Sequence[Curve]
    limits: tuple[float, float]
    """Of the y axis."""
    marks: Sequence[tuple[float, str]] = ()
    """Names of moments, and where they are."""
    reference: Sequence[tuple[float, float]] = ()
    """A thin line to compare with."""


def curves(pictures: Sequence[Panel], path: Path, *, title: str, note: str, columns: int) -> None:
    """Panels in rows of so many, with one legend for all."""
    need("matplotlib", "lab")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines_of = -(-len(pictures) // columns)
    wide = 9.0 if columns == 1 else 4.3 * columns
    figure = Figure(figsize=(wide, 3.6 * lines_of + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{title}\n{note}", x=0.01, ha="left", fontsize=11)
    shown: dict[str, Any] = {}
    for number, panel in enumerate(pictures):
        axes = figure.add_subplot(lines_of, columns, number + 1)
        for index, curve in enumerate(panel.curves):
            fallback = (_SERIES[index % len(_SERIES)], _MARKERS[index % len(_MARKERS)], "-")
            colour, marker, style = _STYLES.get(curve.name, fallback)
            points = sorted(curve.points)
            x, y = [point[0] for point in points], [point[1] for point in points]
            (shown[curve.name],) = axes.plot(
                x, y, color=colour, marker=marker if curve.markers else "", linestyle=style, markersize=4
            )
            if points and len(points[0]) == 4:
                low, high = [point[2] for point in points], [point[3] for point in points]
                axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        if panel.reference:
            axes.plot(*zip(*panel.reference, strict=True), color="#999999", linewidth=0.8, zorder=0)
        for level, (place, text) in enumerate(panel.marks):
            axes.axvline(place, color="#bbbbbb", linewidth=0.7, zorder=0)
            axes.text(
                place, 0.02 + 0.06 * (level % 2), f" {text}", transform=axes.get_xaxis_transform(), fontsize=8
            )
        axes.set_title(panel.title, loc="left", fontsize=10)
        axes.set_xlabel(panel.x)
        axes.set_ylim(*panel.limits)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.legend(
        [*shown.values()], [*shown], loc="outside lower center", ncols=len(shown), frameon=False, fontsize=9
    )
    _save(figure, path)
