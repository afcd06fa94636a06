"""When a batch's rows had passed the drop, and in how many tasks: from Spark's own books of its stages.

The drop is in the stage that reads the source. What comes after it in a batch (shuffle, state, a sink that
commits) is in later stages, or behind the last one. Spark's books come as the JSON that its REST interface gives:
asked field by field they would be a hundred calls into the JVM. It is not done for every batch all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_NEWEST = 12  # jobs that are looked at: a batch rarely has more
_JOBS = "org.apache.spark.status.JobDataWrapper"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """The stages of a batch that read its sources."""

    ended: float
    """When the last of them had ended, seconds since the epoch."""
    tasks: int


class StageBooks:
    """Spark's books of the jobs and stages of one application."""

    def __init__(self, spark: Any) -> None:
        jvm = spark._jvm
        self._status = spark.sparkContext._jsc.sc().statusStore()
        self._store = self._status.store()
        self._jobs = jvm.java.lang.Class.forName(_JOBS)
        self._mapper = jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()

    def times(self, run_id: str, started: float, ended: float) -> StageTimes | None:
        """Of the batch of a run that went from `started` to `ended`; None if Spark's books do not tell (yet)."""
        newest = self._read(self._store.view(self._jobs).reverse().max(_NEWEST))
        return times_of(
            self._read(self._status.lastStageAttempt(n)) for n in stages_of(newest, run_id, started, ended)
        )

    def _read(self, entry: Any) -> Any:
        return json.loads(self._mapper.writeValueAsString(entry))


def stages_of(jobs: list[dict[str, Any]], run_id: str, started: float, ended: float) -> list[int]:
    """Numbers of the stages that the jobs of a run had between two moments; the jobs newest first."""
    numbers: set[int] = set()
    for info in (job["info"] for job in jobs):
        if info.get("jobGroup") != run_id or info.get("submissionTime") is None:
            continue
        begun = epoch(info["submissionTime"])
        if begun < started - 0.001:
            break
        if begun <= ended:
            numbers.update(info["stageIds"])
    return sorted(numbers)


def times_of(stages: Iterable[dict[str, Any]]) -> StageTimes | None:
    """Only what reads the source has input; a stage behind a shuffle reads what another one wrote."""
    readers = [each for each in stages if each.get("completionTime") is not None and each["inputRecords"] > 0]
    if not readers:
        return None
    ended = max(epoch(each["completionTime"]) for each in readers)
    return StageTimes(ended, sum(each["numTasks"] for each in readers))


def epoch(stamp: str) -> float:
    """Seconds since the epoch of a time as Spark's books have it.

    >>> epoch("1970-01-01T00:01:00.250GMT")
    60.25
    """
    return datetime.strptime(stamp.removesuffix("GMT") + "+0000", "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
