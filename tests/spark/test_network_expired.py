"""`expired="drop"` in a network on a real Spark: who goes for its age, who stays, and that all is counted."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamshed as ss
from streamshed.network import Builder, Network
from streamshed.network.graph import InvalidNetwork
from tests.spark.helpers import delivered, in_force, wait_for

pytestmark = pytest.mark.spark
SCHEMA = "id LONG, v DOUBLE, kind STRING, at TIMESTAMP"
OLD, YOUNG = 7200.0, 60.0  # seconds; the bound is an hour
AGES: tuple[float | None, ...] = (*[OLD] * 100, *[YOUNG] * 100, -OLD, None)
"""Old ones, young ones, one from the future and one of which nobody knows."""
STAY = set(range(100, 202))


def put(folder: Path, ages: Sequence[float | None] = AGES, first: int = 0) -> None:
    """A file of rows that arrived so many seconds before now; every tenth is of kind k0."""
    now = time.time()
    lines = []
    for i, age in enumerate(ages, first):
        at = None if age is None else datetime.fromtimestamp(now - age, timezone.utc).isoformat()
        lines.append(json.dumps({"id": i, "v": float(i % 100), "kind": f"k{i % 10}", "at": at}))
    folder.mkdir(exist_ok=True)
    (folder / f".{first}").write_text("\n".join(lines) + "\n")
    os.replace(folder / f".{first}", folder / f"{first}.json")


def parsed(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def text(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def fan(*, parse: str | None = None, protect: str | None = None) -> Network:
    """Two outputs that read one source, one of them through a filter that keeps half."""
    builder = Builder("fan", capacity=1.0).source(
        "s", SCHEMA, rate=1000, arrived="at", parse=parse, protect=protect, values={"v": (0, 100)}
    )
    builder.filter("half", "s", "v >= 50", cost=1e-5, selectivity=0.5).output("high", "half")
    return builder.map("named", "s", {"id": "id", "kind": "kind"}, cost=1e-5).output("all", "named").build()


def single(*, parse: str | None = None, protect: str | None = None) -> Network:
    builder = Builder("single", capacity=1.0).source(
        "s", SCHEMA, rate=1000, arrived="at", parse=parse, protect=protect
    )
    return builder.filter("some", "s", "v >= 0", cost=1e-5, selectivity=1.0).output("out", "some").build()


def two() -> Network:
    """Two sources in one query."""
    builder = Builder("two", capacity=1.0).source("s", SCHEMA, rate=1000, arrived="at")
    builder.source("t", SCHEMA, rate=1000, arrived="at").union("both", ["s", "t"], cost=1e-5)
    return builder.output("out", "both").build()


def counting(*, parse: str | None = None, protect: str | None = None) -> Network:
    """A window: a query with state."""
    builder = Builder("counting", capacity=1.0).source(
        "s", SCHEMA, rate=1000, arrived="at", watermark="1 day", parse=parse, protect=protect
    )
    builder.aggregate("w", "s", "1000 days", {"n": "count(*)", "least": "min(id)"}, cost=1e-5)
    return builder.output("counts", "w", write={"mode": "update"}).build()


def start(
    spark: SparkSession, network: Network, rows: Mapping[str, DataFrame], folder: Path, **settings: object
) -> ss.RunningNetwork:
    return ss.run(
        spark,
        network,
        sources=rows,
        sinks={output.name: "memory" for output in network.outputs},
        latency="1 hour",
        state=str(folder / "state"),
        **{"expired": "drop", **settings},  # type: ignore[arg-type]
    )


def run_all(spark: SparkSession, network: Network, folder: Path, **settings: object) -> ss.RunningNetwork:
    """What there is, through a network."""
    raw = any(source.parse is not None for source in network.sources)
    rows = {
        source.name: text(spark, folder / source.name) if raw else parsed(spark, folder / source.name)
        for source in network.sources
    }
    running = start(spark, network, rows, folder, trigger={"availableNow": True}, **settings)
    running.await_termination()
    return running


def ids(running: ss.RunningNetwork, output: str) -> set[int]:
    return {row.id for row in running.rows(output)}


def assert_balanced(report: ss.Report) -> None:
    assert report.arrived == report.kept + report.thinned + report.cut + report.expired
    for rows in (*report.by_arc.values(), *report.by_source.values()):
        assert min(rows.thinned, rows.cut, rows.expired) >= 0
        assert rows.arrived == rows.passed + rows.thinned + rows.cut + rows.expired


@pytest.mark.parametrize("parse", [None, "json"])
def test_rows_older_than_the_bound_go_first_for_all_readers(
    spark: SparkSession, tmp_path: Path, parse: str | None
) -> None:
    put(tmp_path / "s")
    running = run_all(spark, fan(parse=parse), tmp_path)
    assert ids(running, "all") == STAY
    assert ids(running, "high") == {i for i in STAY if i % 100 >= 50}
    report = running.report()
    assert (report.arrived, report.kept, report.expired, report.thinned, report.cut) == (202, 102, 100, 0, 0)
    assert {on: report.by_arc[on].expired for on in ("s->half", "s->named")} == {"s->half": 100, "s->named": 100}
    assert delivered(report) == {"all": 102, "high": 50}
    assert_balanced(report)


@pytest.mark.parametrize("parse", [None, "json"])
def test_protected_rows_of_a_network_pass_at_any_age(
    spark: SparkSession, tmp_path: Path, parse: str | None
) -> None:
    put(tmp_path / "s")
    running = run_all(spark, single(parse=parse, protect="kind = 'k0'"), tmp_path)
    assert ids(running, "out") == STAY | set(range(0, 100, 10))
    report = running.report()
    assert (report.arrived, report.kept, report.expired) == (202, 112, 90)
    assert_balanced(report)


def test_an_arrival_time_beside_the_raw_text_spares_the_parse(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "s")
    lines = text(spark, tmp_path / "s").selectExpr("value", "CAST(get_json_object(value, '$.at') AS TIMESTAMP) at")
    running = start(spark, fan(parse="json"), {"s": lines}, tmp_path)
    running.process_all_available()
    (query,) = running._queries.values()
    assert query.expiry.at["s"].raw
    running.stop()
    assert ids(running, "all") == STAY
    report = running.report()
    assert (report.arrived, report.kept, report.expired) == (202, 102, 100)
    assert_balanced(report)


def test_each_of_several_sources_loses_its_own(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "s")
    put(tmp_path / "t", [OLD] * 30 + [YOUNG] * 70, first=1000)
    running = run_all(spark, two(), tmp_path)
    assert ids(running, "out") == STAY | set(range(1030, 1100))
    report = running.report()
    assert {name: rows.expired for name, rows in report.by_source.items()} == {"s": 100, "t": 30}
    assert {name: rows.arrived for name, rows in report.by_source.items()} == {"s": 202, "t": 100}
    assert_balanced(report)


@pytest.mark.parametrize(("parse", "protect"), [(None, None), (None, "kind = 'k0'"), ("json", None)])
def test_a_query_with_state_drops_the_old_at_its_source(
    spark: SparkSession, tmp_path: Path, parse: str | None, protect: str | None
) -> None:
    # One file that Spark can put a window around: a row from nowhere is in none.
    put(tmp_path / "s", [OLD] * 100 + [YOUNG] * 50)
    running = run_all(spark, counting(parse=parse, protect=protect), tmp_path)
    stay = {*range(100, 150)} | ({*range(0, 100, 10)} if protect else set())
    assert sum(row.n for row in running.rows("counts")) == len(stay)
    assert min(row.least for row in running.rows("counts")) == min(stay)
    report = running.report()
    assert (report.arrived, report.kept, report.expired) == (150, len(stay), 150 - len(stay))
    assert_balanced(report)


@pytest.mark.parametrize("network", [fan(), fan(parse="json"), counting()], ids=["fused", "parsed", "stateful"])
def test_all_reasons_at_once_add_up(spark: SparkSession, tmp_path: Path, network: Network) -> None:
    (tmp_path / "s").mkdir()
    raw = network.sources[0].parse is not None
    rows = text(spark, tmp_path / "s") if raw else parsed(spark, tmp_path / "s")
    running = start(spark, network, {"s": rows}, tmp_path, floor=0.0)
    drops = [ss.Drop(on, 0.5) for on in network.arcs_out_of("s")]
    running.pin(drops, budget="1 ms", grace=20)
    in_force(running)
    put(tmp_path / "s", [OLD, YOUNG] * 500)
    running.process_all_available()
    running.stop()
    report = running.report()
    assert report.arrived == 1000
    assert min(report.kept, report.cut) > 0
    if raw:
        # Only the parsed row says how old it is: some went before that, for other reasons.
        assert 0 < report.expired <= 500
    else:
        assert report.expired == 500
    assert_balanced(report)


@pytest.mark.parametrize("setting", ["keep", "dry-run", "set"])
def test_rows_that_are_old_are_rows_like_others_unless_asked(
    spark: SparkSession, tmp_path: Path, setting: str
) -> None:
    settings: dict[str, object] = {"expired": "keep" if setting == "keep" else "drop"}
    if setting == "dry-run":
        settings["mode"] = "dry-run"
    (tmp_path / "s").mkdir()
    running = start(spark, single(), {"s": parsed(spark, tmp_path / "s")}, tmp_path, **settings)
    if setting == "set":
        running.expired = "keep"
    put(tmp_path / "s")
    running.process_all_available()
    wait_for(lambda: running.report().arrived == 202)
    assert ids(running, "out") == set(range(202))
    assert running.report().expired == 0
    if setting == "set":
        running.expired = "drop"
        put(tmp_path / "s", [OLD] * 7, first=1000)
        running.process_all_available()
        wait_for(lambda: running.report().arrived == 209)
        assert running.report().expired == 7
    running.close()


def test_a_batch_that_runs_again_has_the_same_age_limit(spark: SparkSession, tmp_path: Path) -> None:
    """The batch's own time counts, and not when it runs."""
    put(tmp_path / "s")
    seen: list[tuple[float | None, set[int]]] = []

    def sink(rows: DataFrame, number: int) -> None:
        (query,) = running._queries.values()
        seen.append((query.expiry.clock.limits.expiry, {row.id for row in rows.collect()}))
        if len(seen) == 1:
            raise ValueError("the sink is away")

    def run() -> ss.RunningNetwork:
        return ss.run(
            spark,
            single(),
            sources={"s": parsed(spark, tmp_path / "s")},
            sinks={"out": sink},
            latency="1 hour",
            expired="drop",
            state=str(tmp_path / "state"),
        )

    running = run()
    wait_for(lambda: running.failure() is not None)
    running.close()
    running = run()
    running.process_all_available()
    running.stop()
    assert seen[0] == seen[1]
    assert seen[0][1] == STAY
    report = running.report()
    assert (report.arrived, report.kept, report.expired) == (202, 102, 100)


def test_sources_that_do_not_tell_the_age_of_rows_are_named(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "s")
    builder = Builder("untold", capacity=1.0).source("s", SCHEMA, rate=1000)
    builder.source("t", "id LONG, at LONG", rate=1000, arrived="at").output("a", "s").output("b", "t")
    network = builder.build()
    with pytest.raises(InvalidNetwork) as error:
        start(spark, network, {"s": parsed(spark, tmp_path / "s")}, tmp_path)
    assert "sources.s.arrived" in str(error.value)
    assert "sources.t.arrived" in str(error.value)
    assert "LONG" in str(error.value)
    assert not (tmp_path / "state").exists()
    with pytest.raises(ss.InvalidArgument, match="no such way with rows"):
        start(spark, single(), {"s": parsed(spark, tmp_path / "s")}, tmp_path, expired="maybe")
    untimed = Builder("untimed", capacity=1.0).source("s", SCHEMA, rate=1000).output("a", "s").build()
    with start(spark, untimed, {"s": parsed(spark, tmp_path / "s")}, tmp_path, expired="keep") as running:
        with pytest.raises(InvalidNetwork, match="needs the time at which rows arrived"):
            running.expired = "drop"
        assert running.expired == "keep"
