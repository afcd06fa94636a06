import pytest

from streamshed.network import Builder, Catalog


def figure_4():
    """Two queries, two inputs, a split and a binary box, as LSRM 4.2 describes its Figure 4.

    The text gives the coefficients 26.5 and 18.75 and the load 640; the figure's own costs are not in
    the text, so these are costs that yield them.
    """
    return (
        Builder("figure 4", capacity=500.0, headroom=1.0)
        .source("i1", "x DOUBLE", rate=10)
        .source("i2", "x DOUBLE", rate=20)
        .filter("b1", "i1", "x > 0", cost=10.0, selectivity=0.5)
        .filter("b2", "b1", "x > 1", cost=10.0, selectivity=0.8)
        .filter("b3", "b2", "x > 2", cost=5.0, selectivity=1.0)
        .filter("b4", "b1", "x > 3", cost=10.0, selectivity=0.9)
        .filter("b5", "i2", "x > 4", cost=10.0, selectivity=0.875)
        .union("b6", ["b4", "b5"], cost=10.0)
        .output("o1", "b3")
        .output("o2", "b6")
        .build()
    )


def test_load_arithmetic_of_lsrm_4_2():
    catalog = Catalog.of(figure_4())
    assert catalog.source_coefficients == pytest.approx({"i1": 26.5, "i2": 18.75})
    assert catalog.load == pytest.approx(26.5 * 10 + 18.75 * 20) == pytest.approx(640)
    assert catalog.limit == 500
    assert catalog.excess == pytest.approx(140)


def test_coefficients_of_every_arc():
    assert Catalog.of(figure_4()).coefficients == pytest.approx(
        {
            "i1->b1": 26.5,
            "b1->b2": 14.0,
            "b2->b3": 5.0,
            "b1->b4": 19.0,
            "i2->b5": 18.75,
            "b4->b6": 10.0,
            "b5->b6": 10.0,
            "b3->o1": 0.0,
            "b6->o2": 0.0,
        }
    )


def test_load_is_also_the_sum_over_boxes():
    catalog = Catalog.of(figure_4())
    assert catalog.load_with({}) == pytest.approx(catalog.load)
    assert catalog.load_with({"i1->b1": 0.5}) == pytest.approx(640 - 0.5 * 265)
    assert catalog.load_with({"i1->b1": 0.5, "b1->b4": 0.0}) == pytest.approx(640 - 0.5 * 265 - 2.5 * 19)


def test_delivery_multiplies_along_a_path_and_averages_at_a_union():
    catalog = Catalog.of(figure_4())
    delivery = catalog.delivery({"i1->b1": 0.5, "b1->b2": 0.5, "i2->b5": 0.2})
    # b6 gets 10·0.5·0.9 = 4.5 rows by b4 and 20·0.875 = 17.5 by b5.
    assert delivery == pytest.approx({"o1": 25.0, "o2": 100 * (4.5 * 0.5 + 17.5 * 0.2) / 22.0})


def test_drops_cost_too():
    catalog = Catalog.of(figure_4(), drop_cost=1.0)
    assert catalog.load_with({"i1->b1": 0.5}) == pytest.approx(640 - 132.5 + 10)
    assert catalog.load_with({"i1->b1": 0.0}) == pytest.approx(640 - 265 + 10)


def test_measured_figures_replace_given_ones():
    catalog = Catalog.of(figure_4()).measured(rates={"i1": 20}, costs={"b1": 0.0}, selectivities={"b1": 1.0})
    assert catalog.source_coefficients["i1"] == pytest.approx(33.0)
    assert catalog.load == pytest.approx(33 * 20 + 375)
    with pytest.raises(ValueError, match="no such source"):
        catalog.measured(rates={"i9": 1})
    with pytest.raises(ValueError, match="0 or more"):
        catalog.measured(costs={"b1": -1})


def test_overloaded_scales_all_rates():
    catalog = Catalog.of(figure_4()).overloaded(1.5)
    assert catalog.load == pytest.approx(2.5 * 500)
    assert catalog.rates["i2"] == pytest.approx(2 * catalog.rates["i1"])


def test_capacity_comes_from_the_network_before_the_caller():
    assert Catalog.of(figure_4(), capacity=7.0).capacity == 500.0
    plain = Builder("n").source("s", "x INT").output("o", "s").build()
    assert Catalog.of(plain, capacity=7.0).limit == pytest.approx(6.3)
