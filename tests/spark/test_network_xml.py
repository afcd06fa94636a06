"""DISSP's XML on Spark: a query like its listings, from files to files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import streamshed as ss
from streamshed.cli.bindings import bound_to_places
from streamshed.network.spec import dissp_xml
from tests.spark.helpers import delivered
from tests.spark.plain import answers

pytestmark = pytest.mark.spark

START = 1_767_225_600_000
"""Milliseconds: the start of 2026."""

# Listings 4.1 and 4.2, a filter before the window and a terminal that is no output; the timestamp is a long.
QUERY = """
<query name="cpu">
  <schema name="simpleSchemaONE">
    <field type="long" name="ts"/> <field type="double" name="idx"/> <field type="double" name="cpu"/>
  </schema>
  <operator name="MyInput" type="Input">
    <next name="MyFilter"/> <parameter name="tuple" value="simpleSchemaONE"/>
  </operator>
  <operator name="MyFilter" type="Filter">
    <next name="MyWindow"/> <parameter name="condition" value="cpu &gt; 20"/>
  </operator>
  <operator name="MyWindow" type="TimeWindow">
    <next name="MyAvgCpu"/> <parameter name="size" value="5 seconds"/>
  </operator>
  <operator name="MyAvgCpu" type="Average">
    <next name="MyOutput"/>
    <parameter name="tuple" value="simpleSchemaONE"/>
    <parameter name="field" value="cpu"/> <parameter name="groupby" value="idx"/>
  </operator>
  <operator name="MyOutput" type="Output"/>
  <operator name="Hot" type="Filter"><parameter name="condition" value="cpu &gt; 90"/></operator>
</query>
""".replace('<next name="MyFilter"/>', '<next name="MyFilter"/> <next name="Hot"/>')


def fill(folder: Path, seconds: int = 60) -> None:
    """A row for each of ten machines every half second."""
    folder.mkdir()
    rows = (
        {"ts": START + 500 * tick, "idx": float(machine), "cpu": float((tick * 37 + machine * 11) % 101)}
        for tick in range(2 * seconds)
        for machine in range(10)
    )
    (folder / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rounded(rows: list[Row]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(round(value, 9) if isinstance(value, float) else value for value in row) for row in rows)


def test_a_query_in_xml_runs_from_files_to_files(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "in")
    network = bound_to_places(
        dissp_xml.parse(QUERY),
        [f"MyInput=json:{tmp_path}/in"],
        [f"MyOutput=parquet:{tmp_path}/averages", f"Hot_output=json:{tmp_path}/hot"],
    )
    with ss.run(
        spark, network, latency="1 hour", state=str(tmp_path / "state"), trigger={"availableNow": True}
    ) as running:
        running.await_termination()
    read = spark.read.schema("ts LONG, idx DOUBLE, cpu DOUBLE").json(str(tmp_path / "in"))
    expected = answers(network, {"MyInput": read.withColumn("ts", F.timestamp_millis("ts"))})
    averages = rounded(spark.read.parquet(str(tmp_path / "averages")).collect())
    # A window whose end the watermark has not passed is not out yet; all others are as a batch query has them.
    last = max(row[1] for row in averages)
    assert averages == Counter(
        {row: times for row, times in rounded([*expected["MyOutput"].elements()]).items() if row[1] <= last}
    )
    assert len(averages) == 9 * 10
    hot = spark.read.schema("ts TIMESTAMP, idx DOUBLE, cpu DOUBLE").json(str(tmp_path / "hot")).collect()
    assert Counter(hot) == expected["Hot_output"]
    assert delivered(running.report()) == {"MyOutput": 90, "Hot_output": len(hot)}


JOIN = """
<query name="pairs">
  <schema name="load"><field type="long" name="ts"/><field type="int" name="k"/></schema>
  <schema name="alarm">
    <field type="long" name="at"/><field type="int" name="k"/><field type="double" name="v"/>
  </schema>
  <operator name="loads" type="Input"><next name="both"/><parameter name="tuple" value="load"/></operator>
  <operator name="alarms" type="Input">
    <next name="both"/> <parameter name="tuple" value="alarm"/> <parameter name="timestamp" value="at"/>
  </operator>
  <operator name="both" type="Join">
    <parameter name="on" value="k"/> <parameter name="within" value="2 seconds"/>
  </operator>
</query>
"""


def test_a_join_in_xml_runs_on_the_long_timestamps_of_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    for name, rows in {
        "loads": [{"ts": START + 1000 * i, "k": i % 3} for i in range(30)],
        "alarms": [{"at": START + 2500 * i, "k": i % 3, "v": float(i)} for i in range(12)],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    network = bound_to_places(
        dissp_xml.parse(JOIN),
        [f"{name}=json:{tmp_path}/{name}" for name in ("loads", "alarms")],
        [f"both_output=parquet:{tmp_path}/out"],
    )
    with ss.run(
        spark, network, latency="1 hour", state=str(tmp_path / "state"), trigger={"availableNow": True}
    ) as running:
        running.await_termination()
    read = {
        "loads": spark.read.schema("ts LONG, k INT").json(f"{tmp_path}/loads"),
        "alarms": spark.read.schema("at LONG, k INT, v DOUBLE").json(f"{tmp_path}/alarms"),
    }
    expected = answers(
        network,
        {
            "loads": read["loads"].withColumn("ts", F.timestamp_millis("ts")),
            "alarms": read["alarms"].withColumn("at", F.timestamp_millis("at")),
        },
    )["both_output"]
    assert len(expected) > 10
    assert Counter(spark.read.parquet(f"{tmp_path}/out").select("ts", "k", "at", "v").collect()) == expected
