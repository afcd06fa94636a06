"""When a batch's rows had passed the drop, and in how many tasks: from Spark's own books of its stages.

The drop is in the stage that reads the source. What comes after it in a batch (shuffle, state, a sink that
commits) is in later stages, or behind the last one. Asking costs some thirty calls into the JVM, so it is not done
for every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_NEWEST = 12  # jobs that are looked at: a batch rarely has more
_JOBS, _STAGES = "org.apache.spark.status.JobDataWrapper", "org.apache.spark.status.StageDataWrapper"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """The stages of a batch that read its sources."""

    ended: float
    """When the last of them had ended, seconds since the epoch."""
    tasks: int


def stage_times(spark: Any, run_id: str, started: float, ended: float) -> StageTimes | None:
    """Of the batch of a run that went from `started` to `ended`; None if Spark's books do not tell (yet)."""
    jvm = spark._jvm
    books = spark.sparkContext._jsc.sc().statusStore().store()
    numbers: set[int] = set()
    for job in _newest(books, jvm.java.lang.Class.forName(_JOBS)):
        info = job.info()
        begun, group = info.submissionTime(), info.jobGroup()
        if begun.isEmpty() or group.isEmpty() or group.get() != run_id:
            continue
        if begun.get().getTime() < started * 1000.0 - 1.0:
            break
        if begun.get().getTime() <= ended * 1000.0:
            stages = info.stageIds()
            numbers.update(int(stages.apply(i)) for i in range(stages.size()))
    return None if not numbers else _of_stages(spark, numbers)


def _newest(books: Any, kind: Any) -> list[Any]:
    """The newest entries of a kind, newest first."""
    found = books.view(kind).reverse().max(_NEWEST).closeableIterator()
    try:
        entries = []
        while found.hasNext():
            entries.append(found.next())
        return entries
    finally:
        found.close()


def _of_stages(spark: Any, numbers: set[int]) -> StageTimes | None:
    store = spark.sparkContext._jsc.sc().statusStore()
    ended, tasks = 0.0, 0
    for number in sorted(numbers):
        stage = store.lastStageAttempt(number)
        done = stage.completionTime()
        # Only what reads the source has input; a stage behind a shuffle reads what another one wrote.
        if done.isEmpty() or int(stage.inputRecords()) == 0:
            continue
        ended = max(ended, done.get().getTime() / 1000.0)
        tasks += int(stage.numTasks())
    return StageTimes(ended, tasks) if tasks else None
