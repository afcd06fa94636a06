"""The command line, as a user types it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamshed.cli.app import app
from streamshed.errors import StreamshedError

ROOT = Path(__file__).parent.parent


def streamshed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamshed.cli.app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_help_names_the_commands() -> None:
    done = streamshed("--help")
    assert done.returncode == 0
    for command in ("run", "calibrate", "history", "demo", "bench", "plan", "simulate", "experiment", "network"):
        assert command in done.stdout


def test_the_version_is_that_of_the_package() -> None:
    done = streamshed("--version")
    assert done.returncode == 0
    assert done.stdout == f"streamshed {version('streamshed')}\n"


COMMANDS = (("run",), ("plan",), ("simulate", "--policy", "none"), ("calibrate", "--sample", "x"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_spec_that_is_missing_or_a_folder(command: tuple[str, ...], tmp_path: Path) -> None:
    for place, problem in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "a folder, and not a spec")):
        name, *options = command
        assert f"{problem}\n  got:  {place}\n  hint: " in told(name, str(place), *options)


@pytest.mark.parametrize("command", ["run", "plan", "simulate"])
def test_an_unknown_policy_is_told_the_known_ones(command: str) -> None:
    said = told(command, str(ROOT / "examples" / "triage.yaml"), "--policy", "best")
    assert "no such policy" in said
    assert "lsrm-semantic" in said


def told(*arguments: str) -> str:
    """What `main` prints for a command that must fail with an error of ours."""
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, StreamshedError) or result.exit_code == 2
    return result.output + str(result.exception)


def test_a_message_is_shown_as_it_is(tmp_path: Path) -> None:
    """Brackets are no markup, and a long line is not cut: paths are there to be copied."""
    path = tmp_path / ("a-long-name-" * 8 + ".yaml")
    path.write_text(
        'network: n\nsources: {s: {schema: "x DOUBLE"}}\n'
        "boxes: {u: {op: union, inputs: s}}\noutputs: {o: {input: u}}"
    )
    done = streamshed("run", str(path))
    assert done.returncode == 2
    assert f"error: {path} has " in done.stderr
    assert "allowed: [name, …]" in done.stderr


def test_the_drop_in_demo_has_an_overload_of_its_own() -> None:
    done = streamshed("demo", "--drop-in", "--overload", "3")
    assert done.returncode != 0
    assert "--overload goes with the network" in done.stderr + done.stdout


def test_a_picture_with_nowhere_to_go_is_found_before_the_demo(tmp_path: Path) -> None:
    done = streamshed("demo", "--out", str(tmp_path / "none" / "demo.png"))
    assert done.returncode == 2
    assert "a folder that does not exist" in done.stderr


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
