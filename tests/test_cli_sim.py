"""The commands `simulate` and `experiment`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from streamshed.cli.simulate import register
from streamshed.errors import InvalidArgument
from streamshed.lab.experiments import registry
from streamshed.lab.experiments.registry import Experiment, FigureRow, Progress

SPEC = """
network: small
sources:
  s: {schema: "x DOUBLE", rate: 900, values: {x: [0, 100]}}
boxes:
  f: {op: filter, input: s, where: "x > 50", cost: 1.0e-3, selectivity: 0.5}
outputs:
  o: {input: f, qos: {value: {field: x, intervals: [[50, 75, 0.1], [75, 100, 1.0]]}}}
capacity: 1.0
"""


@pytest.fixture
def run() -> Callable[..., str]:
    app = typer.Typer()
    register(app)

    def invoke(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SPEC)
    return str(path)


def test_simulate_prints_the_json_of_the_design(run: Callable[..., str], spec: str) -> None:
    arguments = ("simulate", spec, "--policy", "lsrm-random", "--overload", "2", "--seconds", "10", "--json")
    report = json.loads(run(*arguments))
    assert list(report) == ["policy", "seed", "load", "limit", "dropped", "arrived", "outputs", "jain"]
    assert list(report["outputs"]["o"]) == [
        "expected", "delivered", "tuple_utility", "value_utility", "sic", "latency_mean", "latency_p99",
    ]  # fmt: skip
    assert report["load"] == pytest.approx(1.8, rel=0.05)
    assert report["limit"] == 0.9
    assert 0 < report["dropped"] < report["arrived"]
    assert json.loads(run(*arguments)) == report


def test_excess_means_what_it_means_to_plan(run: Callable[..., str], spec: str) -> None:
    arguments = ("simulate", spec, "--policy", "none", "--seconds", "10", "--arrivals", "constant", "--json")
    report = json.loads(run(*arguments, "--excess", "0.5"))
    assert report["load"] == pytest.approx(1.5 * report["limit"], rel=0.02)
    # The spec's rates make a load of exactly the limit, so that +50 % is 1.5 times the rates.
    assert json.loads(run(*arguments, "--overload", "1.5")) == report


def test_simulated_texts_pass_the_filters_that_ask_for_them(run: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "cities.yaml"
    path.write_text("""
network: cities
sources:
  s: {schema: "city STRING, x DOUBLE", rate: 500}
boxes:
  far: {op: filter, input: s, where: "city = 'Oslo'", selectivity: 0.2}
outputs:
  o: {input: far}
""")
    report = json.loads(run("simulate", str(path), "--policy", "none", "--seconds", "10", "--json"))
    assert report["outputs"]["o"]["delivered"] == pytest.approx(0.2 * report["arrived"], rel=0.1)


@pytest.mark.parametrize("arrivals", ["poisson", "constant", "bursty"])
def test_simulate_prints_a_table(run: Callable[..., str], spec: str, arrivals: str) -> None:
    output = run("simulate", spec, "--policy", "none", "--seconds", "2", "--arrivals", arrivals)
    assert "none: load" in output
    assert "0 dropped" in output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--policy", "best"), "no such policy"),
        (("--policy", "none", "--arrivals", "never"), "no such arrivals"),
        (("--policy", "none", "--overload", "0"), "overload must be positive"),
        (("--policy", "none", "--seconds", "0"), "seconds must be positive"),
        (("--policy", "none", "--excess", "1", "--overload", "2"), "both say how much arrives"),
    ],
)
def test_simulate_refuses_nonsense(
    run: Callable[..., str], spec: str, arguments: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        run("simulate", spec, *arguments)


def test_experiments_are_listed(run: Callable[..., str]) -> None:
    output = run("experiment", "list")
    assert all(name in output for name in registry.names())


def test_an_experiment_writes_its_files(
    run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(runs: int, seed: int, progress: Progress) -> list[FigureRow]:
        progress(1, 1, "counting")
        return [FigureRow(1.0, "", "none", float(seed), float(seed), float(runs))]

    def draw(rows: object, path: Path) -> None:
        path.write_bytes(b"picture")

    tiny = Experiment("tiny", "A tiny one", "nothing", 4, measure, draw)
    monkeypatch.setattr(registry, "find", lambda name: tiny)
    output = run("experiment", "tiny", "--seed", "3", "--runs", "2", "--out", str(tmp_path))
    assert "3.00" in output
    written = json.loads((tmp_path / "tiny.json").read_text())
    assert (written["name"], written["seed"], written["runs"], len(written["rows"])) == ("tiny", 3, 2, 1)
    assert (tmp_path / "tiny.png").exists()
