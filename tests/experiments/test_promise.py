"""Plans against the simulator: what the experiment finds on a few networks, and what `streamshed check` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamshed.cli.app import app
from streamshed.lab.experiments import promise
from tests.network.test_spec import EXAMPLE


def test_plans_keep_their_promises(tmp_path: Path) -> None:
    rows = promise.measure(1, 5, lambda *step: None, networks=4, policies=["input-uniform", "lsrm-semantic"])
    assert {row.network for row in rows} == {0, 1, 2, 3}
    assert promise.within(rows, 2.0) >= 99
    assert promise.worst_load(rows) <= 1.01
    assert "estimated" in {row.certainty for row in rows}
    promise.draw(rows, tmp_path / "promise.png")
    assert (tmp_path / "promise.png").stat().st_size > 0


@pytest.mark.parametrize("policy", ["lsrm-random", "lsrm-semantic"])
def test_check_compares_claimed_and_delivered(policy: str) -> None:
    arguments = ["check", str(EXAMPLE), "--policy", policy, "--excess", "2", "--seconds", "5", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["load"] == pytest.approx(told["load_claimed"], rel=0.02)
    for each in told["outputs"].values():
        assert each["delivered"] == pytest.approx(each["claimed"], abs=2.0)
        assert each["utility"] == pytest.approx(each["utility_claimed"], abs=0.03)
        assert each["why"] == ""
    assert told["outputs"]["headquarters"]["is"] == "unknown"


def test_check_names_the_cause(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        """
network: wrong
sources:
  a: {schema: "x DOUBLE", rate: 1000, values: {x: [0, 100]}}
  b: {schema: "x DOUBLE", rate: 1000, values: {x: [50, 150]}}
boxes:
  u: {op: union, inputs: [a, b], cost: 1.0e-3}
  f: {op: filter, input: u, where: "x + 0 * x > 60", cost: 1.0e-3, selectivity: 0.9}
outputs:
  o: {input: f}
capacity: 1.0
"""
    )
    result = CliRunner().invoke(app, ["check", str(file), "--policy", "input-random", "--seconds", "5"])
    assert result.exit_code == 0, result.output
    assert "the spec says 0.9" in " ".join(result.output.split())
