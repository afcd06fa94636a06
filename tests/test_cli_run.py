"""`streamshed run` and `calibrate`, as a user calls them: in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamshed.network import spec

pytestmark = pytest.mark.cluster

SPEC = """
network: small
sources:
  s:
    schema: "id LONG, v DOUBLE"
    read: {{format: text, options: {{path: {folder}/in}}}}
    parse: json
    values: {{v: [0, 100]}}
boxes:
  half: {{op: filter, input: s, where: "v >= 50", selectivity: 0.9}}
  shape: {{op: map, input: half, select: {{id: id, w: "v * 2"}}}}
outputs:
  big: {{input: shape, write: {{format: json, options: {{path: {folder}/out}}}}}}
  all: {{input: s, write: {{format: noop}}}}
"""


def streamshed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamshed.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    rows = "".join(json.dumps({"id": i, "v": i % 100}) + "\n" for i in range(1000))
    (tmp_path / "in" / "0.json").write_text(rows)
    path = tmp_path / "small.yaml"
    path.write_text(SPEC.format(folder=tmp_path))
    return path


def test_run_goes_on_where_it_stopped(network: Path, tmp_path: Path) -> None:
    for expected in (500, 1000):
        done = streamshed("run", str(network), "--once", "--json", "--master", "local[2]")
        assert done.returncode == 0, done.stderr[-2000:]
        report = json.loads(done.stdout.splitlines()[-1])
        assert report["delivered"] == {"big": expected, "all": 2 * expected}
        assert set(report["shed"].values()) == {0}
        (tmp_path / "in" / "1.json").write_text((tmp_path / "in" / "0.json").read_text())
    written = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.open()]
    assert len(written) == 1000
    assert all(row["w"] >= 100 for row in written)


def test_run_says_what_is_wrong(network: Path) -> None:
    network.write_text(network.read_text().replace("format: noop", "format: wax"))
    done = streamshed("run", str(network), "--once", "--master", "local[2]")
    assert done.returncode == 2
    assert "outputs.all.write" in done.stderr
    assert "wax" in done.stderr
    assert "Traceback" not in done.stderr


def test_calibrate_measures_every_box(network: Path, tmp_path: Path) -> None:
    out = tmp_path / "measured.yaml"
    done = streamshed(
        "calibrate", str(network), "--sample", str(tmp_path / "in"), "--out", str(out), "--master", "local[2]"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    measured = spec.load(out)
    boxes = {box.name: box for box in measured.boxes}
    assert boxes["half"].selectivity == 0.5
    assert boxes["shape"].selectivity == 1.0
    assert all(box.cost > 0 for box in boxes.values())
    assert "half" in done.stdout
    (source,) = measured.sources
    assert source.parse is not None
    assert source.parse["cost"] > 0
    assert "s (parse)" in done.stdout
