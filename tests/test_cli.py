"""The command line, as a user types it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def streamshed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamshed.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_help_names_the_commands() -> None:
    done = streamshed("--help")
    assert done.returncode == 0
    for command in ("demo", "bench", "plan", "simulate", "experiment", "network"):
        assert command in done.stdout


def test_bench_list() -> None:
    done = streamshed("bench", "list")
    assert done.returncode == 0
    for name in ("overhead", "latency", "burst", "drain", "road-map", "simulator"):
        assert name in done.stdout


def test_an_unknown_benchmark_is_a_message_and_no_traceback() -> None:
    done = streamshed("bench", "speed")
    assert done.returncode == 2
    assert "there is no such benchmark" in done.stderr
    assert "overhead" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bound_that_is_none() -> None:
    done = streamshed("demo", "--latency", "fast")
    assert done.returncode == 2
    assert "length of time above 0" in done.stderr


@pytest.mark.parametrize(
    ("java_home", "message"),
    [("/nowhere", "unset it, or set it to a Java 17 or newer")],
)
def test_make_says_what_to_do_about_java(java_home: str, message: str) -> None:
    done = subprocess.run(
        ["sh", str(ROOT / "scripts" / "ensure-java")],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "JAVA_HOME": java_home},
        check=False,
    )
    assert done.returncode == 1
    assert message in done.stderr


def test_the_package_imports_without_spark() -> None:
    code = "import streamshed, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
