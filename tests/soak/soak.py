"""A soak: many small batches of a shed stream and of a network, in one session at once.

    make soak        or        .venv/bin/python tests/soak/soak.py --batches 20000

Now and then it prints what could grow. It ends with 1 if memory grew, or if anything is left after `close()`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import streamshed as ss
from streamshed.network import Builder, Network
from streamshed.spark.session import local_session

GROWTH = 1.2
"""Times that memory may grow after the first tenth."""
PIN_EVERY = 1.0  # seconds
SETTLE = 30.0  # seconds that threads and connections get to go away after close()
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "1",
    # Each broadcast has a page, of up to 64 MB by default: that is heap which says nothing of us.
    "spark.buffer.pageSize": "1m",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    # What Spark remembers for its web page; it is full after that many, and says nothing of us.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "20",
}


@dataclass(frozen=True)
class Look:
    """What could grow."""

    driver_mb: float
    jvm_mb: float
    heap_mb: float
    """What is in use right after a garbage collection, the least of some."""
    threads: int
    jvm_threads: int
    listeners: int
    views: int
    files_open: int
    files: int
    """Of ours: in temporary folders, and beside the checkpoints."""


class Watch:
    """Looks at this process and at the JVM behind it."""

    def __init__(self, spark: SparkSession, base: Path) -> None:
        self._spark = spark
        self._base = base
        self._jvm: Any = spark._jvm
        self._pid = int(self._jvm.java.lang.ProcessHandle.current().pid())

    def look(self) -> Look:
        gc.collect()
        beans = self._jvm.java.lang.management.ManagementFactory
        heap = []
        for _ in range(5):  # what Python let go of is told to the JVM, and what runs at the moment is not to count
            self._jvm.System.gc()
            heap.append(sum(_after_collection(pool) for pool in beans.getMemoryPoolMXBeans()) / 2**20)
            time.sleep(0.2)
        return Look(
            driver_mb=round(_resident(os.getpid()), 1),
            jvm_mb=round(_resident(self._pid), 1),
            heap_mb=round(min(heap), 1),
            threads=threading.active_count(),
            jvm_threads=int(beans.getThreadMXBean().getThreadCount()),
            listeners=len(self._spark.streams._jsqm.listListeners())
            + len(self._spark._jsparkSession.listenerManager().listListeners()),
            views=len(self._spark.sql("SHOW TABLES").collect()),
            files_open=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), self._pid)),
            files=len(self.files()),
        )

    def files(self) -> list[Path]:
        ours = [*self._base.glob("tmp/streamshed-*/**/*"), *self._base.glob("**/streamshed/*")]
        return sorted({path for path in ours if path.is_file()})

    def threads_by_name(self) -> Counter[str]:
        """Threads of both processes; numbers in their names left out."""
        java = [f"jvm: {each.getName()}" for each in self._jvm.Thread.getAllStackTraces().keySet()]
        python = [f"python: {each.name}" for each in threading.enumerate()]
        return Counter("".join("#" if c.isdigit() else c for c in name) for name in (*java, *python))


def _resident(pid: int) -> float:
    """MB of memory that a process has."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _after_collection(pool: Any) -> int:
    """Bytes of one of the JVM's memory pools that the last garbage collection left; 0 for what is not heap."""
    usage = pool.getCollectionUsage() if pool.getType().toString() == "Heap memory" else None
    return 0 if usage is None else int(usage.getUsed())


def quiet_files(folder: Path) -> dict[str, str]:
    """Settings for local files that are made without a process for each (QuietFiles.java), if there is a compiler.

    A batch then takes a quarter of the time. What is looked at, memory and what is left, is the same.
    """
    javac = shutil.which("javac") or shutil.which(
        "javac", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin")
    )
    jars = list((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"))
    if javac is None or not jars:
        print("no Java compiler: Hadoop starts processes for every file, and this takes some four times as long")
        return {}
    source = Path(__file__).with_name("QuietFiles.java")
    subprocess.run([javac, "--release", "17", "-cp", str(jars[0]), "-d", str(folder), str(source)], check=True)
    return {
        "spark.driver.extraClassPath": str(folder),
        "spark.hadoop.fs.file.impl": "QuietFiles$Files",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "QuietFiles",
    }


def events(spark: SparkSession) -> DataFrame:
    """Twenty rows in every batch, as fast as batches go; a second of their own time each."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).option("numPartitions", 1)
    return source.load()


def network() -> Network:
    return (
        Builder("soak")
        .source("events", "value LONG, timestamp TIMESTAMP", arrived="timestamp", watermark="5 seconds", rate=200)
        .filter("odd", "events", "value % 2 = 1", selectivity=0.5)
        .aggregate("minutes", "events", "1 minute", {"n": "count(*)"}, selectivity=0.01)
        .output("rows", "odd")
        .output("counts", "minutes")
        .build()
    )


def noop(rows: DataFrame, number: int) -> None:
    with contextlib.suppress(Exception):  # it may be stopped in the middle
        rows.write.format("noop").mode("append").save()


class Listener(StreamingQueryListener):
    """One that hears nothing: Spark's threads that call listeners come with the first."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


def warm_up(spark: SparkSession, base: Path) -> None:
    """The same without us, so that the threads and caches which Spark makes once are there before."""
    listener = Listener()
    spark.streams.addListener(listener)
    rows = events(spark).withWatermark("timestamp", "5 seconds")
    windows = rows.groupBy("timestamp").count()
    plain = rows.writeStream.format("noop").option("checkpointLocation", str(base / "plain")).start()
    batches = windows.writeStream.foreachBatch(noop).option("checkpointLocation", str(base / "windows")).start()
    for query in (plain, batches):
        while (query.lastProgress or {"batchId": 0})["batchId"] < 10:
            time.sleep(0.1)
        query.stop()
    spark.streams.removeListener(listener)


def soak(batches: int, every: int, folder: Path) -> int:
    spark = local_session("soak", "local[2]", **SETTINGS, **quiet_files(folder))
    spark.sparkContext.setLogLevel("OFF")  # stopping a query in a batch makes Spark complain
    watch = Watch(spark, folder)
    warm_up(spark, folder)
    before, threads_before = watch.look(), watch.threads_by_name()
    print(f"before: {_line(before)}", flush=True)

    kept = ss.shed(events(spark), latency="1 minute", arrived="timestamp")
    handle = ss.shedder(kept)
    query = kept.writeStream.format("noop").option("checkpointLocation", str(folder / "shed")).start()
    running = ss.run(
        spark,
        network(),
        sources={"events": events(spark)},
        sinks={"rows": "noop", "counts": "noop"},
        latency="1 minute",
        state=str(folder / "network"),
    )
    looks: list[tuple[int, Look]] = []
    begun = time.monotonic()
    pins = 0
    next_look = every
    try:
        while True:
            time.sleep(0.05)
            if time.monotonic() - begun >= pins * PIN_EVERY:
                pins += 1
                keep = (0.5, 0.1, None)[pins % 3]
                handle.pin(keep)
                running.pin(
                    None if keep is None else [ss.Drop("events->odd", keep), ss.Drop("events->minutes", keep)]
                )
            shed_done = handle.report().batches
            network_done = running.report().batches
            done = min(shed_done, network_done)
            if shed_done >= batches and query.isActive:
                query.stop()  # the other may have the machine to itself now
            failed = query.exception() or running.failure()
            if failed is not None:
                print(f"a query failed: {failed}")
                return 1
            if done >= min(next_look, batches):
                next_look = done - done % every + every
                looks.append((done, watch.look()))
                rate = (time.monotonic() - begun) / done * 1000
                print(
                    f"{shed_done:>6} {network_done:>6} batches, {rate:4.0f} ms each: {_line(looks[-1][1])}",
                    flush=True,
                )
            if done >= batches:
                break
    finally:
        report, network_report = handle.report(), running.report()
        query.stop()
        handle.settle()
        handle.close()
        running.close()
    print(f"shed stream: {report.shed:,} of {report.arrived:,} rows dropped, {report.unseen} batches unseen")
    dropped, arrived = network_report.shed, network_report.arrived
    print(f"network: {dropped:,} of {arrived:,} rows dropped, {network_report.unseen} batches unseen")
    del query, kept, handle, running
    return _judge(looks, batches, before, threads_before, watch)


def _judge(
    looks: list[tuple[int, Look]], batches: int, before: Look, threads_before: Counter[str], watch: Watch
) -> int:
    problems = []
    steady = [look for done, look in looks if done > batches / 10]
    for what in ("driver_mb", "heap_mb"):
        values = [getattr(look, what) for look in steady]
        few = max(1, len(values) // 4)
        first, last = statistics.median(values[:few]), statistics.median(values[-few:])
        print(f"{what}: {first:.1f} after the first tenth, {last:.1f} at the end")
        if last > GROWTH * first:
            problems.append(f"{what} grew from {first:.1f} to {last:.1f}")
    deadline = time.monotonic() + SETTLE
    while True:
        after = watch.look()
        more = watch.threads_by_name() - threads_before
        # Spark grows its pools as it likes, and py4j has a connection for each thread that calls it.
        more = Counter(
            {name: n for name, n in more.items() if not name.startswith(_POOLS) and n > _CALLS.get(name, 0)}
        )
        left = [
            *(f"a listener: {after.listeners} instead of {before.listeners}",)
            * (after.listeners > before.listeners),
            *(f"a view: {after.views} instead of {before.views}",) * (after.views > before.views),
            *(f"a thread: {name} ({count} more)" for name, count in more.items()),
            *(f"a temporary file: {path.name}" for path in watch.files() if "tmp" in path.parts[-4:]),
            *(f"a control file: {path.name}" for path in watch.files() if path.name.endswith(".control.json")),
        ]
        if not left or time.monotonic() > deadline:
            break
        time.sleep(1.0)
    print(f"before: {_line(before)}\nafter:  {_line(after)}")
    print(
        f"beside the checkpoints, for the next run: {', '.join(path.name for path in watch.files()) or 'nothing'}"
    )
    problems += [f"left behind, {each}" for each in left]
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


_POOLS = tuple(
    f"jvm: {name}"
    for name in (
        "Executor task", "broadcast-exchange", "ForkJoinPool", "task-result-getter", "shuffle", "rpc",
        "dispatcher", "block-manager", "files-client", "netty", "process reaper", "stdout writer",
        "Idle Worker Monitor", "state-store", "map-output", "subquery", "QueryStageCreator", "ResultQueryStage",
        "Cleaner-#", "Common-Cleaner", "Attach", "C# CompilerThread", "GC", "G# ", "dag-scheduler",
        "spark-listener-group",
    )
)  # fmt: skip
_CALLS = {"python: Thread-# (run)": 2, "python: Thread-## (run)": 2, "jvm: Thread-#": 2, "jvm: Thread-##": 2}
"""Connections: one for each of Spark's two threads that call listeners, which live as long as the session."""


def _line(look: Look) -> str:
    return ", ".join(f"{name} {value}" for name, value in asdict(look).items())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--batches", type=int, default=20_000, help="of each of the two")
    options.add_argument("--every", type=int, default=0, help="batches between two lines")
    given = options.parse_args()
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir=base))
    tempfile.tempdir = str(folder / "tmp")
    (folder / "tmp").mkdir()
    try:
        return soak(given.batches, given.every or max(10, min(500, given.batches // 10)), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
