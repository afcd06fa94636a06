"""The command `history`: what was shed, when and why, from the journals beside a checkpoint. Needs no Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from streamshed.cli.screen import plain_table, screen
from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.quality.history_log import HistoryLine, read_history


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(history)


def history(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint folder of a query, or of a network.")
    ],
    since: Annotated[str | None, typer.Option(help='Only what is younger, such as "1 hour" or "2 days".')] = None,
    name: Annotated[
        str | None, typer.Option(help="Only this shed stream, load-aware operator or network.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines as JSON, one below the other.")] = False,
) -> None:
    """Show what was shed, when and why. Reads the journals beside a checkpoint; starts no Spark."""
    after = None if since is None else datetime.now(timezone.utc) - timedelta(seconds=seconds(since, "--since"))
    entries = chosen(read_history(_local(checkpoint)), name, after)
    if as_json:
        for entry in entries:
            typer.echo(json.dumps(entry.as_json()))
        return
    out = screen()
    if entries:
        out.print(history_table(entries))
    out.print(Text(totals(entries, since)))


def _local(checkpoint: str) -> Path:
    if re.match(r"(?!file:)[a-zA-Z][\w+.-]+:", checkpoint):
        raise InvalidArgument(
            "history reads folders of this machine",
            got=checkpoint,
            hint="copy its folder streamshed/ here and give that",
        )
    return Path(re.sub(r"^file:(//)?", "", checkpoint))


def chosen(entries: Sequence[HistoryLine], name: str | None, after: datetime | None) -> list[HistoryLine]:
    """The entries of a name, and those after a time."""
    names = sorted({entry.name for entry in entries})
    if name is not None and name not in names:
        raise InvalidArgument(
            "there is no journal of this name", got=repr(name), hint=f"there are: {', '.join(names)}"
        )
    return [
        entry for entry in entries if (name is None or entry.name == name) and (after is None or entry.at >= after)
    ]


def shed_by(entry: HistoryLine) -> float | None:
    """Rows that were dropped since the line before."""
    arrived, kept, shed = (entry.number(key) for key in ("arrived", "kept", "shed"))
    return arrived - kept if shed is None and arrived is not None and kept is not None else shed


def history_table(entries: Sequence[HistoryLine]) -> Table:
    """A line for each; counts are those since the line before of the same name."""
    table = plain_table("time", "name", "keep", "arrived", "shed", "latency", "reason", text=("name", "reason"))
    for entry in entries:
        keep, latency = entry.number("keep"), entry.number("latency")
        table.add_row(
            f"{entry.at.astimezone():%Y-%m-%d %H:%M:%S}",
            Text(entry.name),
            "" if keep is None else f"{keep:.3f}",
            _rows(entry.number("arrived")),
            _rows(shed_by(entry)),
            "" if latency is None else f"{latency:.2f} s",
            Text(str(entry.what.get("reason", ""))),
        )
    return table


def _rows(count: float | None) -> str:
    return "" if count is None else f"{count:,.0f}"


def totals(entries: Sequence[HistoryLine], since: str | None = None) -> str:
    """The closing line."""
    span = "" if since is None else f" in the last {since}"
    if not entries:
        return f"nothing was noted{span}"
    arrived = sum(entry.number("arrived") or 0.0 for entry in entries)
    shed = sum(shed_by(entry) or 0.0 for entry in entries)
    share = f" ({shed / arrived:.1%})" if arrived else ""
    lines = f"{len(entries)} line{'s' if len(entries) > 1 else ''}"
    return f"{lines}{span}: {arrived:,.0f} rows arrived, {shed:,.0f} were shed{share}"
