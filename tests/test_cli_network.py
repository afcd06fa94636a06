import json

import pytest
import typer
from typer.testing import CliRunner

from streamshed.cli.plan import register
from streamshed.network.generate import NetworkShape, generate
from streamshed.network.spec import yaml as spec
from tests.network.test_spec import EXAMPLE


@pytest.fixture
def run():
    app = typer.Typer()
    register(app)

    def invoke(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return invoke


def test_plan_as_json_has_the_documented_shape(run):
    result = run("plan", EXAMPLE, "--policy", "lsrm-semantic", "--json")
    assert result.exit_code == 0
    plan = json.loads(result.stdout)
    assert list(plan) == ["policy", "load", "limit", "rows", "chosen", "remaining", "certainty", "gap"]
    assert plan["policy"] == "lsrm-semantic"
    assert plan["load"] > plan["limit"] == 1.8
    row = plan["rows"][plan["chosen"]]
    assert list(row) == ["savings", "drops", "delivery", "utility"]
    assert row["delivery"].keys() == row["utility"].keys() == {"medics", "headquarters"}
    assert all(list(drop) == ["at", "keep", "where"] for drop in row["drops"])
    saved = 30000 * row["savings"]["vitals"] + 12000 * row["savings"]["field"]
    assert plan["load"] - saved <= plan["limit"]
    assert plan["remaining"] == 0


@pytest.mark.parametrize("policy", ["lsrm-random", "lsrm-semantic", "optimal", "input-uniform"])
def test_plan_says_how_much_remains_when_dropping_all_is_not_enough(run, policy):
    # A sixteenth of the rows is protected: at thirty times the rates that alone is too much.
    arguments = ["plan", EXAMPLE, "--policy", policy, "--rates", "vitals=900000,field=360000"]
    plan = json.loads(run(*arguments, "--json").stdout)
    row = plan["rows"][plan["chosen"]]
    saved = 900000 * row["savings"]["vitals"] + 360000 * row["savings"]["field"]
    assert plan["remaining"] == pytest.approx(plan["load"] - saved - plan["limit"])
    # By their values, every protected row is an alarm and meets all boxes.
    protected = 1260000 / 16 * (4 + 8 + 10 + 40 + 25) * 1e-6
    assert plan["remaining"] == pytest.approx(protected - plan["limit"])
    assert f"{plan['remaining']:.3g} too much remains" in " ".join(run(*arguments).stdout.split())


@pytest.mark.parametrize("policy", ["none", "random"])
def test_plan_takes_the_base_lines_that_run_and_simulate_take(run, policy):
    plan = json.loads(run("plan", EXAMPLE, "--policy", policy, "--json").stdout)
    assert (plan["chosen"] is None) == (policy == "none")
    assert (plan["remaining"] > 0) == (policy == "none")


def test_plan_without_overload_chooses_nothing(run):
    plan = json.loads(run("plan", EXAMPLE, "--rates", "vitals=100,field=50", "--json").stdout)
    assert plan["chosen"] is None
    assert plan["remaining"] == 0
    assert plan["rows"]


def test_excess_scales_the_load(run):
    plan = json.loads(run("plan", EXAMPLE, "--excess", "0.5", "--policy", "optimal", "--json").stdout)
    assert plan["load"] == pytest.approx(1.5 * plan["limit"])


def test_overload_multiplies_the_rates_of_the_spec(run):
    def load(*arguments):
        return json.loads(run("plan", EXAMPLE, *arguments, "--policy", "optimal", "--json").stdout)["load"]

    assert load("--overload", "3") == pytest.approx(3 * load())


def test_plan_for_people_names_drops_and_outputs(run):
    out = run("plan", EXAMPLE, "--policy", "input-uniform").stdout
    for word in ("input-uniform: load 2.6 exceeds 1.8", "vitals->both", "medics", "headquarters"):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "none.yaml"], "no such file"),
        (["plan", EXAMPLE, "--policy", "best"], "no such policy"),
        (["plan", EXAMPLE, "--rates", "vitals"], "--rates needs a number"),
        (["plan", EXAMPLE, "--rates", "nobody=3"], "no such source"),
        (["plan", EXAMPLE, "--excess", "-2"], "an excess is a share"),
        (["plan", EXAMPLE, "--overload", "0"], "overload must be positive"),
        (["plan", EXAMPLE, "--excess", "1", "--overload", "2"], "both say how much arrives"),
        (["network", "draw", "none.yaml"], "no such file"),
        (["network", "generate", "--queries", "0"], "a network needs a query"),
    ],
)
def test_errors_are_messages_and_exit_code_2(run, arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


def test_draw(run):
    assert run("network", "draw", EXAMPLE).stdout.startswith("triage\n├─ vitals")
    assert run("network", "draw", EXAMPLE, "--mermaid").stdout.startswith("flowchart LR")


def test_generate_prints_a_spec_that_reads_back(run):
    text = run("network", "generate", "--queries", "2", "--boxes", "9", "--shared", "1", "--seed", "5").stdout
    assert spec.parse(text) == generate(NetworkShape(queries=2, boxes=9, shared=1), seed=5)
