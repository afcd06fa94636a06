import bisect

import pytest

from streamshed.network import Builder, Catalog
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.road_map.random import RandomRoadMap, build
from streamshed.policies.road_map.segments import Segments
from tests.networks import random_network


def figure_6(qos_1, qos_2, *, head=0.01, left=0.01, right=0.01):
    """The shape of LSRM's Figure 6: a shared query (places A, then B and D) and one by itself (F)."""
    return (
        Builder("figure 6", capacity=1.0, headroom=1.0)
        .source("i1", "x DOUBLE", rate=100)
        .source("i2", "x DOUBLE", rate=100)
        .filter("one", "i1", "x > 0", cost=head)
        .filter("two", "one", "x > 1", cost=left)
        .filter("three", "one", "x > 2", cost=right)
        .filter("four", "i2", "x > 3", cost=0.01)
        .filter("five", "four", "x > 4", cost=0.01)
        .output("o1", "two", loss=qos_1)
        .output("o2", "three", loss=qos_2)
        .output("o3", "five", loss=[(100, 1.0), (50, 0.7), (0, 0.0)])
        .build()
    )


FLAT = [(100, 1.0), (40, 0.99), (0, 0.0)]
STEEP = [(100, 1.0), (0, 0.0)]


def effective(catalog, row):
    """The row's keeps by arc, as `Catalog.flows` takes them, where nothing is protected."""
    return {drop.at: drop.keep for drop in row.drops}


def test_candidates_are_source_arcs_and_arcs_out_of_splits():
    segments = Segments.of(FlowModel(Catalog.of(figure_6(FLAT, STEEP))))
    assert [segment.arc for segment in segments.all] == ["i1->one", "i2->four", "one->two", "one->three"]


def test_loss_gain_orders_the_places():
    # B is nearly flat, so it goes first, down to 40 %; F and the others follow by slope over work.
    table = build(Catalog.of(figure_6(FLAT, STEEP)), step=0.1)
    places = [{drop.at for drop in row.drops} for row in table]
    assert places[:6] == [{"one->two"}] * 6
    assert table[5].delivery == pytest.approx({"o1": 40, "o2": 100, "o3": 100})
    assert places[6] == {"one->two", "i2->four"}


def test_a_drop_upstream_that_covers_less_reduces_the_one_below():
    # LSRM 4.3.3: B drops l > k; after k is dropped at A, B must be reduced to make l in total at its output.
    table = build(Catalog.of(figure_6(FLAT, STEEP)), step=0.1)
    row = next(row for row in table if any(drop.at == "i1->one" for drop in row.drops))
    keeps = {drop.at: drop.keep for drop in row.drops}
    assert keeps["i1->one"] == pytest.approx(0.9)
    assert keeps["one->two"] == pytest.approx(0.4 / 0.9)
    assert row.delivery["o1"] == pytest.approx(40)
    assert row.delivery["o2"] == pytest.approx(90)


def test_a_drop_upstream_that_covers_all_makes_the_one_below_redundant():
    # LSRM 4.3.3: once A drops k ≥ l, the drop at B is gone.
    table = build(Catalog.of(figure_6(FLAT, STEEP)), step=0.1)
    covered = next(row for row in table if row.delivery["o2"] <= 40 + 1e-9)
    assert {drop.at: drop.keep for drop in covered.drops if drop.at.startswith(("i1", "one"))} == {
        "i1->one": pytest.approx(0.4)
    }
    assert covered.delivery["o1"] == pytest.approx(40)


def test_equal_needs_are_met_upstream():
    table = build(Catalog.of(figure_6(STEEP, STEEP)), step=0.1)
    assert {drop.at for row in table for drop in row.drops} == {"i1->one", "i2->four"}


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_every_row_does_what_it_says(seed, sharing):
    """Exactly: the delivery cursors, the savings, and more savings than the row before, for all rows."""
    catalog = Catalog.of(random_network(seed, sharing=sharing))
    before = 0.0
    for row in build(catalog, step=0.1):
        keeps = effective(catalog, row)
        assert row.delivery == pytest.approx(catalog.delivery(keeps), abs=1e-6)
        assert row.saved(catalog.rates) == pytest.approx(catalog.load - catalog.load_with(keeps))
        assert row.saved(catalog.rates) > before
        before = row.saved(catalog.rates)
    assert before == pytest.approx(catalog.load)


@pytest.mark.parametrize("seed", range(6))
def test_savings_hold_at_other_rates_too(seed):
    """Coefficients are per row of each source: with the same drops they give the savings at any rates."""
    catalog = Catalog.of(random_network(seed, sharing=True))
    table = build(catalog, step=0.1)
    other = catalog.measured(
        rates={name: rate * (1 + index) for index, (name, rate) in enumerate(catalog.rates.items())}
    )
    for row in table[:: max(1, len(table) // 10)]:
        assert row.saved(other.rates) == pytest.approx(other.load - other.load_with(effective(catalog, row)))


def test_protected_rows_pass_every_drop():
    catalog = Catalog.of(random_network(2, sharing=True, protect=0.25, mixing=False))
    last = build(catalog, step=0.1)[-1]
    assert all(drop.where == "NOT x > 99" for drop in last.drops)
    assert last.delivery == pytest.approx(dict.fromkeys(last.delivery, 25.0))
    assert catalog.load - FlowModel(catalog).least == pytest.approx(0.75 * catalog.load)
    assert last.saved(catalog.rates) == pytest.approx(0.75 * catalog.load)


def test_nothing_is_dropped_below_a_box_that_hides_what_is_protected():
    network = (
        Builder("n")
        .source("s", "x DOUBLE", rate=100, protect="x > 5", protected=0.5)
        .map("m", "s", {"y": "x * 2"}, cost=0.01)
        .filter("f", "m", "y > 1", cost=0.01)
        .filter("g", "m", "y > 1", cost=0.01)
        .output("o", "f")
        .output("p", "g", loss=FLAT)
        .build()
    )
    assert {drop.at for row in build(Catalog.of(network)) for drop in row.drops} == {"s->m"}


def test_the_cost_of_drops_raises_the_step_and_lowers_the_savings():
    network = figure_6(FLAT, STEEP)
    catalog = Catalog.of(network, drop_cost=0.002)
    table = build(catalog, step=0.01)
    first = table[0]
    # STEP_SIZE > D / min L = 0.002 / 0.01.
    assert first.drops[0].keep == pytest.approx(1 - 1.01 * 0.2)
    totals = [row.saved(catalog.rates) for row in table]
    assert totals == sorted(totals)
    for row in table:
        assert row.saved(catalog.rates) == pytest.approx(catalog.load - catalog.load_with(effective(catalog, row)))


def test_the_cursor_moves_both_ways_and_returns_load():
    catalog = Catalog.of(random_network(5, sharing=True))
    planner = RandomRoadMap(step=0.05).planner(catalog)
    rates = {excess: catalog.overloaded(excess).rates for excess in (-0.1, 0.3, 0.8, 2.0)}
    cursors = []
    for excess in (-0.1, 0.3, 0.8, 2.0, 0.8, 0.3, -0.1):
        planner.decide(rates[excess])
        cursors.append(planner.cursor)
    assert cursors[0] is None
    assert cursors[1] < cursors[2] < cursors[3]
    assert cursors[:3] == cursors[:3:-1]


def test_a_look_up_finds_the_first_row_that_saves_enough():
    catalog = Catalog.of(random_network(7, sharing=False))
    table = build(catalog, step=0.1)
    saved = [row.saved(catalog.rates) for row in table]
    for excess in (0.0, saved[0] / 2, saved[3], saved[-1] * 0.7, saved[-1] * 2):
        assert table.look_up(excess - 1e-12, catalog.rates) == bisect.bisect_left(saved, excess - 1e-12)


def test_rows_can_be_sliced_and_indexed_from_the_end():
    table = build(Catalog.of(figure_6(FLAT, STEEP)), step=0.25)
    assert table[-1] == table[len(table) - 1] == list(table)[-1]
    assert len(table[2:5]) == 3
    with pytest.raises(IndexError):
        table[len(table)]


@pytest.mark.parametrize("step", [0, -1, 1.5])
def test_bad_steps_are_refused(step):
    with pytest.raises(ValueError, match="a step is a share"):
        RandomRoadMap(step=step)
