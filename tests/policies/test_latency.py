import pytest

from streamshed.network import Builder, Catalog
from streamshed.policies.latency import Latency


def network():
    return (
        Builder("n", capacity=1.0)
        .source("a", "x INT", rate=50)
        .source("b", "x INT", rate=50)
        .filter("f", "a", "x > 0", cost=0.004)
        .filter("g", "f", "x > 1", cost=0.006)
        .filter("h", "b", "x > 0", cost=0.01)
        .output("fast", "g", latency=[(0, 1), (1, 1), (5, 0)], loss=[(0, 0), (100, 1)])
        .output("slow", "h", latency=[(0, 1), (60, 1), (90, 0)], loss=[(0, 0), (10, 0.9), (100, 1)])
        .build()
    )


def planner(**options):
    return Latency(**options).planner(Catalog.of(network()))


def places(decision):
    return {drop.at for drop in decision.drops}


def test_only_branches_of_late_outputs_are_shed():
    late = planner().decide({"a": 55, "b": 45}, latencies={"fast": 2.0, "slow": 2.0})
    assert places(late) == {"a->f"}
    late = planner().decide({"a": 55, "b": 45}, latencies={"fast": 0.5, "slow": 61.0})
    assert places(late) == {"b->h"}


def test_with_nobody_late_yet_the_flattest_loss_graph_gives():
    assert places(planner().decide({"a": 60, "b": 60}, latencies={"fast": 0.2, "slow": 1.0})) == {"b->h"}
    assert places(planner().decide({"a": 60, "b": 60})) == {"b->h"}


def test_a_load_that_fits_but_is_late_is_shed_until_the_wait_is_worked_off():
    made = planner(drain=10.0)
    decision = made.decide({"a": 40, "b": 40}, latencies={"fast": 4.0, "slow": 4.0})
    # 0.8 against 0.9, and (4 − 1)·0.9 waiting over 10 s: 0.17 to shed of 0.4.
    assert decision.row.saved({"a": 40, "b": 40}) == pytest.approx(0.17, abs=0.02 * 0.4)
    assert made.decide({"a": 40, "b": 40}, latencies={"fast": 0.5, "slow": 4.0}).drops == ()


def test_drops_go_to_a_large_queue_and_not_upstream_of_it():
    latencies, rates = {"fast": 3.0, "slow": 1.0}, {"a": 55, "b": 45}
    queued = planner().decide(rates, latencies=latencies, queues={"f->g": 100.0})
    assert places(queued) == {"f->g"}
    small = planner().decide(rates, latencies=latencies, queues={"f->g": 5.0})
    assert places(small) == {"a->f"}


def test_unless_the_load_would_not_fit_then():
    queued = planner(drain=1.0).decide(
        {"a": 100, "b": 10}, latencies={"fast": 3.0, "slow": 1.0}, queues={"f->g": 150.0}
    )
    assert "a->f" in places(queued)


def test_inactive_outputs_are_left_alone():
    decision = planner().decide({"a": 60, "b": 60}, inactive=["slow"])
    assert places(decision) == {"a->f"}
    nothing_helps = planner().decide({"a": 10, "b": 300}, inactive=["slow"])
    assert "b->h" not in places(nothing_helps)
    assert nothing_helps.remaining == pytest.approx(0.1 + 3.0 - 0.9 - 0.1)


def test_when_late_outputs_cannot_give_enough_the_others_have_to():
    decision = planner().decide({"a": 10, "b": 120}, latencies={"fast": 3.0, "slow": 1.0})
    assert decision.feasible
    assert "b->h" in places(decision)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="seconds above 0"):
        Latency(drain=0)
