"""Slots for tasks: in real-time mode every partition holds one for as long as its query runs.

    a query without windows     a slot for each partition that it reads
    one with a window           these, and one for each partition behind the shuffle: both stages run at once

A task that gets no slot waits for as long as the others run, which is for ever, and nothing says so. Spark itself
refuses a stage behind a shuffle that has too few; but in the first batch, when the query runs already.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from streamshed.errors import EnvironmentProblem
from streamshed.spark.orders.store import Store

log = logging.getLogger("streamshed")

SHUFFLE = "spark.sql.shuffle.partitions"
_REAL_TIME = "RealTimeTrigger"
_PATIENCE = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class SlotsWanted:
    """What one query needs."""

    reading: int
    """Partitions of its sources."""
    shuffled: int = 0
    """Partitions behind its shuffle."""

    @property
    def all(self) -> int:
        return self.reading + self.shuffled

    def __str__(self) -> str:
        return f"{self.reading} to read" + (f" and {self.shuffled} behind its shuffle" if self.shuffled else "")


def check_slots(spark: SparkSession, wanted: Mapping[str, SlotsWanted]) -> None:
    """Refuse queries that would wait for slots."""
    needed = sum(each.all for each in wanted.values())
    # Executors come some time after their session; in local mode there are none to wait for.
    until = time.monotonic() + (0.0 if spark.sparkContext._jsc.sc().isLocal() else _PATIENCE)
    while True:
        try:
            there, held = slots_there(spark), slots_held(spark)
        except Py4JError as error:
            log.debug("how many slots there are is not known (%s)", error)
            return
        if there is None or needed + held <= there:
            return
        if time.monotonic() >= until:
            break
        time.sleep(0.2)
    each = "; ".join(f"{name}: {slots}" for name, slots in wanted.items())
    others = f", of which other real-time queries hold {held}" if held else ""
    shuffles = any(slots.shuffled for slots in wanted.values())
    fewer = f'a smaller "{SHUFFLE}" (each window needs so many), ' if shuffles else ""
    raise EnvironmentProblem(
        "in real-time mode every partition holds a slot for as long as its query runs, and there are too few",
        got=f"{needed} needed ({each}), {there} there{others}",
        hint=f"{fewer}more cores for Spark, fewer partitions in Kafka; or micro-batches, whose tasks take turns",
    )


def slots_there(spark: SparkSession) -> int | None:
    """Tasks that can run at the same time; None if executors come as they are needed."""
    conf = spark.sparkContext.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return None
    context: Any = spark.sparkContext._jsc.sc()
    now = int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    instances, cores = conf.get("spark.executor.instances", "0"), conf.get("spark.executor.cores", "1")
    # Executors that were asked for may still be under way.
    return max(now, int(instances or 0) * int(cores or 1) // int(conf.get("spark.task.cpus", "1") or 1))


def slots_held(spark: SparkSession) -> int:
    """Tasks of the real-time queries of this session that run now."""
    tracker = spark.sparkContext.statusTracker()
    held = 0
    for query in spark.streams.active:
        java: Any = query._jsq
        if not str(java.streamingQuery().trigger().toString()).startswith(_REAL_TIME):
            continue
        for job in tracker.getJobIdsForGroup(str(query.runId)):
            found = tracker.getJobInfo(job)
            stages = () if found is None or found.status != "RUNNING" else found.stageIds
            known = [tracker.getStageInfo(stage) for stage in stages]
            held += sum(stage.numTasks - stage.numCompletedTasks for stage in known if stage is not None)
    return held


def partitions_of(rows: DataFrame) -> int:
    """In how many partitions a stream is read, as its sources are now; one for each that does not tell."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    found = 0
    for leaf in (leaves.apply(i) for i in range(leaves.size())):
        if leaf.isStreaming():
            try:
                found += _kafka_partitions(rows.sparkSession, leaf)
            except Exception as error:
                log.debug("in how many partitions a source is read is not known (%s)", error)
                found += 1
    return max(1, found)


def _kafka_partitions(spark: SparkSession, leaf: Any) -> int:
    """Real-time mode reads each of Kafka's partitions in a task of its own."""
    jvm: Any = spark._jvm
    # Nothing is written there: the source is only asked where its partitions end.
    stream = leaf.table().newScanBuilder(leaf.extraOptions()).build().toMicroBatchStream("/")
    try:
        nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
        return int(stream.kafkaOffsetReader().fetchLatestOffsets(nothing).size())
    finally:
        stream.stop()


def shuffle_partitions(spark: SparkSession, checkpoint: str) -> int:
    """Partitions behind a query's shuffle: state that is there already has as many as it began with."""
    store = Store(spark, f"{checkpoint}/offsets")
    batches = [int(name) for name in store.names() if name.isdigit()]
    lines = (store.read(str(max(batches))) or b"").decode().splitlines() if batches else []
    for line in lines:
        try:
            return int(json.loads(line)["conf"][SHUFFLE])
        except (ValueError, KeyError, TypeError):
            continue
    return int(str(spark.conf.get(SHUFFLE)))
