"""SIC by counts and by what batches carry: properties of any network, chain and stream."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.errors import InvalidArgument
from streamshed.network import Builder, Network
from streamshed.network.generate import NetworkShape, generate
from streamshed.quality.sic import InformationFlow, derived, jain, sic_by_output
from streamshed.quality.source_time_window import QueryWindow, SourceTimeWindow, thinned, together
from tests.networks import random_network

counts = st.tuples(st.integers(0, 1000), st.floats(0, 1)).map(lambda c: (c[0], math.floor(c[0] * c[1])))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """With and without sharing; with unions, and with boxes that make new rows."""
    seed = draw(st.integers(0, 10_000))
    if draw(st.booleans()):
        return random_network(seed, sharing=draw(st.booleans()), boxes=draw(st.integers(3, 15)))
    if draw(st.booleans()):
        return every_kind(draw)
    mix = {"filter": 3.0, "union": 2.0, "map": 2.0, "join": 1.0}
    return generate(NetworkShape(queries=3, boxes=12, shared=draw(st.integers(0, 2)), mix=mix), seed=seed)


def every_kind(draw: st.DrawFn) -> Network:
    """A tree of boxes of all kinds, some of which have several readers."""
    builder, ends = Builder("every kind"), []
    for number in range(draw(st.integers(1, 3))):
        builder.source(f"s{number}", "k INT, x DOUBLE, at TIMESTAMP", arrived="at")
        ends.append(f"s{number}")
    select = {"k": "k", "x": "x", "at": "at"}
    for number in range(draw(st.integers(0, 8))):
        name, above = f"b{number}", draw(st.sampled_from(ends))
        kind = draw(
            st.sampled_from(["filter", "map", "union", "join", "aggregate", "count_window", "top_k", "udf"])
        )
        last = name
        if kind == "filter":
            builder.filter(name, above, "x > 0")
        elif kind == "map":
            builder.map(name, above, select)
        elif kind == "udf":
            builder.udf(f"{name}u", above, "math:sqrt", "x", "y DOUBLE").map(name, f"{name}u", select)
        elif kind in ("union", "join"):
            builder.map(f"{name}m", draw(st.sampled_from(ends)), select if kind == "union" else {"k": "k"})
            if kind == "union":
                builder.union(name, [above, f"{name}m"])
            else:
                builder.join(name, [above, f"{name}m"], "k", 10)
        else:
            if kind == "aggregate":
                builder.aggregate(name, above, 60, {"x": "avg(x)"}, by="k")
            elif kind == "count_window":
                builder.count_window(name, above, 100, {"x": "count(distinct x)"}, by="k")
            else:
                builder.top_k(name, above, 5, "x", 60, by="k")
            builder.map(f"{name}m", name, {"k": "k", "x": "x * 1.0", "at": "window_end"})
            last = f"{name}m"
        if draw(st.booleans()):
            ends.remove(above)
        ends.append(last)
    for number, end in enumerate(ends):
        builder.output(f"o{number}", end)
    return builder.build()


@given(networks())
def test_without_loss_every_output_has_all_its_information(network):
    everything = dict.fromkeys(network.arcs, (1000, 1000))
    for counted in ({}, everything, dict.fromkeys(network.arcs, (0, 0))):
        assert sic_by_output(network, counted) == pytest.approx(
            dict.fromkeys((output.name for output in network.outputs), 1.0)
        )


@given(networks(), st.data())
def test_whatever_is_lost_sic_stays_between_0_and_1_and_no_box_makes_or_loses_any(network, data):
    passed = {on: data.draw(counts) for on in network.arcs}
    for output in network.outputs:
        flow = InformationFlow.of(network, output.name, passed)
        assert 0 <= flow.sic <= 1
        sources, boxes = network.above(output.name)
        for box in boxes:
            entered = sum(flow.passing[on] for on in network.arcs_into(box.name))
            left = sum(flow.entering.get(on, 0.0) for on in network.arcs_out_of(box.name))
            assert left == pytest.approx(entered)
        sent = sum(flow.entering.get(on, 0.0) for each in sources for on in network.arcs_out_of(each.name))
        assert sent == pytest.approx(1.0)
        (last,) = network.arcs_into(output.name)
        assert flow.passing[last] == pytest.approx(flow.sic)


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=6), st.integers(1, 5))
def test_along_a_chain_of_filters_it_falls_by_exactly_the_lost_share(drops, thinning):
    builder = Builder("chain").source("s", "x INT")
    above, passed, share = "s", {}, 1.0
    for number, (rows, keep) in enumerate(drops):
        builder.filter(f"f{number}", above, "x > 0")
        kept = math.floor(rows * keep)
        passed[f"{above}->f{number}"] = (rows // thinning + kept % thinning + kept, kept)
        reached = passed[f"{above}->f{number}"][0]
        share *= kept / reached if reached else 1.0
        above = f"f{number}"
    network = builder.output("o", above).build()
    assert sic_by_output(network, passed)["o"] == pytest.approx(share)


def test_rows_that_go_two_ways_to_one_output_carry_half_each_way():
    network = (
        Builder("diamond").source("s", "x INT").filter("a", "s", "x > 0").filter("b", "s", "x <= 0")
        .union("u", ["a", "b"]).output("o", "u").output("p", "a").build()
    )  # fmt: skip
    assert sic_by_output(network, {"s->a": (10, 0)}) == {"o": 0.5, "p": 0.0}


def test_a_join_of_two_sources_loses_half_of_what_one_side_loses():
    network = (
        Builder("pair").source("s", "k INT, x INT, at TIMESTAMP", arrived="at")
        .source("t", "k INT, y INT, ta TIMESTAMP", arrived="ta")
        .join("j", ["s", "t"], "k", 10).output("o", "j").build()
    )  # fmt: skip
    assert sic_by_output(network, {"s->j": (100, 40)})["o"] == pytest.approx(0.7)


def test_counts_that_cannot_be_are_refused():
    network = Builder("one").source("s", "x INT").output("o", "s").build()
    with pytest.raises(InvalidArgument, match="more rows passed than came"):
        sic_by_output(network, {"s->o": (10, 11)})


def test_a_box_without_rows_out_has_nothing_to_share_among():
    with pytest.raises(InvalidArgument, match="no row to carry"):
        derived([0.1], rows_out=0)


def test_jain_of_nothing_is_fair():
    assert jain([0.0, 0.0]) == jain([]) == 1.0
    assert jain([1, 1, 1, 0]) == pytest.approx(0.75)


# ── over a source time window ────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.floats(0, 0.9)), min_size=1, max_size=80),
    st.floats(0, 8),
    st.sampled_from([0.25, 0.5, 1.0]),
)
def test_at_any_rates_and_any_delay_nothing_lost_is_1(batches, delay, slide):
    query = QueryWindow(SourceTimeWindow(10.0, slide), ["a", "b"])
    at, pending = 0.0, []
    for source, rows, gap in batches:
        at += gap
        pending.append((at + delay, query.sent(source, rows, at)))
        while pending and pending[0][0] <= at:
            due, mass = pending.pop(0)
            query.delivered(mass, due)
        assert query.sic(at) == pytest.approx(1.0)
    for due, mass in pending:
        query.delivered(mass, due)
    assert query.sic(at + delay + slide) == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 4), st.floats(0, 1)), max_size=60))
def test_it_never_leaves_0_to_1(batches):
    query = QueryWindow(SourceTimeWindow(5.0, 0.5), ["a"])
    for number, (rows, late, share) in enumerate(batches):
        query.delivered(thinned(query.sent("a", rows, number / 2), share), number / 2 + late)
        assert 0 <= query.sic(number / 2 + late) <= 1


@pytest.mark.parametrize("keep", [0.0, 0.25, 1.0])
def test_it_is_the_share_that_was_kept(keep):
    query = QueryWindow(SourceTimeWindow(10.0, 0.5), ["a", "b"])
    for tick in range(200):
        at = tick / 10
        query.delivered(thinned(query.sent("a", 30, at), keep), at + 0.7)
        query.delivered(query.sent("b", 2 + tick % 7, at), at + 0.2)
    assert query.sic(20.7) == pytest.approx((1 + keep) / 2)


def test_rows_of_a_steady_source_count_1_together_in_a_window():
    query = QueryWindow(SourceTimeWindow(10.0, 0.5), ["a", "b"])
    total = 0.0
    for tick in range(400):
        query.sent("a", 5, tick / 10)
        query.sent("b", 50, tick / 10)
        if tick >= 300:
            total += 5 * query.row_sic("a", tick / 10) + 50 * query.row_sic("b", tick / 10)
    assert total == pytest.approx(1.0, rel=0.03)  # the newest slide is not full while it is counted


def test_a_source_that_stops_is_not_held_against_the_query_for_ever():
    query = QueryWindow(SourceTimeWindow(4.0, 0.5), ["a", "b"])
    for tick in range(60):
        query.delivered(query.sent("a", 10, tick / 2), tick / 2)
        if tick < 20:
            query.sent("b", 10, tick / 2)  # all of it lost
            assert query.sic(tick / 2) == pytest.approx(0.5 if tick else 1.0)
    assert query.sic(29.5) == pytest.approx(1.0)
    assert query.row_sic("b", 29.5) == 0.0


def test_a_query_without_batches_has_lost_nothing():
    query = QueryWindow(SourceTimeWindow(), ["a"])
    assert query.sic(100.0) == 1.0
    assert query.row_sic("a", 100.0) == 0.0


def test_all_lost_is_0_though_nothing_tells_a_delay():
    query = QueryWindow(SourceTimeWindow(), ["a"])
    for second in range(20):
        query.sent("a", 10, float(second))
    assert query.sic(20.0) == 0.0


def test_a_window_shorter_than_the_delay_is_told_with_the_measured_delay():
    query = QueryWindow(SourceTimeWindow(2.0, 0.5), ["a"])
    query.delivered(query.sent("a", 10, 0.0), 1.5)
    assert query.too_short is None
    query.delivered(query.sent("a", 10, 2.0), 7.0)
    assert query.too_short == 5.0


@given(
    st.lists(st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.floats(0, 100)), max_size=5)
)
def test_what_comes_together_is_the_sum(masses):
    assert sum(together(masses).values()) == pytest.approx(sum(sum(mass.values()) for mass in masses))


@pytest.mark.parametrize(("seconds", "slide"), [(0, 0), (1, 2), (math.inf, 1), (10, 0), (math.nan, 1)])
def test_windows_that_cannot_be_are_refused(seconds, slide):
    with pytest.raises(InvalidArgument, match="not a source time window"):
        SourceTimeWindow(seconds, slide)


def test_a_query_needs_a_source():
    with pytest.raises(InvalidArgument, match="without sources"):
        QueryWindow(SourceTimeWindow(), [])
