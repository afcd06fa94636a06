"""The one table of a report: for terminals and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group

    from streamshed.quality.report import Report


@dataclass(frozen=True, slots=True)
class Section:
    """One table: its first column has names, all others numbers."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sections(report: Report) -> Iterator[Section]:
    """What there is to say; what is empty is left out."""
    yield Section(
        ("rows", "arrived", "kept", "shed", "failed", "would shed", "batches", "over bound", "unseen"),
        [_row("all", report), *(_row(name, part) for name, part in _several(report))],
    )
    if report.cut or report.expired:
        yield Section(
            ("shed", "by plan", "by budget", "expired"),
            [
                (name, *_whole(part.thinned, part.cut, part.expired))
                for name, part in (("all", report), *_several(report))
            ],
        )
    times = [("latency", report.latencies), ("queuing", report.queuing)]
    spans = [
        (name, *(f"{span:.2f} s" for span in (h.mean, h.percentile(50), h.percentile(99), h.worst)))
        for name, h in times
        if h.rows or h.worst
    ]
    if spans:
        yield Section(("", "mean", "p50", "p99", "worst"), spans)
    if report.by_source:
        yield Section(
            ("source", "arrived", "kept", "shed"),
            [(name, *_whole(r.arrived, r.kept, r.shed)) for name, r in report.by_source.items()],
        )
    dropped = {name: rows for name, rows in report.by_arc.items() if rows.shed or rows.failed or rows.would_shed}
    if dropped:
        yield Section(
            ("arc", "arrived", "shed", "failed", "would shed"),
            [(name, *_whole(r.arrived, r.shed, r.failed, r.would_shed)) for name, r in dropped.items()],
        )
    if report.by_output:
        yield Section(
            ("output", "delivered", "of", "%", "planned %", "SIC", "utility"),
            [
                (
                    name,
                    *_whole(output.delivered, output.expected),
                    f"{output.percent:.1f}",
                    "" if output.planned_percent is None else f"{output.planned_percent:.1f}",
                    "" if output.sic is None else f"{output.sic:.3f}",
                    "" if output.utility is None else f"{output.utility:.3f}",
                )
                for name, output in report.by_output.items()
            ],
        )


def _several(report: Report) -> list[tuple[str, Report]]:
    return list(report.by_query.items()) if len(report.by_query) > 1 else []


def _row(name: str, report: Report) -> tuple[str, ...]:
    counts = (report.arrived, report.kept, report.shed, report.failed, report.would_shed)
    return (name, *_whole(*counts, report.batches, report.over_bound, report.unseen))


def _whole(*numbers: float) -> list[str]:
    return [f"{number:,.0f}" for number in numbers]


def as_html(report: Report) -> str:
    """Small tables, for notebooks."""
    parts = []
    for section in sections(report):
        head = "".join(f"<th>{escape(cell)}</th>" for cell in section.head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in section.rows
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return "\n".join(parts)


def as_rich(report: Report) -> Group:
    """The same for a terminal."""
    # Only who prints needs it.
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    tables: list[Table | Text] = []
    for section in sections(report):
        table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
        for number, cell in enumerate(section.head):
            table.add_column(cell, justify="right" if number else "left", no_wrap=True)
        for row in section.rows:
            # Names are the user's, and may look like markup.
            table.add_row(*(Text(cell) for cell in row))
        tables += [table, Text()] if tables or section.rows else []
    return Group(*tables[:-1])
