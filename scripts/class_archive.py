"""Keeps Spark's classes as the JVM has them once they are loaded: class_archive.py FILE

The tests start some forty JVMs, and loading Spark is half of what each of them does. Java can write down what it
has loaded when it ends (`-XX:ArchiveClassesAtExit`), and another one of the same version and class path maps
that file. Without the file, or with one of another Java, tests are slower and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext

from streamshed.spark.session import local_session

FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # as in tests/conftest.py
ENDS_WITHIN = 300  # seconds: what is written has 160 MB


def main(file: Path) -> None:
    print(f"spark: keeping its classes in {file}, for the tests (half a minute, once)", flush=True)
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{FLAGS} -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    spark = local_session("classes", "local[2]", True)
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    counts = rows.withWatermark("timestamp", "1 second").groupBy("timestamp").count()
    for output, mode in ((rows.where("value >= 0"), "append"), (counts, "update")):
        query = output.writeStream.format("memory").queryName(mode).outputMode(mode).start()
        query.processAllAvailable()
        query.stop()
    spark.stop()
    process: subprocess.Popen[bytes] = SparkContext._gateway.proc  # type: ignore[union-attr]
    assert process.stdin is not None
    process.stdin.close()  # the JVM ends when nobody can write to it any more
    process.wait(ENDS_WITHIN)
    os.replace(fresh, file)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except Exception as error:
        print(f"spark: its classes could not be kept; tests will take longer ({error})", file=sys.stderr)
