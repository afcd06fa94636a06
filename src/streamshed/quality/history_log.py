"""Journals: where they stand, what their lines look like, and how to read them without Spark.

`spark.journal` writes them.

    <checkpoint>/streamshed/NAME.history.jsonl       the newest lines
    <checkpoint>/streamshed/NAME.history.1.jsonl     those before, when a file was full

A line is one JSON object with the "time" it was written, in ISO 8601, and whatever else was to be noted: "keep",
"reason" and "mode" from then on; "arrived", "kept" and "shed" since the line before; the last "latency".
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from streamshed.errors import InvalidArgument

FOLDER = "streamshed"
"""Inside a checkpoint."""
NEWEST, OLDER = ".history.jsonl", ".history.1.jsonl"


def files_of(name: str) -> tuple[str, str]:
    """The files of one journal, the newest first.

    >>> files_of("shed-1")
    ('shed-1.history.jsonl', 'shed-1.history.1.jsonl')
    """
    return name + NEWEST, name + OLDER


def name_of(file: str) -> str | None:
    """Whose journal a file is; None if it is none.

    >>> name_of("shed-1.history.1.jsonl"), name_of("shed-1.history.jsonl"), name_of("shed-1.control.json")
    ('shed-1', 'shed-1', None)
    """
    for ending in (OLDER, NEWEST):
        if file.endswith(ending):
            return file.removesuffix(ending)
    return None


def parsed(text: str) -> list[dict[str, Any]]:
    """The lines of a journal; those that cannot be read are left out, as the last one after a crash."""
    lines = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                lines.append(entry)
    return lines


def collected(files: Iterable[str], read: Callable[[str], bytes | None]) -> dict[str, list[dict[str, Any]]]:
    """The lines of all journals among some files, oldest first, by name."""
    names = {name for file in files if (name := name_of(file)) is not None}
    return {
        name: [
            line
            for file in reversed(files_of(name))
            for line in parsed((read(file) or b"").decode(errors="replace"))
        ]
        for name in sorted(names)
    }


@dataclass(frozen=True)
class HistoryLine:
    """One line of a journal: what was noted of `name` at a time."""

    at: datetime
    name: str
    what: Mapping[str, Any] = field(default_factory=dict)

    def number(self, key: str) -> float | None:
        value = self.what.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.what}


def read_history(checkpoint: Path) -> list[HistoryLine]:
    """What the journals in a checkpoint of this machine say, in the order of time."""
    if not checkpoint.is_dir():
        raise InvalidArgument(
            "there is no such checkpoint folder",
            got=str(checkpoint),
            hint="the folder that a query was given as its checkpoint",
        )
    folder = (
        checkpoint if checkpoint.name == FOLDER and not (checkpoint / FOLDER).is_dir() else checkpoint / FOLDER
    )
    found = collected(
        (path.name for path in folder.glob("*") if path.is_file()),
        lambda file: (folder / file).read_bytes() if (folder / file).is_file() else None,
    )
    if not found:
        raise InvalidArgument(
            "there is no journal of Streamshed in this checkpoint",
            got=f"nothing like {folder / ('NAME' + NEWEST)}",
            hint="give the checkpoint of a query with a shed stream, or of a network; "
            "a journal begins with the first change of plan",
        )
    entries = [
        HistoryLine(at, name, line)
        for name, lines in found.items()
        for line in lines
        if (at := _time(line)) is not None
    ]
    return sorted(entries, key=lambda entry: entry.at)


def _time(line: Mapping[str, Any]) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(line.get("time")).replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
