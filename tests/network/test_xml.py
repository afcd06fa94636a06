import pytest

from streamshed.errors import InvalidArgument
from streamshed.network import Builder
from streamshed.network.graph import InvalidNetwork
from streamshed.network.spec import dissp_xml as xml
from streamshed.network.spec import yaml as spec

# DISSP Listing 4.1 (its schema, with the `cpu` that Listing 4.2 averages) and Listing 4.2.
LISTING = """
<query name="cpu">
  <schema name="simpleSchemaONE">
    <field type="long" name="ts" />
    <field type="double" name="idx" />
    <field type="double" name="tmp" />
    <field type="double" name="cpu" />
  </schema>
  <operator name="MyInput" type="Input">
    <next name="MyWindow"/>
    <parameter name="tuple" value="simpleSchemaONE" />
    <parameter name="rate" value="400" />
  </operator>
  <operator name="MyWindow" type="TimeWindow">
    <next name="MyAvgCpu"/>
    <parameter name="size" value="5 seconds" />
  </operator>
  <operator name="MyAvgCpu" type="Average">
    <next name="MyOutput"/>
    <parameter name="tuple" value="simpleSchemaONE" />
    <parameter name="field" value="cpu"/>
    <parameter name="groupby" value="idx"/>
  </operator>
  <operator name="MyOutput" type="Output"/>
</query>
"""


def test_the_listings_read_into_the_same_network_as_the_builder():
    expected = (
        Builder("cpu")
        .source("MyInput", "ts LONG, idx DOUBLE, tmp DOUBLE, cpu DOUBLE", arrived="ts", rate=400, watermark=10)
        .aggregate("MyAvgCpu", "MyInput", "5 seconds", {"cpu": "avg(cpu)"}, by=["idx"])
        .output("MyOutput", "MyAvgCpu")
        .build()
    )
    assert xml.parse(LISTING) == expected


def test_files_that_end_in_xml_are_xml(tmp_path):
    file = tmp_path / "query.xml"
    file.write_text(LISTING)
    assert spec.load(file) == xml.parse(LISTING)


def test_other_operators():
    network = xml.parse(
        """<query><schema name="t"><field type="int" name="k"/><field type="double" name="x"/></schema>
        <operator name="a" type="Input"><next name="f"/><next name="u"/>
          <parameter name="tuple" value="t"/></operator>
        <operator name="f" type="Filter"><next name="u"/><parameter name="condition" value="x &gt; 3"/>
          <parameter name="cost" value="2e-6"/><parameter name="selectivity" value="0.5"/></operator>
        <operator name="u" type="Union"><next name="c"/></operator>
        <operator name="c" type="Count"><next name="o"/></operator>
        <operator name="o" type="Output"/></query>"""
    )
    assert [box.op for box in network.order] == ["filter", "union", "aggregate"]
    assert network.nodes["f"].selectivity == 0.5
    assert [column.name for column in network.schemas["o"]] == ["window_start", "window_end", "rows"]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('type="Average"', 'type="Mean"', "operator.MyAvgCpu.type"),
        ('<next name="MyOutput"/>', '<next name="Nobody"/>', "next"),
        ('<next name="MyOutput"/>', "", "operator.MyOutput"),
        ('name="rate" value="400"', 'name="watermark" value="soon"', "sources.MyInput.watermark"),
        ('name="field" value="cpu"', 'name="field" value="gpu"', "boxes.MyAvgCpu.compute.gpu"),
        ('name="rate" value="400"', 'name="rate" value="fast"', "operator.MyInput.rate"),
        ('name="rate" value="400"', 'name="rite" value="400"', "operator.MyInput.rite"),
        ('type="long" name="ts"', 'type="time" name="ts"', "schema.simpleSchemaONE"),
        ('<operator name="MyOutput" type="Output"/>', '<box name="MyOutput"/>', "box"),
    ],
)
def test_problems_are_named(old, new, path):
    with pytest.raises(InvalidNetwork) as caught:
        xml.parse(LISTING.replace(old, new), "query.xml")
    assert path in [problem.path for problem in caught.value.problems]
    assert str(caught.value).startswith("query.xml has ")


def test_any_operator_without_a_next_is_a_terminal():
    network = xml.parse(
        """<query><schema name="t"><field type="long" name="ts"/><field type="double" name="x"/></schema>
        <operator name="a" type="Input"><next name="f"/><next name="w"/>
          <parameter name="tuple" value="t"/></operator>
        <operator name="f" type="Filter"><parameter name="condition" value="x &gt; 3"/></operator>
        <operator name="w" type="Window"/>
        <operator name="w_output" type="Filter"><parameter name="condition" value="x &gt; 4"/></operator>
        <operator name="b" type="Input"><next name="w_output"/><parameter name="tuple" value="t"/></operator>
        <operator name="c" type="Input"><parameter name="tuple" value="t"/></operator></query>"""
    )
    assert {output.name: output.input for output in network.outputs} == {
        "f_output": "f",
        "w_output_": "a",
        "w_output_output": "w_output",
        "c_output": "c",
    }


def test_a_filter_of_which_nothing_is_known_passes_half():
    text = """<query><schema name="t"><field type="double" name="x"/></schema>
        <operator name="a" type="Input"><next name="f"/><parameter name="tuple" value="t"/></operator>
        <operator name="f" type="Filter"><parameter name="condition" value="x &gt; 3"/>{}</operator></query>"""
    assert xml.parse(text.format("")).nodes["f"].selectivity == 0.5
    known = '<parameter name="selectivity" value="0.1"/>'
    assert xml.parse(text.format(known)).nodes["f"].selectivity == 0.1


def test_only_inputs_of_windows_and_joins_get_a_watermark():
    network = xml.parse(
        """<query><schema name="t"><field type="long" name="ts"/><field type="int" name="k"/></schema>
        <schema name="u"><field type="long" name="at"/><field type="int" name="k"/></schema>
        <operator name="a" type="Input"><next name="f"/><parameter name="tuple" value="t"/></operator>
        <operator name="f" type="Filter"><next name="j"/><parameter name="condition" value="k &gt; 3"/></operator>
        <operator name="b" type="Input"><next name="j"/><parameter name="tuple" value="u"/>
          <parameter name="timestamp" value="at"/><parameter name="watermark" value="2 seconds"/></operator>
        <operator name="c" type="Input"><parameter name="tuple" value="t"/></operator>
        <operator name="j" type="Join"><parameter name="on" value="k"/></operator></query>"""
    )
    assert {source.name: source.watermark for source in network.sources} == {"a": 10.0, "b": 2.0, "c": None}


BOMB = '<!DOCTYPE q [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><query name="&b;"/>'


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        '<!DOCTYPE q [<!ENTITY x SYSTEM "file:///etc/passwd">]><query name="&x;"/>',
        '<!DOCTYPE q SYSTEM "http://localhost/evil.dtd"><query/>',
        '<!DOCTYPE q [<!ENTITY % x SYSTEM "http://localhost/evil.dtd"> %x;]><query/>',
        "<query>",
        "",
        "network: yaml",
    ],
)
def test_hostile_or_broken_xml_is_refused(text):
    with pytest.raises(InvalidArgument, match=r"is refused|is not XML"):
        xml.parse(text)


WINDOWS = """<query name="w"><schema name="t"><field type="long" name="ts"/>
    <field type="double" name="x"/></schema>
    <operator name="in" type="Input"><next name="every"/><next name="time"/>
      <parameter name="tuple" value="t"/></operator>
    <operator name="every" type="CountWindow"><next name="mean"/><parameter name="size" value="50"/></operator>
    <operator name="time" type="TimeWindow"><next name="best"/><next name="different"/>
      <parameter name="size" value="5 seconds"/></operator>
    <operator name="mean" type="Average"><parameter name="field" value="x"/></operator>
    <operator name="best" type="TopK"><parameter name="field" value="x"/><parameter name="k" value="3"/></operator>
    <operator name="different" type="DistinctCount"><parameter name="field" value="x"/></operator></query>"""


def test_count_windows_top_k_and_distinct_counts():
    assert xml.parse(WINDOWS) == (
        Builder("w").source("in", "ts LONG, x DOUBLE", arrived="ts", watermark=10)
        .count_window("mean", "in", 50, {"x": "avg(x)"}).top_k("best", "in", 3, "x", 5)
        .aggregate("different", "in", 5, {"x": "count_distinct(x)"})
        .output("mean_output", "mean").output("best_output", "best")
        .output("different_output", "different").build()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('value="50"', 'value="many"', "operator.mean.size"),
        ('name="k" value="3"', 'name="k" value="three"', "operator.best.k"),
        ('type="TopK"><parameter name="field" value="x"/>', 'type="TopK">', "boxes.best.field"),
    ],
)
def test_problems_of_count_windows_and_top_k_are_named(old, new, path):
    assert old in WINDOWS
    with pytest.raises(InvalidNetwork) as caught:
        xml.parse(WINDOWS.replace(old, new))
    assert path in [problem.path for problem in caught.value.problems]
