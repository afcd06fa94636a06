"""`streamshed history`: what was shed, when and why, read without Spark or Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest


def line(minutes_ago: float, **what: Any) -> str:
    at = (datetime.now(timezone.utc) - timedelta(minutes=minutes_ago)).isoformat(timespec="milliseconds")
    return json.dumps({"time": at, **what}, separators=(",", ":")) + "\n"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "job.checkpoint" / "streamshed"
    folder.mkdir(parents=True)
    reason = "a batch would take 9.1 s and may take 4.0 s"
    (folder / "shed-1.history.1.jsonl").write_text(line(600, keep=1.0, reason="[started]", arrived=500, shed=0))
    (folder / "shed-1.history.jsonl").write_text(
        line(30, keep=0.25, reason=reason, mode="enforce", arrived=1000, kept=400, shed=600, latency=9.126)
        + "[1, 2]\nnot JSON\n"
        + line(10, keep=0.5, arrived=2000, kept=1500)
        + '{"time": "yester'  # cut off by a crash
    )
    (folder / "other.history.jsonl").write_text(line(20, keep=0.9, reason="calm", shed=1))
    (folder / "shed-1.control.json").write_text("{}")
    return folder.parent


def history(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process that could start no Java."""
    command = [sys.executable, "-m", "streamshed.cli.app", "history", *map(str, arguments)]
    # As wide as its lines are: what is told of here is what they say, not how a narrow screen folds them.
    env = {**os.environ, "JAVA_HOME": "/nowhere", "TZ": "UTC", "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def test_lines_are_shown_in_the_order_of_time_with_totals(checkpoint: Path) -> None:
    done = history(checkpoint)
    assert done.returncode == 0, done.stderr
    heads, *rows, total = done.stdout.splitlines()
    assert heads.split() == ["time", "name", "keep", "arrived", "shed", "latency", "reason"]
    assert [row.split()[2] for row in rows] == ["shed-1", "shed-1", "other", "shed-1"]
    assert [" ".join(row.split()[3:]) for row in rows] == [
        "1.000 500 0 [started]",
        "0.250 1,000 600 9.13 s a batch would take 9.1 s and may take 4.0 s",
        "0.900 1 calm",
        "0.500 2,000 500",
    ]
    shown = datetime.strptime(rows[1][:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
    assert timedelta(minutes=30) <= datetime.now(timezone.utc) - shown < timedelta(minutes=35)
    assert total == "4 lines: 3,500 rows arrived, 1,101 were shed (31.5%)"


def test_since_and_name_choose(checkpoint: Path) -> None:
    done = history(checkpoint, "--since", "1 hour", "--name", "shed-1", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert [(entry["name"], entry["keep"]) for entry in lines] == [("shed-1", 0.25), ("shed-1", 0.5)]
    assert lines[0]["mode"] == "enforce"
    assert lines[0]["latency"] == 9.126
    assert "1 line in the last 15 min: 2,000 rows" in history(checkpoint, "--since", "15 min").stdout
    assert history(checkpoint, "--since", "1 second").stdout == "nothing was noted in the last 1 second\n"


def test_the_folder_inside_the_checkpoint_will_do(checkpoint: Path) -> None:
    assert history(checkpoint / "streamshed").stdout == history(f"file://{checkpoint}").stdout != ""


def test_what_is_wrong_is_said(checkpoint: Path, tmp_path: Path) -> None:
    for arguments, words in (
        ((tmp_path / "none",), ["no such checkpoint folder", str(tmp_path / "none")]),
        ((tmp_path,), ["no journal", str(tmp_path / "streamshed" / "NAME.history.jsonl")]),
        ((checkpoint, "--since", "later"), ["--since must be a length of time", "'later'"]),
        ((checkpoint, "--name", "nobody"), ["no journal of this name", "other, shed-1"]),
        (("s3a://bucket/job",), ["folders of this machine", "s3a://bucket/job"]),
    ):
        done = history(*arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        for word in words:
            assert word in done.stderr
