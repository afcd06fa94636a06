"""Reading journals."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from streamshed.quality.history_log import collected, read_history


def test_older_lines_come_first_whatever_the_order_of_the_files() -> None:
    files = {
        "b.history.jsonl": b'{"n": 3}\n',
        "a.history.jsonl": b'{"n": 2}\n\xff\n',
        "a.history.1.jsonl": b'{"n": 1}\n',
        "a.json": b'{"n": 0}\n',
    }
    assert collected(files, files.get) == {"a": [{"n": 1}, {"n": 2}], "b": [{"n": 3}]}


def test_a_journal_of_which_only_the_older_file_is_left() -> None:
    assert collected(["a.history.1.jsonl"], {"a.history.1.jsonl": b'{"n": 1}'}.get) == {"a": [{"n": 1}]}


def test_lines_without_a_time_are_left_out_and_one_without_a_zone_is_utc(tmp_path: Path) -> None:
    (tmp_path / "streamshed").mkdir()
    (tmp_path / "streamshed" / "a.history.jsonl").write_text(
        '{"time": "2026-01-02T03:04:05", "keep": true}\n{"keep": 0.5}\n{"time": 7}\n'
        '{"time": "2026-01-01T00:00:00Z"}\n'
    )
    entries = read_history(tmp_path)
    assert [entry.at for entry in entries] == [
        datetime(2026, 1, 1, tzinfo=timezone.utc),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    ]
    assert entries[1].number("keep") is None
