"""Java and Spark as Streamshed needs them, checked before anything starts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streamshed.errors import EnvironmentProblem

OLDEST_SPARK = (4, 0)
OLDEST_JAVA = 17
_DAEMON_ENDS = 5  # seconds to wait for a daemon of Python workers; it has nothing left to do


def check_java() -> Path:
    """The Java runtime that Spark will use, from JAVA_HOME or PATH; an error says what to install."""
    hint = (
        f"install Java {OLDEST_JAVA} or newer (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless) "
        "and set JAVA_HOME or put java on the PATH"
    )
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not Path(found).exists():
        got = f"JAVA_HOME={home}, which has no bin/java" if home else "no JAVA_HOME, and no java on the PATH"
        raise EnvironmentProblem("Spark needs a Java runtime, and there is none", got=got, hint=hint)
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer)
    # Before 9, versions were written 1.8 and the like.
    version = 0 if match is None else int(match[2] if match[1] == "1" and match[2] else match[1])
    if version < OLDEST_JAVA:
        said = answer.strip().splitlines()[0] if answer.strip() else "no answer"
        raise EnvironmentProblem(f"Spark 4 needs Java {OLDEST_JAVA} or newer", got=f"{found}: {said}", hint=hint)
    return Path(found)


def check_spark(version: str) -> None:
    """Refuse a Spark that is too old."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_SPARK:
        raise EnvironmentProblem(
            f"Streamshed needs Spark {OLDEST_SPARK[0]}.{OLDEST_SPARK[1]} or newer",
            got=f"Spark {version}",
            hint="install pyspark>=4.0 and connect to a cluster of that version",
        )


def local_session(name: str, master: str = "local[*]", silent: bool = False, /, **settings: str) -> SparkSession:
    """A quiet Spark on this machine, for the demo and the benchmarks.

    `silent`: not even what Java and Spark say while they start comes to the screen, unless they cannot.
    """
    check_java()
    # Python workers must be this interpreter, with this package, whatever python3 is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.log.level": "ERROR",
        # Over TCP each task with Python in it begins with a wait of some 40 ms: what is sent in two writes is
        # held back until the first is acknowledged.
        "spark.python.unix.domain.socket.enabled": str(os.name == "posix").lower(),
    }
    for key, value in (defaults | settings).items():
        builder = builder.config(key, value)
    if silent and SparkContext._gateway is None:
        conf = SparkConf().setMaster(master).setAppName(name).setAll(list((defaults | settings).items()))
        SparkContext._ensure_initialized(gateway=_silent_gateway(conf))
    return builder.getOrCreate()


def _silent_gateway(conf: SparkConf) -> Any:
    """Start Spark's JVM with its words going to a file."""
    with tempfile.TemporaryFile() as words:
        try:
            return launch_gateway(conf, {"stderr": words})
        except Exception as error:
            words.seek(0)
            said = words.read().decode(errors="replace").strip()
            raise EnvironmentProblem("Spark could not be started", got=f"{error}\n{said}") from error


def leave_spark() -> None:
    """Stop the Spark of this process, if it has one, without a word on the screen.

    Spark closes the sockets of its idle Python workers before it ends the daemon that started them. Over Unix
    domain sockets, which `local_session` turns on, a worker that wakes up in between finds nobody to write to, and
    its BrokenPipeError goes to the user's screen. So the daemons go first: they take their workers with them.
    """
    context = SparkContext._active_spark_context
    if context is None:
        return
    with contextlib.suppress(Exception):  # workers that cannot be found must not keep Spark from stopping
        for daemon in python_daemons(context):
            daemon.destroy()
            daemon.onExit().get(_DAEMON_ENDS, context._jvm.java.util.concurrent.TimeUnit.SECONDS)  # type: ignore[union-attr]
    (SparkSession._instantiatedSession or context).stop()


def python_daemons(context: SparkContext) -> list[Any]:
    """The processes that the driver's JVM started for Python workers, as Java's `ProcessHandle`s."""
    module = context.getConf().get("spark.python.daemon.module", "pyspark.daemon")
    jvm: Any = context._jvm
    children = jvm.java.lang.ProcessHandle.current().children().toArray()
    return [child for child in children if f" {module}" in child.info().commandLine().orElse("")]
