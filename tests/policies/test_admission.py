import pytest

from streamshed.network import Builder, Catalog
from streamshed.policies.admission import InputCostTop, InputCostUniform, InputRandom, InputUniform


def three(**source):
    """Loads 0.6, 0.3 and 0.1; the limit is 0.9."""
    builder = Builder("three", capacity=1.0)
    for name, rate in (("a", 60), ("b", 30), ("c", 10)):
        builder.source(name, "x INT", rate=rate, **source).filter(f"f{name}", name, "x > 0", cost=0.01)
        builder.output(f"o{name}", f"f{name}")
    return Catalog.of(builder.build())


def kept(policy, catalog):
    decision = policy.planner(catalog).decide()
    return {drop.at[0]: drop.keep for drop in decision.drops}


def test_cost_top_empties_the_costliest_source_first():
    assert kept(InputCostTop(), three().scaled(2)) == pytest.approx({"a": 1 - 1.1 / 1.2})
    assert kept(InputCostTop(), three().scaled(4)) == pytest.approx({"a": 0.0, "b": 1 - 0.7 / 1.2})


def test_uniform_takes_the_same_load_from_each_and_the_rest_from_those_that_can():
    # 1.1 to shed: a third each is 0.367; c can give only 0.2, so a and b give 0.45 each.
    assert kept(InputUniform(), three().scaled(2)) == pytest.approx({"a": 1 - 0.45 / 1.2, "b": 0.25, "c": 0.0})


def test_cost_uniform_takes_the_same_share_of_each():
    assert kept(InputCostUniform(), three().scaled(2)) == pytest.approx(dict.fromkeys("abc", 0.45))


def test_random_takes_one_after_the_other_in_an_order_given_by_the_seed():
    firsts = set()
    for seed in range(20):
        keeps = kept(InputRandom(seed), three().scaled(4))
        assert sum(0 < keep < 1 for keep in keeps.values()) <= 1
        assert keeps == kept(InputRandom(seed), three().scaled(4))
        firsts |= {name for name, keep in kept(InputRandom(seed), three().scaled(1.001)).items() if keep < 1}
    assert firsts == {"a", "b", "c"}


def test_protected_rows_are_spared_by_predicate_and_counted():
    catalog = three(protect="x > 5", protected=0.25).scaled(2)
    decision = InputCostTop().planner(catalog).decide()
    assert [(drop.at, drop.where) for drop in decision.drops] == [
        ("a->fa", "NOT x > 5"),
        ("b->fb", "NOT x > 5"),
    ]
    assert decision.drops[0].keep == 0
    assert decision.row.delivery["oa"] == pytest.approx(25.0)
    assert decision.row.saved(catalog.rates) == pytest.approx(2.0 - 0.9)


def test_what_drops_cost_is_shed_as_well():
    catalog = Catalog.of(three().network, drop_cost=0.001).scaled(2)
    for policy in (InputCostTop(), InputUniform(), InputCostUniform(), InputRandom(3)):
        decision = policy.planner(catalog).decide()
        keeps = {drop.at: drop.keep for drop in decision.drops}
        assert catalog.load_with(keeps) == pytest.approx(catalog.limit)
        assert decision.row.saved(catalog.rates) == pytest.approx(catalog.load - catalog.limit)
