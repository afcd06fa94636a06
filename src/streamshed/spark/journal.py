"""What was shed, when and why, for whoever asks the next morning: one line of JSON for each change of plan.

The lines stand beside the checkpoint, in `<checkpoint>/streamshed/NAME.history.jsonl`, and are bounded: a full
file becomes `NAME.history.1.jsonl`, in place of the one before it. A journal that cannot be written is silent: the
job is worth more than its diary.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from streamshed.quality.history_log import collected, files_of
from streamshed.spark.orders.store import Store

log = logging.getLogger("streamshed")

MOST_BYTES = 1_000_000
"""Of one file; there are at most two."""
STILL_EVERY = 60.0
"""Seconds between two lines while the same drop stays in force."""
_REMOTE_EVERY = 30.0  # seconds between two writes where a file can only be replaced as a whole


class Journal:
    """The history of one shed stream, load-aware operator or network at one checkpoint."""

    def __init__(self, store: Store, name: str, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._file, self._older = files_of(name)
        self._now = now
        self._next_line = 0.0
        self._next_write = 0.0
        self._unwritten: list[str] = []

    def note(self, **what: Any) -> None:
        """Add a line: the time, and what is given (`keep`, `reason`, counts, latency, …)."""
        now = self._now()
        self._next_line = now + STILL_EVERY
        at = datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="milliseconds")
        self._unwritten.append(json.dumps({"time": at, **what}, separators=(",", ":")) + "\n")
        if self._store.is_local or now >= self._next_write:
            self.write()

    @property
    def due(self) -> bool:
        """Whether the last line is so old that a drop still in force deserves another."""
        return self._now() >= self._next_line

    def write(self) -> None:
        """Put what was noted into the file."""
        lines, self._unwritten = self._unwritten, []
        if not lines:
            return
        self._next_write = self._now() + _REMOTE_EVERY
        with contextlib.suppress(Exception):
            self._store.append(self._file, "".join(lines).encode(), self._older, MOST_BYTES)


def read_journals(store: Store) -> dict[str, list[dict[str, Any]]]:
    """The lines of all journals in a folder, oldest first, by name; lines that cannot be read are left out."""
    return collected(store.names(), store.read)
