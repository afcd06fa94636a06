"""`streamshed run` and `calibrate` as a user calls them.

What is about starting and leaving Spark runs in processes of its own; the rest on the Spark of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from streamshed.cli import app as command_line
from streamshed.cli import run as run_commands
from streamshed.cli.app import app
from streamshed.cli.run import load_text, spark_settings, utility_at
from streamshed.cli.screen import screen
from streamshed.errors import InvalidArgument
from streamshed.network.graph import Output
from streamshed.network.qos import LatencyGraph, LossGraph, QoS, ValueGraph
from streamshed.network.spec import yaml as spec

Done = subprocess.CompletedProcess[str]

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


def streamshed(*words: str, program: tuple[str, ...] = ("-m", "streamshed.cli.app"), **env: str) -> Done:
    """The command in a process of its own."""
    command = [sys.executable, *program, *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **env}
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command in this process: it takes no Spark that is there away, and finds no Java to start one."""
    monkeypatch.setattr(command_line, "_leave_spark", lambda: None)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(run_commands, "_screen", screen())

    def call(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["streamshed", *words])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        told = capsys.readouterr()
        return Done(words, int(ended.value.code or 0), told.out, told.err)

    return call


@pytest.fixture
def on_spark(
    here: Callable[..., Done], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """In this process, in a session of its own of the Spark that is there."""

    def session(name: str, master: str, settings: dict[str, str]) -> SparkSession:
        fresh = spark.newSession()
        fresh.conf.set("spark.sql.adaptive.enabled", "false")
        return fresh

    monkeypatch.setattr(run_commands, "_session", session)
    return here


@pytest.fixture
def network(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    rows = "".join(json.dumps({"id": i, "v": i % 100}) + "\n" for i in range(1000))
    (tmp_path / "in" / "0.json").write_text(rows)
    path = tmp_path / "small.yaml"
    path.write_text(SPEC.format(folder=tmp_path))
    return path


@pytest.mark.cluster
def test_run_goes_on_where_it_stopped(network: Path, tmp_path: Path) -> None:
    for expected in (500, 1000):
        done = streamshed("run", str(network), "--once", "--json", "--master", "local[2]")
        assert done.returncode == 0, done.stderr[-2000:]
        report = json.loads(done.stdout.splitlines()[-1])
        delivered = {name: output["delivered"] for name, output in report["by_output"].items()}
        assert delivered == {"big": expected, "all": 2 * expected}
        assert (report["arrived"], report["shed"]) == (2 * expected, 0)
        (tmp_path / "in" / "1.json").write_text((tmp_path / "in" / "0.json").read_text())
    written = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.open()]
    assert len(written) == 1000
    assert all(row["w"] >= 100 for row in written)


WATCHED = """
import sys
from pyspark import SparkContext
from streamshed.cli import app, run
from streamshed.spark.session import python_daemons

stop = SparkContext.stop

def watched(context):
    print("daemons at the end:", len(python_daemons(context)))
    stop(context)
    print("stopped")

SparkContext.stop = watched
if "interrupt" in sys.argv:
    sys.argv.remove("interrupt")
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt
    run._watch = interrupted
app.main()
"""


@pytest.mark.cluster
def test_run_says_what_is_wrong_and_spark_is_left_in_order_after_an_error_of_ours(network: Path) -> None:
    """Python workers that outlive Spark complain about broken pipes: none may be there when it stops.

    An unknown format makes Spark look for one written in Python, which starts a worker.
    """
    network.write_text(network.read_text().replace("format: noop", "format: wax"))
    done = streamshed("run", str(network), "--once", "--master", "local[2]", program=("-c", WATCHED))
    assert done.returncode == 2
    assert done.stdout.splitlines() == ["daemons at the end: 0", "stopped"]
    assert "outputs.all.write" in done.stderr
    assert "wax" in done.stderr
    assert "DATA_SOURCE_NOT_FOUND" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cluster
def test_spark_is_left_in_order_when_a_run_is_interrupted(network: Path) -> None:
    done = streamshed("run", str(network), "--master", "local[2]", "interrupt", program=("-c", WATCHED))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[0] == "stopping …"
    assert done.stdout.splitlines()[-2:] == ["daemons at the end: 0", "stopped"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--mode", "dry"), "there is no such mode"),
        (("--trigger", "often"), "--trigger must be a length of time"),
        (("--trigger", "1 second", "--once"), "--once has no time between batches"),
        (("--latency", "0"), "--latency must be a length of time"),
        (("--expired", "maybe"), "there is no such way with rows that are too late already"),
        (("--conf", "shuffle=4"), "--conf needs a setting of Spark"),
        (("--packages", "kafka"), "--packages needs group:artifact:version"),
    ],
)
def test_a_bad_option_is_found_before_spark_starts(
    network: Path, options: tuple[str, ...], problem: str, here: Callable[..., Done]
) -> None:
    done = here("run", str(network), *options)
    assert done.returncode == 2
    assert f"error: {problem}" in done.stderr


def test_an_error_is_a_message_and_no_traceback(network: Path) -> None:
    done = streamshed("run", str(network), "--mode", "dry", JAVA_HOME="/nowhere")
    assert done.returncode == 2
    assert "error: there is no such mode" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spark
def test_rows_that_are_too_old_are_dropped_if_asked(
    network: Path, tmp_path: Path, on_spark: Callable[..., Done]
) -> None:
    done = on_spark("run", str(network), "--expired", "drop")
    assert done.returncode == 2
    assert 'sources.s.arrived: expired="drop" needs the time at which rows arrived' in done.stderr
    text = network.read_text().replace('"id LONG, v DOUBLE"', '"id LONG, v DOUBLE, at TIMESTAMP"\n    arrived: at')
    network.write_text(text)
    rows = [{"id": i, "v": i % 100, "at": "2020-01-01T00:00:00Z" if i % 4 == 0 else None} for i in range(1000)]
    (tmp_path / "in" / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = on_spark("run", str(network), "--expired", "drop", "--once", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["arrived"], report["expired"], report["kept"]) == (1000, 250, 750)
    assert report["by_output"]["all"]["delivered"] == 750


def test_what_a_spec_lacks_is_found_before_spark_starts(
    network: Path, tmp_path: Path, here: Callable[..., Done]
) -> None:
    text = network.read_text()
    for old, new, problem in (
        (f"{tmp_path}/in", f"{tmp_path}/none", "sources.s.read: there is no such file or folder"),
        (f"{tmp_path}/in", f"file://{tmp_path}/none", "sources.s.read: there is no such file or folder"),
        (
            f"read: {{format: text, options: {{path: {tmp_path}/in}}}}",
            "",
            "sources.s: nothing says where its rows",
        ),
        (", write: {format: noop}", "", "outputs.all: nothing says where its rows go"),
    ):
        assert old in text
        network.write_text(text.replace(old, new))
        done = here("run", str(network))
        assert done.returncode == 2
        assert problem in done.stderr
    network.write_text(text.replace(f"{tmp_path}/in", f"{tmp_path}/n*ne"))
    done = here("run", str(network))
    assert "Spark needs a Java runtime" in done.stderr, "what only Spark can tell is left to Spark"


def test_calibrate_finds_what_it_lacks_before_spark_starts(
    network: Path, tmp_path: Path, here: Callable[..., Done]
) -> None:
    sample = ("--sample", str(tmp_path / "in"))
    for options, problem in (
        (("--sample", str(tmp_path / "none")), "there is no such file or folder"),
        ((*sample, "--out", str(tmp_path / "none" / "out.yaml")), "--out names a folder that does not exist"),
        ((*sample, "--copies", "0"), "--copies must be 1 or more"),
        ((*sample, "--conf", "x"), "--conf needs a setting of Spark"),
    ):
        done = here("calibrate", str(network), *options)
        assert done.returncode == 2
        assert problem in done.stderr


def test_settings_and_packages_go_to_spark() -> None:
    assert spark_settings(None, None) == {}
    assert spark_settings(["spark.a = b=c", "spark.jars.packages=a:b:1"], "c:d:2, e:f_2.13:3") == {
        "spark.a": "b=c",
        "spark.jars.packages": "a:b:1,c:d:2,e:f_2.13:3",
    }
    for conf, packages in ((["a=1"], None), (["spark.a"], None), ([], "a:b"), ([], "a::1"), ([], "")):
        with pytest.raises(InvalidArgument, match=r"--(conf|packages) needs"):
            spark_settings(conf, packages)


@pytest.mark.cluster
def test_a_spark_that_does_not_start_is_a_message(network: Path) -> None:
    done = streamshed("run", str(network), "--conf", "spark.driver.memory=much", "--master", "local[2]")
    assert done.returncode == 2
    assert "error: Spark did not start" in done.stderr
    assert "spark.driver.memory=much" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cluster
def test_a_pipe_gets_each_table_once_and_late_rows_are_worth_nothing(network: Path) -> None:
    """`big` gets all its rows, but its latency graph gives nothing for them after a microsecond."""
    text = network.read_text().replace(
        "big: {input: shape,", "big: {input: shape, qos: {latency: [[0, 1], [1e-6, 0]]},"
    )
    network.write_text(text)
    conf = ("--conf", "spark.sql.shuffle.partitions=1")
    done = streamshed("run", str(network), "--once", "--master", "local[2]", *conf, COLUMNS="")
    assert done.returncode == 0, done.stderr[-2000:]
    head, _, *blocks = done.stdout.split("\n\n")[0].splitlines() + done.stdout.split("\n\n")[1:]
    assert head.startswith("small · lsrm-semantic · enforce · bound 4 s · load ")
    assert " of 0 core-s/s" not in head
    assert [block.split()[0] for block in blocks] == ["rows", "mean", "source", "output"]
    rows = {line.split()[0]: line.split() for line in blocks[-1].splitlines()}
    assert rows["output"] == ["output", "delivered", "of", "%", "planned", "%", "SIC", "utility"]
    assert rows["big"][1:4] == ["500", "500", "100.0"]
    assert rows["big"][-1] == "0.000"
    assert rows["all"][-1] == "1.000"


def test_a_limit_that_is_not_known_or_nothing_is_said_so() -> None:
    assert load_text(0.576, 0.8) == "load 0.576 of 0.8 core-s/s"
    assert "0 core-s/s" not in load_text(0.576, 0.0).replace("0.576", "x")
    assert "not known" in load_text(0.576, None)


def test_utility_counts_late_rows_as_the_demo_does() -> None:
    loss, late = LossGraph.of([(100, 1.0), (50, 0.9), (0, 0.0)]), LatencyGraph.of([(0, 1.0), (2, 1.0), (4, 0.0)])
    value = ValueGraph.of("x", [(0, 1, 1.0)])

    def utility(qos: QoS, latency: float | None) -> float:
        return utility_at(Output(name="o", input="s", qos=qos), 100.0, 1.0, latency)

    assert utility(QoS(loss=loss), 9.0) == 1.0
    assert utility(QoS(loss=loss, latency=late), None) == 1.0
    assert utility(QoS(loss=loss, latency=late), 1.0) == 1.0
    assert utility(QoS(loss=loss, latency=late), 9.0) == 0.0
    assert utility(QoS(loss=loss, latency=late), 3.0) == pytest.approx(0.9)  # half a row each
    assert utility(QoS(latency=late), 3.0) == pytest.approx(0.5)
    assert utility(QoS(value=value, latency=late), 3.0) == pytest.approx(0.5)


@pytest.mark.spark
def test_calibrate_shows_what_it_writes_and_says_what_it_leaves(
    tmp_path: Path, on_spark: Callable[..., Done]
) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"id": i, "v": i % 100, "at": f"2026-01-01T00:00:{i % 60:02}Z"} for i in range(3000)]
    (tmp_path / "in" / "0.json").write_text("\n".join(map(json.dumps, rows)))
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text("""
network: windows
sources:
  s: {schema: "id LONG, v DOUBLE, at TIMESTAMP", arrived: at, watermark: "10 seconds", read: {format: json}}
boxes:
  third: {op: filter, input: s, where: "v < 33", selectivity: 0.123456}
  none: {op: filter, input: s, where: "v > 1000", cost: 1.23456e-05}
  after_none: {op: filter, input: none, where: "v > 2000", cost: 1.23456e-05, selectivity: 0.123456}
  minutes: {op: aggregate, input: third, window: "1 minute", compute: {n: "count(*)"}, selectivity: 0.7}
outputs:
  o: {input: minutes}
  p: {input: after_none}
""")
    sample = ("--sample", str(tmp_path / "in"))
    done = on_spark("calibrate", str(before), *sample, "--out", str(after))
    assert done.returncode == 0, done.stderr[-2000:]
    boxes = {box.name: box for box in spec.load(after).boxes}
    assert boxes["third"].selectivity == 0.33
    assert boxes["minutes"].selectivity == 0.7
    assert boxes["after_none"].cost == 1.23456e-05
    assert boxes["after_none"].selectivity == 0.123456
    shown = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    for name, box in boxes.items():
        # To the digits that are shown.
        assert float(shown[name][2]) == pytest.approx(box.cost, rel=5e-3)
        assert float(shown[name][4]) == pytest.approx(box.selectivity, rel=5e-4)
    assert "minutes: selectivity left at 0.7; the sample has 0.00101" in done.stdout
    assert "after_none: no row of the sample reaches it; left as it was" in done.stdout


@pytest.mark.spark
def test_calibrate_measures_every_box(network: Path, tmp_path: Path, on_spark: Callable[..., Done]) -> None:
    out = tmp_path / "measured.yaml"
    done = on_spark("calibrate", str(network), "--sample", str(tmp_path / "in"), "--out", str(out))
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


XML = """<query name="hot">
  <schema name="t"><field type="long" name="id"/><field type="double" name="v"/></schema>
  <operator name="readings" type="Input"><next name="hot"/><parameter name="tuple" value="t"/></operator>
  <operator name="hot" type="Filter"><parameter name="condition" value="v &gt;= 50"/></operator>
</query>"""


@pytest.mark.spark
def test_run_takes_a_query_in_xml_and_binds_it(
    network: Path, tmp_path: Path, on_spark: Callable[..., Done]
) -> None:
    query = tmp_path / "hot.xml"
    query.write_text(XML)
    bound = ("--read", f"readings=json:{tmp_path}/in", "--write", f"hot_output=json:{tmp_path}/out")
    done = on_spark("run", str(query), *bound, "--once", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    by_output = json.loads(done.stdout.splitlines()[-1])["by_output"]
    assert {name: output["delivered"] for name, output in by_output.items()} == {"hot_output": 500}
    written = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.open()]
    assert sorted(row["id"] for row in written) == [i for i in range(1000) if i % 100 >= 50]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "nothing says where its rows go"),
        (("--write", "hot_output=noop"), "nothing says where its rows come from"),
        (("--write", "hot=noop"), "--write: the network has no such output"),
        (("--read", "reading=json:in"), "--read: the network has no such source"),
        (("--read", "json:in"), "--read needs NAME=FORMAT:PATH"),
        (("--read", "readings=jsn:in"), "--read readings: no such format"),
        (("--read", "readings=text:in"), "--read readings: text is for sources that have a `parse`"),
        (("--read", "readings=json"), "--read readings: json needs a path"),
        (("--write", "hot_output=console:out"), "--write hot_output: console takes no path"),
        (("--write", "hot_output=noop", "--write", "hot_output=noop"), "--write is given twice"),
        (("--read", "readings=json:/no/where", "--write", "hot_output=noop"), "there is no such file or folder"),
    ],
)
def test_a_bad_binding_is_found_before_spark_starts(
    tmp_path: Path, options: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = tmp_path / "hot.xml"
    query.write_text(XML)
    monkeypatch.setattr("streamshed.cli.run._session", None)  # a Spark that is started fails in another way
    result = CliRunner().invoke(app, ["run", str(query), *options])
    assert isinstance(result.exception, InvalidArgument)
    assert problem in str(result.exception)
