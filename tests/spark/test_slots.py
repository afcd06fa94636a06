"""Drops as numbers, and which outputs run where."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

from streamshed.errors import InvalidArgument
from streamshed.network import Builder, Catalog, Network
from streamshed.policies.registry import network_policy
from streamshed.records import Drop, Flows, Sample
from streamshed.spark.network.fused_query import literals
from streamshed.spark.network.parsed_work import ParsedWork
from streamshed.spark.network.query_layout import NetworkLayout
from streamshed.spark.network.slots import RANGES, WHOLE, Slots


def network(parse: str | None = None) -> Network:
    return (
        Builder("n")
        .source("s", "v INT, ok BOOLEAN", parse=parse, protect="ok", protected=0.1, values={"v": (0, 100)})
        .filter("f", "s", "v > 1")
        .filter("a", "f", "v > 2")
        .output("o", "a", value=("v", [[0, 50, 0.1], [50, 100, 1.0]]))
        .output("p", "f")
        .build()
    )


def test_a_drop_by_value_has_its_ranges_and_spares_what_is_outside() -> None:
    slots = Slots.of(network())
    slot = slots.slots["s->f"]
    numbers = slots.encode([Drop("s->f", 0.25, "(v < 10 OR v >= 20 AND v <= 30) AND NOT ok")])
    mine = numbers[slot.at : slot.at + slot.size]
    assert mine[:2] == (0.25 * WHOLE, WHOLE)
    assert mine[3] == 10
    assert mine[4] == 20
    assert 30 < mine[5] < 30.001  # type: ignore[operator]
    assert len(mine) == 2 + 2 * RANGES
    assert mine[6] > mine[7]  # type: ignore[operator]
    other = slots.slots["f->p"]
    assert numbers[other.at] is None


def test_a_drop_at_random_is_the_same_inside_and_outside() -> None:
    slots = Slots.of(network())
    slot = slots.slots["s->f"]
    for where in (None, "NOT ok"):
        numbers = slots.encode([Drop("s->f", 0.5, where)])
        assert numbers[slot.at : slot.at + 2] == (0.5 * WHOLE, 0.5 * WHOLE)


def test_a_drop_is_written_with_the_ranges_it_has(spark: SparkSession) -> None:
    """Fewer ranges in the SQL, the same rows."""
    slots = Slots.of(network())
    columns = network().schemas["s"]
    rows = spark.range(2000).selectExpr("CAST(id % 100 AS INT) AS v", "id % 13 = 0 AS ok")
    wheres = {None: 0, "v < 10": 1, "v < 10 OR v >= 20 AND v < 30": 2, "v < 10 OR v = 20 OR v = 30 OR v > 90": 4}
    for where, count in wheres.items():
        numbers = slots.encode([Drop("s->f", 0.25, where)])
        assert slots.ranges(numbers, "s->f") == count
        number = literals(slots, numbers)
        few, all_of_them = (slots.passes("s->f", columns, number, ranges) for ranges in (count, RANGES))
        assert len(few) < len(all_of_them) or count == RANGES
        same = rows.selectExpr(f"({few}) = ({all_of_them}) AS same", f"{few} AS passes").collect()
        assert all(row.same for row in same)
        assert 0 < sum(row.passes for row in same) < 2000
    assert slots.ranges(slots.encode([]), "s->f") == 0


@pytest.mark.parametrize("parse", [None, "json"])
def test_a_rehearsal_looks_at_every_row_and_drops_none(spark: SparkSession, parse: str | None) -> None:
    slots = Slots.of(network(parse))
    numbers = slots.rehearsal()
    assert len(numbers) == slots.size
    assert all(slots.active(numbers, on) for on in slots.slots)
    assert all(slots.active_raw(numbers, source) for source in slots.raw)
    rows = spark.range(2000).selectExpr("CAST(id % 100 AS INT) AS v", "id % 13 = 0 AS ok", "'' AS value")
    number = literals(slots, numbers)
    tests = [slots.passes(on, network().schemas["s"], number, 1) for on in slots.slots]
    tests += [slots.passes_raw(source, ["value"], number) for source in slots.raw]
    for test in tests:
        assert rows.where(test).count() == 2000


def test_what_is_no_range_of_the_field_is_refused() -> None:
    slots = Slots.of(network())
    for where in ("v * v < 10", "ok", "v < 3 OR ok"):
        with pytest.raises(InvalidArgument, match="can only take ranges of v"):
            slots.encode([Drop("s->f", 0.5, where)])
    with pytest.raises(InvalidArgument, match="no drop can be made"):
        slots.encode([Drop("a->o", 0.5)])


def test_a_drop_that_needs_no_field_is_made_before_the_parse() -> None:
    slots = Slots.of(network("json"))
    slot = slots.slots["s->f"]
    numbers = slots.encode([Drop("s->f", 0.5)])
    assert numbers[slots.raw["s"]] == 0.5 * WHOLE
    assert numbers[slot.at] is None
    # Protected rows can only be told once they are parsed.
    numbers = slots.encode([Drop("s->f", 0.5, "NOT ok")])
    assert numbers[slots.raw["s"]] is None
    assert numbers[slot.at] == 0.5 * WHOLE


def test_arcs_that_keep_less_thin_what_the_mildest_left() -> None:
    made = (
        Builder("n").source("s", "v INT", parse="json").filter("a", "s", "v > 1").filter("b", "s", "v > 2")
        .output("o", "a").output("p", "b").build()
    )  # fmt: skip
    slots = Slots.of(made)
    numbers = slots.encode([Drop("s->a", 0.8), Drop("s->b", 0.2)])
    assert numbers[slots.raw["s"]] == pytest.approx(0.8 * WHOLE)
    assert numbers[slots.slots["s->a"].at] is None
    assert numbers[slots.slots["s->b"].at] == pytest.approx(0.25 * WHOLE)
    # One arc that keeps everything needs every row parsed.
    assert slots.encode([Drop("s->b", 0.2)])[slots.raw["s"]] is None


def test_what_all_arcs_drop_at_random_goes_before_the_parse_and_the_rest_by_value_behind() -> None:
    made = (
        Builder("n").source("s", "v INT", parse={"format": "json", "cost": 1.0}, rate=1, values={"v": (0, 100)})
        .filter("a", "s", "v >= 0", cost=1.0).map("b", "s", {"v": "v"}, cost=2.0)
        .output("o", "a", value=("v", [[0, 50, 0.1], [50, 100, 1.0]])).output("p", "b").build()
    )  # fmt: skip
    slots = Slots.of(made)
    drops = [Drop("s->a", 0.0, "v < 50"), Drop("s->a", 0.6), Drop("s->b", 0.3)]
    numbers = slots.encode(drops)
    assert numbers[slots.raw["s"]] == pytest.approx(0.6 * WHOLE)
    by_value, at_random = slots.slots["s->a"], slots.slots["s->b"]
    inside, outside, low, high = numbers[by_value.at : by_value.at + 4]
    assert (inside, outside, high) == (0.0, WHOLE, 50.0)
    assert low == -sys.float_info.max
    assert numbers[at_random.at + at_random.outside] == pytest.approx(0.5 * WHOLE)
    # 0.6 is parsed, half of that is worked on by a, and 0.3 by b.
    assert slots.left(drops, Catalog.of(made)) == pytest.approx((0.6 * 1.0 + 0.3 * 1.0 + 0.3 * 2.0) / 4.0)
    nothing = slots.encode([Drop("s->a", 0.0, "v < 50"), Drop("s->a", 0.0), Drop("s->b", 0.0)])
    assert nothing[slots.raw["s"]] == 0.0


def test_a_parse_in_two_queries_is_made_twice() -> None:
    made = (
        Builder("n")
        .source("s", "v INT, at TIMESTAMP", arrived="at", rate=10, parse={"format": "json", "cost": 0.5})
        .filter("f", "s", "v > 1", cost=0.1).aggregate("w", "s", "1 minute", {"n": "count(*)"}, cost=0.2)
        .output("o", "f").output("p", "w").build()
    )  # fmt: skip
    layout, catalog = NetworkLayout.of(made), Catalog.of(made)
    assert layout.physical(catalog).parses == {"s": 1.0}
    assert [layout.of_query(catalog, query).parses for query in layout.queries] == [{"s": 0.5}, {"s": 0.5}]


def test_rows_that_were_parsed_and_dropped_behind_count_as_work() -> None:
    made = (
        Builder("n").source("s", "v INT", rate=10, parse={"format": "json", "cost": 0.3})
        .filter("f", "s", "v > 1", cost=0.1, selectivity=0.5).output("o", "f").build()
    )  # fmt: skip
    work = ParsedWork(Catalog.of(made), lambda: {"f": 0.5})

    def kept(parsed: int, passed: int) -> Sample:
        flows = Flows(
            {"s": 100},
            {"s->f": passed, "f->o": passed // 2},
            {"f": passed // 2},
            parsed={"s": parsed},
            thinned=True,
        )
        return work.of(Sample(at=1.0, started=0.0, arrived=100, kept=100, flows=flows))

    assert (kept(100, 100).arrived, kept(100, 100).kept) == (100, 100)
    assert kept(40, 40).kept == 40  # dropped before the parse
    assert kept(100, 40).kept == 85  # and behind it: 0.3 for each, and 0.1 for 40


def test_boxes_that_run_twice_cost_twice() -> None:
    made = (
        Builder("n")
        .source("s", "v INT, at TIMESTAMP", arrived="at", rate=10)
        .filter("f", "s", "v > 1", cost=0.1)
        .aggregate("w", "f", "1 minute", {"n": "count(*)"}, cost=0.2)
        .output("o", "f")
        .output("p", "w")
        .build()
    )
    layout = NetworkLayout.of(made)
    assert [query.stateful for query in layout.queries] == [False, True]
    catalog = Catalog.of(made)
    assert layout.physical(catalog).costs == {"f": 0.2, "w": 0.2}
    first, second = layout.queries
    assert layout.of_query(catalog, first).load == pytest.approx(1.0)
    assert layout.of_query(catalog, second).load == pytest.approx(3.0)


def test_what_parses_is_part_of_the_load_whoever_reads_it() -> None:
    made = (
        Builder("n")
        .source("s", "v INT", parse={"format": "json", "cost": 0.4})
        .source("t", "v INT")
        .filter("a", "s", "v > 1", cost=0.1)
        .filter("b", "s", "v > 2", cost=0.1)
        .union("u", ["a", "t"], cost=0.1)
        .output("o", "u")
        .output("p", "b")
        .build()
    )
    catalog = Catalog.of(made)
    assert catalog.parses == {"s": 0.4}
    assert catalog.source_coefficients == pytest.approx({"s": 0.4 + 0.1 + 0.1 + 0.1, "t": 0.1})
    assert catalog.load == pytest.approx(0.8)


@pytest.mark.parametrize("cost", [-1, "quick", True, float("inf")])
def test_a_parse_cannot_cost_just_anything(cost: object) -> None:
    with pytest.raises(InvalidArgument, match="cost: seconds a row"):
        Builder("n").source("s", "v INT", parse={"format": "json", "cost": cost})


def test_parsing_that_costs_most_moves_random_drops_before_it() -> None:
    """Two outputs, one dear. With a parse that costs nothing it is shed where it costs; else before the parse."""

    def drops(cost: float) -> set[str]:
        made = (
            Builder("n", capacity=1.0)
            .source("s", "v INT", rate=1, parse={"format": "json", "cost": cost})
            .map("m", "s", {"v": "v"}, cost=0.01)
            .map("dear", "m", {"v": "v"}, cost=1.0)
            .map("cheap", "m", {"v": "v"}, cost=0.1)
            .output("o", "dear", loss=[(100, 1.0), (0, 0.0)])
            .output("p", "cheap", loss=[(100, 1.0), (0, 0.0)])
            .build()
        )
        catalog = NetworkLayout.of(made).physical(Catalog.of(made)).overloaded(0.5)
        return {drop.at for drop in network_policy("lsrm-random").planner(catalog).decide().drops}

    assert drops(0.0) == {"m->dear"}
    assert drops(10.0) == {"s->m"}


def test_a_drop_found_by_trial_takes_the_same_rows_on_spark(spark: SparkSession) -> None:
    """abs(x) has no inverse; the values that go lie around 0, and the rest is spared."""
    made = (
        Builder("n", capacity=1.0)
        .source("s", "x DOUBLE", rate=150, values={"x": (-100, 100)})
        .map("m", "s", {"v": "abs(x)"}, cost=0.01)
        .output("o", "m", value=("v", [[0, 50, 0.1], [50, 100, 1.0]]))
        .build()
    )
    (drop,) = network_policy("lsrm-semantic").planner(Catalog.of(made)).decide().drops
    assert drop.where is not None
    slots = Slots.of(made)
    numbers = slots.encode([drop])
    rows = spark.range(-100, 100).selectExpr("CAST(id AS DOUBLE) AS x")
    passes = slots.passes("s->m", made.schemas["s"], literals(slots, numbers), slots.ranges(numbers, "s->m"))
    kept = {row.x for row in rows.where(passes).collect()}
    assert kept == {row.x for row in rows.where(f"NOT ({drop.where})").collect()}
    assert {float(x) for x in range(-100, 100) if abs(x) >= 43} <= kept
    assert not any(abs(x) < 38 for x in kept)
