"""What was cut in a network whose source is parsed late: in front of the parse, or behind it."""

from __future__ import annotations

import pytest

from streamshed.network import Builder, Catalog
from streamshed.records import Flows, Sample
from streamshed.spark.network.parsed_work import ParsedWork


def work() -> ParsedWork:
    """A parse that costs as much as each of the two steps behind it."""
    network = (
        Builder("n", capacity=1.0)
        .source("s", "x DOUBLE", rate=100, parse={"format": "json", "cost": 1.0})
        .map("f", "s", {"x": "x"}, cost=1.0)
        .map("g", "s", {"x": "x"}, cost=1.0)
        .output("o", "f")
        .output("p", "g")
        .build()
    )
    catalog = Catalog.of(network)
    return ParsedWork(catalog, lambda: catalog.selectivities)


def wanted(flows: Flows) -> float:
    return work().wanted(Sample(at=1.0, started=0.0, arrived=2000, kept=1000, cut=1000, keep=0.5, flows=flows))


def test_what_was_cut_on_all_arcs_was_cut_in_front_of_the_parse() -> None:
    flows = Flows(
        arrived={"s": 2000},
        parsed={"s": 500},
        passed={"s->f": 500, "s->g": 100},
        cut={"s->f": 1000, "s->g": 1000},
    )
    # Half of the rest was parsed; then all went one way and a fifth the other.
    assert wanted(flows) == pytest.approx(0.5 * (1 + 1.0 + 0.2) / 3)


def test_what_was_cut_on_one_arc_had_been_parsed() -> None:
    flows = Flows(arrived={"s": 2000}, parsed={"s": 2000}, passed={"s->f": 250, "s->g": 2000}, cut={"s->f": 1000})
    assert wanted(flows) == pytest.approx(0.25)


def test_what_was_cut_on_both_sides_of_the_parse_is_told_apart() -> None:
    flows = Flows(
        arrived={"s": 2000},
        parsed={"s": 800},
        passed={"s->f": 300, "s->g": 800},
        cut={"s->f": 700, "s->g": 500},
        expired={"s->f": 500, "s->g": 500},
    )
    # 500 in front, where 1,000 were looked at, and 200 behind, where 600 were.
    in_front, behind = 0.8 * (1 + 0.5 + 1.0), 0.5
    assert wanted(flows) == pytest.approx((500 * in_front + 200 * behind) / (500 * 3 + 200 * 1))
