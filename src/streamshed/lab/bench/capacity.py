"""What a job can process: rows are given to it as fast as it takes them, batch after batch."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streamshed.lab.bench.feeder import Lines, put

_FILES = 20  # a batch's rows come in so many files, as they do from a feeder
_LAST = 5  # batches that count


@dataclass(frozen=True)
class Fed:
    """What a job was given, and how fast it took it."""

    rate: float
    """Rows per second."""
    rows: int
    """Rows given in all."""


def fastest(
    folder: Path,
    source: Path,
    rows: Lines,
    process: Callable[[], object],
    say: Callable[[str], None],
    *,
    seconds: float,
    first: int = 8_000,
    least: float = 0.0,
    most: float = 60.0,
) -> Fed:
    """Rows per second that a job can process at most, in batches of about `seconds`.

    It gets its next rows when `process` returns: the last ones are committed. That goes on until five batches in a
    row bring no better rate, for at least `least` and at most `most` seconds: the JVM compiles and recompiles for
    half a minute. The median of the last five counts, or the last if the rate was still rising. A batch has never
    less than the first one, which is slow because it is the first and says little about how many rows fit.
    """
    begun = time.time()
    count, best, since_best, given = first, 0.0, 0, 0
    rates: list[float] = []
    while (now := time.time() - begun) < most and (now < least or since_best < _LAST):
        for part in range(_FILES):
            put(folder, f"{len(rates):04d}-{part:02d}.json", rows.take(count // _FILES))
        for file in sorted(folder.iterdir()):
            os.replace(file, source / file.name)
        begin = time.time()
        process()
        took = time.time() - begin
        given += count // _FILES * _FILES
        rates.append(count / took)
        say(f"calibrating: {rates[-1]:,.0f} rows/s")
        since_best = 0 if rates[-1] > 1.05 * best or took < 0.7 * seconds else since_best + 1
        best = max(best, rates[-1])
        # A compiler goes by how often a thing was done: while the rate rises, longer batches.
        rising = len(rates) > 1 and rates[-1] > 1.2 * rates[-2]
        wanted = 2.0 * seconds if rising else seconds
        count = max(first, int(count * max(0.7, min(4.0, wanted / took))))
    return Fed(max(statistics.median(rates[-_LAST:]), rates[-1]), given)
