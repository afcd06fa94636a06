"""`bench outage`: the job is down, ten minutes of arrivals pile up, and it starts again.

Settings, and what must come out, as they were written down before the first run: the heavy job at 0.5 of its
capacity, bound 6 s. It runs for 15 s and is stopped; files of ten minutes at that rate are put there, with their
arrival times; then it starts again from its checkpoint while rows go on arriving, for 60 s. With `expired="drop"`
the rows of the third batch and of all later ones are inside the bound. Without, how many seconds and batches that
takes is told; None if it did not happen in these 60 s. A row's place in time is the arrival of its file.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import streamshed as ss
import streamshed.lab.bench.play as playing
from streamshed.lab.bench import jobs
from streamshed.lab.bench.feeder import Feeder, JsonRows, put
from streamshed.lab.bench.play import Say, Workplace

LOAD = 0.5  # of the capacity
DOWN = 600.0  # seconds of arrivals that pile up
STEP = 2.0  # seconds of them in a file
BEFORE, AFTER = 15.0, 60.0


def run(say: Say, bound: float = 6.0) -> dict[str, Any]:
    settings = {"spark.sql.adaptive.enabled": "true", "spark.sql.files.minPartitionNum": "32"}
    spark = playing.session("bench outage", **settings)
    rows = JsonRows()
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, jobs.heavy, rows, say)
        found = {each: _outage(spark, place, rows, LOAD * able, bound, each, say) for each in ("drop", "keep")}
    drop, keep = found["drop"], found["keep"]
    return {
        "bench": "outage",
        "bound_s": bound,
        "batches_until_back": drop["batches"],
        "back_within_two_batches": drop["batches"] is not None and drop["batches"] <= 2,
        "seconds_until_back": drop["seconds"],
        "expired": drop["expired"],
        "shed_beside": drop["shed"] - drop["expired"],
        "keep_batches_until_back": keep["batches"],
        "keep_seconds_until_back": keep["seconds"],
        "keep_shed": keep["shed"],
        "piled_up": round(LOAD * able * DOWN),
        "worst_s": drop["worst_s"],
        "keep_worst_s": keep["worst_s"],
    }


def _outage(
    spark: SparkSession, place: Workplace, rows: JsonRows, rate: float, bound: float, expired: str, say: Say
) -> dict[str, Any]:
    source, state = place.fresh("in"), place.fresh("state")

    def go(seconds: float, piled: dict[str, tuple[float, int]]) -> tuple[jobs.Run, ss.Report]:
        read = jobs.read(spark, source)
        lines = ss.shed(read, latency=bound, arrived="arrived", expired=expired, name="outage")
        with ss.shedder(lines) as handle:
            query = jobs.start(jobs.heavy(lines), state)
            feeder = Feeder(source, lambda second: rate, seconds, rows=rows, first=_count(source))
            end = playing.feed_while_running(feeder, query, seconds, lambda *_: None, query.stop)
            handle.settle()
            run = jobs.measure(state, query, piled | feeder.files, feeder.started_at, handle, end)
            return run, handle.report()

    say(f"expired={expired!r}: {rate:,.0f} rows/s, then it is stopped")
    _, before = go(BEFORE, {})
    say(f"expired={expired!r}: {DOWN / 60:.0f} minutes of arrivals pile up")
    piled = _pile_up(source, rows, rate, _count(source))
    say(f"expired={expired!r}: it starts again")
    run, report = go(AFTER, piled)
    shutil.rmtree(source, ignore_errors=True)
    late = [_worst_kept(batch, bound if expired == "drop" else None) for batch in run.batches]
    return _judge(run, late, bound) | {"expired": report.expired, "shed": report.shed - before.shed}


def _count(folder: Path) -> int:
    return len(list(folder.iterdir()))


def _pile_up(source: Path, rows: JsonRows, rate: float, first: int) -> dict[str, tuple[float, int]]:
    """Files that arrived while nobody looked, by name: when they did, and how many rows they have."""
    now = time.time()
    found = {}
    for number in range(int(DOWN / STEP)):
        name, at = f"{first + number:06d}.json", now - DOWN + (number + 1) * STEP
        put(source, name, rows.take(int(rate * STEP)))
        os.utime(source / name, (at, at))
        found[name] = (at, int(rate * STEP))
    return found


def _worst_kept(batch: jobs.Batch, expiry: float | None) -> float:
    """The latency of the oldest row that was kept: what was older when the batch began, was not."""
    kept = batch.arrivals if expiry is None else batch.arrivals[batch.arrivals >= batch.started - expiry]
    return batch.committed - float(kept.min()) if len(kept) and batch.kept else 0.0


def _judge(run: jobs.Run, late: list[float], bound: float) -> dict[str, Any]:
    """How many batches, and seconds, until every later one had all its rows inside the bound."""
    over = [index for index, worst in enumerate(late) if worst > bound]
    back = max(over) + 1 if over else 0
    never = back >= len(run.batches)
    return {
        "batches": None if never else back,
        "seconds": None if never else round(run.batches[back].started, 2),
        "worst_s": [round(each, 2) for each in late],
    }
