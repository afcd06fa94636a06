import pytest

from streamshed.errors import InvalidArgument
from streamshed.network import Builder, spec, xml
from streamshed.network.graph import InvalidNetwork

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
        .source("MyInput", "ts LONG, idx DOUBLE, tmp DOUBLE, cpu DOUBLE", arrived="ts", rate=400)
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
        ('<next name="MyOutput"/>', "", "operator.MyAvgCpu"),
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
