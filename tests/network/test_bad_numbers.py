"""Bad input that was once a traceback, taken without a word, or explained with something misleading."""

import pytest
from typer.testing import CliRunner

from streamshed.cli.app import app, main
from streamshed.cli.plan import numbers_of
from streamshed.errors import InvalidArgument
from streamshed.network.graph import InvalidNetwork
from streamshed.network.spec import dissp_xml as xml
from streamshed.network.spec import yaml as spec
from streamshed.sim.scenario import Scenario

SPEC = """
network: n
sources:
  s: {schema: "value DOUBLE", rate: 100, values: {value: [0, 100]}}
boxes:
  f: {op: filter, input: s, where: "value > 50", cost: 0.01, selectivity: 0.5}
outputs:
  o: {input: f}
capacity: 1.0
"""


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("change", "to", "says"),
    [
        ("rate: 100", "rate: " + "9" * 5000, r"sources\.s\.rate: too long a number\n +got: +5000 digits"),
        ("rate: 100", "rate: " + "9" * 400, "at most 1e\\+300"),
        ("rate: 100", "rate: 1.0e308", "at most 1e\\+100"),
        ("cost: 0.01", "cost: 1.0e308", "at most 1e\\+100"),
        ("selectivity: 0.5", "selectivity: 2", "from 0 to 1"),
        ("selectivity: 0.5", "selectivity: 30", "from 0 to 1"),
        ("value > 50", "value > 'abc'", "compared with a text"),
        ("value > 50", "value > " + "9" * 400, r"boxes\.f\.where: too large a number"),
        ("value: [0, 100]", "value: [-1.7e+308, 1.7e+308]", r"sources\.s\.values\.value: out of bounds"),
    ],
)
def test_the_place_and_what_is_allowed_are_named(change, to, says):
    with pytest.raises(InvalidArgument, match=says):
        spec.parse(SPEC.replace(change, to))


def test_a_box_with_an_outputs_name_is_still_a_box():
    with pytest.raises(InvalidNetwork) as error:
        spec.parse(SPEC.replace("  o: {input: f}", "  f: {input: f}"))
    assert [problem.problem for problem in error.value.problems] == ["the name is taken"]


@pytest.mark.parametrize(
    ("change", "to", "place"),
    [
        ("network: n", 'network: "a\\e[31mred"', "network"),
        ("  f: {", '  g: {op: map, input: s, select: {"a\\e[31mred": value}}\n  f: {', "boxes.g.select"),
        ("input: f}", 'input: f, sic: "a\\e[31mred"}', "outputs.o.sic"),
    ],
)
def test_names_that_cannot_be_printed_are_refused_everywhere(change, to, place):
    with pytest.raises(InvalidNetwork) as error:
        spec.parse(SPEC.replace(change, to))
    (problem,) = error.value.problems
    assert problem.path.startswith(place)
    assert problem.problem == "not a usable name"
    assert "\x1b" not in str(error.value)


def test_escapes_in_texts_that_rows_are_compared_with_are_shown(tmp_path):
    """Such a text can be right, so it is not refused."""
    file = tmp_path / "text.yaml"
    protect = """city STRING", protect: "city = 'O\\e[31mslo'", protected: 0.1"""
    file.write_text(SPEC.replace('value DOUBLE"', f"value DOUBLE, {protect}"))
    result = run("plan", file, "--policy", "lsrm-semantic", "--excess", "0.5")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "O\\x1b[31mslo" in "".join(result.output.split())
    where = SPEC.replace('schema: "value DOUBLE', 'schema: "city STRING').replace(
        ", values: {value: [0, 100]}", ""
    )
    file.write_text(where.replace("value > 50", "city = 'O\\e[31mslo'"))
    assert "O\\x1b[31mslo" in run("network", "draw", file).output


def test_escapes_in_a_files_name_are_shown():
    result = run("plan", "no\x1b[31msuch.yaml")
    assert result.exit_code == 2
    assert "no\\x1b[31msuch.yaml" in result.output


def test_escapes_are_shown_and_not_sent():
    text = SPEC.replace("  f: {", '  "a\\e[31mred": {').replace("input: f", 'input: "a\\e[31mred"')
    with pytest.raises(InvalidNetwork) as error:
        spec.parse(text)
    assert "\x1b" not in str(error.value)
    assert "a\\x1b[31mred" in str(error.value)


@pytest.mark.parametrize("command", ["plan", "check", "simulate"])
def test_a_name_is_no_markup(tmp_path, command):
    file = tmp_path / "markup.yaml"
    file.write_text(SPEC.replace("  o: {input: f}", '  "o[/x]": {input: f}'))
    options = ["--policy", "lsrm-random", "--excess", "0.5"] + ([] if command == "plan" else ["--seconds", "2"])
    result = run(command, file, *options)
    assert result.exit_code == 0, result.output
    assert "o[/x]" in result.output


def test_a_name_has_one_number():
    with pytest.raises(InvalidArgument, match="twice"):
        numbers_of("s=1,s=2")


@pytest.mark.parametrize("options", [{"overload": 1e9}, {"seconds": 1e9}, {"seconds": float("inf")}])
def test_what_would_never_end_is_not_begun(options):
    with pytest.raises(InvalidArgument):
        Scenario.of(spec.parse(SPEC), **options)


@pytest.mark.parametrize("rate", ["1e308", "inf", "nan", "-1", "9" * 5000])
def test_a_rate_is_a_finite_number(tmp_path, rate):
    file = tmp_path / "n.yaml"
    file.write_text(SPEC)
    result = run("plan", file, "--rates", f"s={rate}")
    assert result.exit_code == 2
    assert "the rate of 's' is out of bounds" in result.output
    assert "0 or more, at most 1e+100" in result.output


def test_an_excess_is_finite(tmp_path):
    file = tmp_path / "n.yaml"
    file.write_text(SPEC)
    result = run("plan", file, "--excess", "inf")
    assert result.exit_code == 2
    assert "finite" in result.output


def test_a_parameter_given_twice_and_a_loop_of_windows_are_named():
    text = """<query name="q"><schema name="t"><field type="long" name="ts"/></schema>
    <operator name="a" type="Input"><next name="w"/><parameter name="tuple" value="t"/>
      <parameter name="rate" value="1"/><parameter name="rate" value="2"/></operator>
    <operator name="w" type="TimeWindow"><next name="v"/></operator>
    <operator name="v" type="TimeWindow"><next name="w"/><next name="o"/></operator>
    <operator name="o" type="Output"/></query>"""
    with pytest.raises(InvalidNetwork) as error:
        xml.parse(text)
    assert [problem.problem for problem in error.value.problems] == [
        "the parameter is given twice",
        "the operators form a loop",
    ]
    assert "w -> v -> w" in str(error.value)


@pytest.mark.parametrize("options", [("--overload", "1e9"), ("--seconds", "1e9")])
def test_the_command_says_that_it_would_never_end(tmp_path, options, monkeypatch, capsys):
    file = tmp_path / "n.yaml"
    file.write_text(SPEC)
    monkeypatch.setattr("sys.argv", ["streamshed", "simulate", str(file), "--policy", "lsrm-random", *options])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "error: more than can be simulated" in capsys.readouterr().err


def test_a_box_named_like_markup_is_printed_as_it_is(tmp_path):
    file = tmp_path / "box.yaml"
    file.write_text(SPEC.replace("  f: {", '  "a[/x]": {').replace("input: f", 'input: "a[/x]"'))
    result = run("plan", file, "--policy", "lsrm-random", "--excess", "0.5")
    assert result.exit_code == 0, result.output
    assert "a[/x]" in result.output
