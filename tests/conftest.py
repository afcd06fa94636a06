"""Shared fixtures: one Spark session for the whole run, and the pieces most tests start from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are noisy: nothing here is judged by the clock. And what fails must fail for what was changed: new
# examples are looked for by `make test-all`, and the ones that were found stand beside their tests.
settings.register_profile("streamshed", deadline=None, derandomize="STREAMSHED_EXPLORE" not in os.environ)
settings.load_profile("streamshed")

# Workers must be this interpreter, whatever `python3` is on the PATH.
os.environ["PYSPARK_PYTHON"] = sys.executable

# A test's Spark lives for minutes: what the JVM's second compiler costs never pays, and is half of its CPU time.
# Nor need it load all of Spark anew (scripts/class_archive.py), or look for garbage whenever some classes came.
# The same for the executors that tests start.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xmn256m"
if sys.platform == "linux":
    JAVA += " -Djdk.lang.Process.launchMechanism=VFORK"  # Hadoop starts a `chmod` for each file; see QUICK_FILES
CLASSES = Path(sys.prefix) / "spark-classes.jsa"
if CLASSES.exists() and " " not in str(CLASSES):
    JAVA += f" -XX:SharedArchiveFile={CLASSES} -Xlog:disable"
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA)
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--conf 'spark.executor.extraJavaOptions={JAVA}' pyspark-shell")

# Hadoop has no way to set permissions or follow links but to start `chmod` and `readlink`, three and more for each
# file of a checkpoint: a third of what a small batch costs. This way to write them needs fewer. The Sparks that
# tests start themselves write them as Spark does if it is not told.
QUICK_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager"
}

# A page of Spark's memory has 64 MB in a heap of 3 GB, and each broadcast of a join takes one, however small it
# is. They are given back by a thread that comes after the garbage collector: too late for a heap full of them.
SMALL_PAGES = {"spark.buffer.pageSize": "1m"}


def group_of(item: pytest.Item) -> str | None:
    """What has to run on one worker: all that shares a Spark; Sparks of a file's own, in turn."""
    fixtures = getattr(item, "fixturenames", ())
    for shared in ("executors", "speculating_executors"):
        if shared in fixtures:
            return shared
    if item.get_closest_marker("cluster") is not None:
        return f"cluster-{item.path.stem}"
    if item.get_closest_marker("spark") is None and "spark" not in fixtures:
        return None
    # Two sessions, for two workers, with about as much to do each and little code that both have to compile.
    return "networks" if any(part in item.path.name for part in ("network", "load_aware")) else "spark"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        group = group_of(item)
        if group is None:
            continue
        item.add_marker(pytest.mark.xdist_group(group))
        if getattr(config.option, "loadgroup", False) and hasattr(item, "_id"):
            # pytest-xdist 3.8 writes the group where pytest 9.2 no longer reads it, and then, silently, every test
            # is a group of its own (pytest-xdist issue 1386).
            item._id = type(item._id).parse(f"{item.nodeid}@{group}")
    # What takes long comes first, so that no worker is left with it at the end.
    items.sort(key=lambda item: group_of(item) is None)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from streamshed.lab.bench import kafka
    from streamshed.spark.session import local_session

    # The connector has to be there when Spark starts; tests without Kafka do not notice it.
    # Tasks that run for long tell what they did every second, so that tests need not wait for it.
    beats = {"spark.executor.heartbeatInterval": "1s"}
    jars = {} if kafka.missing() else {"spark.jars": kafka.connector()}
    session = local_session("tests", "local[2]", **jars, **beats, **QUICK_FILES, **SMALL_PAGES)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A Spark with separate executors, for all jobs that want no more of it."""
    from tests.spark.executors import shared

    with shared("plain", tmp_path_factory.mktemp("executors")) as process:
        yield process


@pytest.fixture(scope="session")
def speculating_executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The same with tasks that run twice, for jobs that lose an executor."""
    from tests.spark.executors import shared

    with shared("speculating", tmp_path_factory.mktemp("executors")) as process:
        yield process


@pytest.fixture(scope="session")
def broker() -> Iterator[object]:
    """A Kafka broker for all tests of this worker; they are skipped, aloud, where there is none to be had."""
    from streamshed.lab.bench import kafka

    problem = kafka.missing()
    if problem is not None:
        pytest.skip(f"NO KAFKA: {problem}")
    with kafka.Broker() as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A Spark that has gone takes every test behind it with it: say so, and what it left."""
    report = yield
    if report.failed and (last_words := _jvm_ended()):
        report.sections.append(("Spark's JVM has ended", last_words))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once what failed: a run that is cut off never comes to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = getattr(crash, "message", "").splitlines()[:3]
        print(f"\n{report.when} of {report.nodeid} FAILED: {' / '.join(why)}", file=sys.__stdout__, flush=True)


def _jvm_ended() -> str:
    context = sys.modules.get("pyspark.core.context")
    gateway = getattr(getattr(context, "SparkContext", None), "_gateway", None)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None or process.poll() is None:
        return ""
    crash = Path(f"hs_err_pid{process.pid}.log")
    story = crash.read_text(errors="replace")[:3000] if crash.exists() else "it left no account of a crash"
    return f"exit code {process.returncode} (52: out of memory, negative: a signal); {story}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud that tests were left out, whatever else is on the screen."""
    skipped = [each for each in terminalreporter.stats.get("skipped", []) if "NO KAFKA" in str(each.longrepr)]
    if skipped:
        reason = str(skipped[0].longrepr).partition("NO KAFKA: ")[2].rstrip("')")
        terminalreporter.write_line(f"{len(skipped)} TESTS WITH KAFKA WERE SKIPPED: {reason}", red=True, bold=True)


@pytest.fixture(autouse=True)
def nothing_of_ours_complains(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Failing open is quiet towards the user's job, so the tests must listen for it."""
    yield
    if "complains" not in request.keywords:
        ours = [
            r for r in caplog.get_records("call") if r.name == "streamshed" and "callback" not in r.getMessage()
        ]
        assert not ours, [r.getMessage() for r in ours]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder
