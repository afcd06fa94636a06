"""From Spark's progress reports to Samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.records import Sample
from streamshed.spark.orders.history import Span
from streamshed.spark.watch.plan_counts import Counts

_IDLE = 0.25  # a batch that starts this long after the last one's end found the source empty before


@dataclass(frozen=True, slots=True)
class Progress:
    """What a progress report says that a shedder needs."""

    run_id: str
    batch: int
    started: float
    duration: float
    rows: int
    backlog: Mapping[str, float]
    """Rows that each source still holds back, by the source's own description."""
    oldest: Mapping[int, float]
    """Arrival of the oldest kept row by drop, where it is observed."""
    ran: bool
    """Whether a batch was executed at all, or the trigger only looked for data."""
    lead: float = 0.0
    """Seconds before the batch was planned: asking the sources, and writing down what was found."""

    @staticmethod
    def parse(report: str) -> Progress:
        """Read the JSON of a `StreamingQueryProgress`."""
        data: dict[str, Any] = json.loads(report)
        started = datetime.strptime(data["timestamp"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
        durations = data.get("durationMs", {})
        sources = data.get("sources", [])
        return Progress(
            run_id=data["runId"],
            batch=int(data["batchId"]),
            started=started.timestamp(),
            duration=durations.get("triggerExecution", 0) / 1000.0,
            rows=sum(int(source.get("numInputRows", 0)) for source in sources),
            backlog=_held_back_by_source(sources),
            oldest=_oldest(data.get("observedMetrics", {})),
            ran="addBatch" in durations,
            lead=sum(durations.get(part, 0) for part in _BEFORE_PLANNING) / 1000.0,
        )


_BEFORE_PLANNING = ("latestOffset", "walCommit", "getBatch")
_OBSERVED = "streamshed-oldest-"


def oldest_observed(kept: DataFrame, serial: int, arrived: Column) -> DataFrame:
    """Have the progress reports tell the arrival of a batch's oldest row."""
    millis = F.unix_millis(arrived.cast("timestamp"))
    return kept.observe(f"{_OBSERVED}{serial}", F.min(millis).alias("millis"))


def _oldest(observed: Mapping[str, Any]) -> dict[int, float]:
    return {
        int(name.removeprefix(_OBSERVED)): metric["millis"] / 1000.0
        for name, metric in observed.items()
        if name.startswith(_OBSERVED) and metric.get("millis") is not None
    }


def _held_back_by_source(sources: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for source in sources:
        name = str(source.get("description", ""))
        found[name] = found.get(name, 0.0) + _held_back(source)
    return found


def _held_back(source: Mapping[str, Any]) -> float:
    """Rows that a source has and did not give, for the sources that count them (Kafka and its like)."""
    latest, end = source.get("latestOffset"), source.get("endOffset")
    if not (isinstance(latest, dict) and isinstance(end, dict)):
        return 0.0
    ends = dict(offset_numbers(end))
    behind = [offset - ends[place] for place, offset in offset_numbers(latest) if place in ends]
    return float(sum(rows for rows in behind if rows > 0))


def offset_numbers(
    offsets: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterable[tuple[tuple[str, ...], float]]:
    """Offsets of `{topic: {partition: offset}}`, one by one."""
    for name, value in offsets.items():
        if isinstance(value, dict):
            yield from offset_numbers(value, (*above, name))
        elif isinstance(value, (int, float)) and above:
            yield (*above, name), float(value)


class SampleBuilder:
    """Makes samples of one query's reports; knows when the batch before began and ended."""

    def __init__(self, query: str, interval: float, *, draining: bool = False) -> None:
        self.query = query
        self.interval = interval
        self.draining = draining
        self._last: Progress | None = None
        self._last_with_rows: Progress | None = None

    def skip(self, progress: Progress) -> None:
        """A report without counts of ours."""
        self._last = self._last_with_rows = progress

    def finished(
        self,
        progress: Progress,
        counts: Counts,
        span: Span,
        keep_next: float,
        oldest: float | None = None,
        *,
        backlog: float = 0.0,
        next_started: bool = True,
        next_planned: bool = True,
        tail: float = 0.0,
        tasks: int = 0,
        cores: int = 0,
    ) -> Sample:
        gap = waited = 0.0
        if self._last is not None and self._last_with_rows is not None:
            # Rows came in over the time since the last batch that had some: one without, which only moves a
            # watermark, is no sign of a quiet source. But none of them has waited since before that one.
            gap = max(0.0, progress.started - self._last_with_rows.started)
            waited = max(0.0, progress.started - self._last.started)
            if progress.started - (self._last.started + self._last.duration) > _IDLE:
                waited = min(waited, self.interval)
        if oldest is not None:
            waited = max(0.0, progress.started - oldest)
        self._last = progress
        if counts.arrived or self._last_with_rows is None:
            self._last_with_rows = progress
        return Sample(
            at=progress.started + progress.duration,
            started=progress.started,
            arrived=counts.arrived,
            kept=counts.kept,
            cut=counts.cut,
            expired=counts.expired,
            tail=tail,
            tasks=tasks,
            cores=cores,
            gap=gap,
            waited=waited,
            interval=self.interval,
            backlog=backlog,
            keep=span.keep,
            keep_next=keep_next,
            next_started=next_started,
            next_planned=next_planned,
            draining=self.draining,
            version=span.version,
            query=self.query,
            batch=progress.batch,
        )

    def idle(self, now: float) -> Sample:
        """Nothing runs after the last batch: the source has nothing."""
        return Sample(
            at=now,
            started=now,
            interval=self.interval,
            draining=self.draining,
            finished=False,
            next_started=False,
            query=self.query,
            batch=-1 if self._last is None else self._last.batch,
        )

    def running(self, now: float, started: float, batch: int, span: Span, given: int = 0) -> Sample:
        """`given`: rows that the source gave it, if that is known."""
        return Sample(
            at=now,
            started=started,
            arrived=given,
            interval=self.interval,
            keep=span.keep,
            keep_next=span.keep,
            draining=self.draining,
            version=span.version,
            finished=False,
            query=self.query,
            batch=batch,
        )
