"""A Spark with two executors that are processes of their own, which runs jobs for several tests.

A job is a module with `main(spark, folder, …)` that returns what its test wants to know. Three JVMs take longer to
start than any of the jobs takes, so those that want the same of Spark share one; it runs in a process of its own
(executors.py KIND) and takes one job at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import streamshed as ss
from streamshed.lab.bench import kafka
from streamshed.spark.session import leave_spark, local_session
from tests.spark.helpers import wait_for

KINDS = {
    "plain": {},
    # Tasks that take longer than others run twice.
    "speculating": {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.sql.files.minPartitionNum": "8",
    },
}
COUNT = 2
_ENDS_WITHIN = 60  # seconds
_THERE_WITHIN = 300.0  # seconds; beside other work on two cores it has taken two minutes
_DONE_WITHIN = 500.0


class Executors:
    """The process, as a test sees it; what Spark says goes to a file in `folder`."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._said = folder / "words.txt"
        command = [sys.executable, "-m", "tests.spark.executors", kind]
        with self._said.open("w") as words:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=words, stderr=subprocess.STDOUT, text=True
            )

    def run(self, job: str, folder: Path, *words: object) -> dict[str, Any]:
        """What a job in `tests.spark` found."""
        self.start(job, folder, *words)
        wait_for(lambda: self.ended(folder), _DONE_WITHIN)
        found: dict[str, Any] = json.loads((folder / "result.json").read_text())
        return found

    def start(self, job: str, folder: Path, *words: object) -> None:
        """Have a job run, and do something else meanwhile."""
        assert self._process.stdin is not None
        print(json.dumps([job, str(folder), *words]), file=self._process.stdin, flush=True)

    def ended(self, folder: Path) -> bool:
        """Whether a job has its result. One that failed fails the test that asks."""
        problem = folder / "problem.txt"
        assert not problem.exists(), problem.read_text()[-3000:]
        assert self._process.poll() is None, self._said.read_text()[-3000:]
        return (folder / "result.json").exists()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()


@contextmanager
def shared(kind: str, folder: Path) -> Iterator[Executors]:
    """The process, ended when nobody needs it any more."""
    process = Executors(kind, folder)
    try:
        yield process
    finally:
        process.close()


def executor_count(spark: SparkSession) -> int:
    """How many there are now, besides the driver."""
    return spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # type: ignore[union-attr]


def main(kind: str) -> None:
    here = Path(__file__).parents[2]
    settings = {
        "spark.driver.memory": "1g",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(Path(ss.__file__).parents[1]), str(here)]),
        **({} if kafka.missing() else {"spark.jars": kafka.connector()}),
        **KINDS[kind],
    }
    spark = local_session(kind, f"local-cluster[{COUNT},1,1024]", **settings)
    for line in sys.stdin:
        job, folder, *words = json.loads(line)
        try:
            # Spark puts another one in the place of an executor that was lost.
            wait_for(lambda: executor_count(spark) == COUNT, _THERE_WITHIN)
            result = import_module(f"tests.spark.{job}").main(spark, Path(folder), *words)
            hidden = Path(folder, ".result.json")
            hidden.write_text(json.dumps(result))
            hidden.replace(Path(folder, "result.json"))
        except Exception:
            Path(folder, "problem.txt").write_text(traceback.format_exc())
    leave_spark()


if __name__ == "__main__":
    main(sys.argv[1])
