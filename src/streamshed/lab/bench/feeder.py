"""A source with a known schedule: files that appear in a folder at planned times.

Each file's modification time is the arrival time of its rows (`_metadata.file_modification_time`), so
the same schedule can be played to any number of jobs, and the latency of every row is known afterwards
from the checkpoint: which files a batch took, and when it was committed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

Rate = Callable[[float], float]
"""Rows per second at a time since the start."""


class Lines:
    """A supply of lines, padded to one width, so that any number of them is one slice of bytes."""

    def __init__(self, lines: Iterable[str]) -> None:
        texts = list(lines)
        self.width = max(map(len, texts)) + 1
        self.count = len(texts)
        self._data = "".join(line.ljust(self.width - 1) + "\n" for line in texts).encode() * 2
        self._next = 0

    def take(self, count: int) -> bytes:
        """The next `count` lines, round and round."""
        taken = bytearray()
        while count > 0:
            part = min(count, self.count)
            taken += self._data[self._next * self.width : (self._next + part) * self.width]
            self._next = (self._next + part) % self.count
            count -= part
        return bytes(taken)

    def rewind(self) -> None:
        """Begin again with the first line."""
        self._next = 0


class JsonRows(Lines):
    """A supply of JSON rows."""

    def __init__(self, count: int = 50_000, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        users = np.minimum(rng.zipf(1.3, count), 999)
        values = rng.uniform(0, 100, count)
        # How much work a row is differs by a factor of 20; the mean is 10.
        work = np.clip(rng.geometric(0.1, count), 1, 20)
        super().__init__(
            json.dumps({"id": i, "user": int(u), "v": round(float(v), 3), "work": int(w)})
            for i, (u, v, w) in enumerate(zip(users, values, work, strict=True))
        )


class Feeder(threading.Thread):
    """Puts rows into a folder on schedule, from a thread of its own."""

    def __init__(
        self, folder: Path, rate: Rate, seconds: float, *, rows: Lines, tick: float = 0.1, first: int = 0
    ) -> None:
        """`first`: the number of the first file, where there are some already."""
        super().__init__(name="feeder", daemon=True)
        self._first = first
        self._folder = folder
        self._rate = rate
        self._seconds = seconds
        self._rows = rows
        self._tick = tick
        self._halt = threading.Event()
        self.files: dict[str, tuple[float, int]] = {}
        """Arrival time and number of rows of each file."""
        self.started_at = 0.0

    def stop(self) -> None:
        self._halt.set()
        self.join()

    def run(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.started_at = time.time()
        owed, due = 0.0, 0.0
        while due < self._seconds and not self._halt.is_set():
            owed += self._rate(due) * self._tick
            due += self._tick
            wait = self.started_at + due - time.time()
            if wait > 0:
                self._halt.wait(wait)
            count, owed = int(owed), owed - int(owed)
            if count:
                self._put(count)

    def _put(self, count: int) -> None:
        path = self._folder / f"{self._first + len(self.files):06d}.json"
        put(self._folder, path.name, self._rows.take(count))
        self.files[path.name] = (path.stat().st_mtime, count)


def put(folder: Path, name: str, data: bytes) -> None:
    """Make a file appear whole, with its arrival as its modification time."""
    hidden = folder / f".{name}"
    hidden.write_bytes(data)
    os.utime(hidden)
    os.replace(hidden, folder / name)
