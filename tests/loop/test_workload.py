"""What was cut in a network, as work: the drops would have taken part of it anyway."""

from __future__ import annotations

import pytest

from streamshed.loop.keep_response import KeepResponse
from streamshed.loop.workload import CatalogWork, RowWork
from streamshed.network import Builder, Catalog
from streamshed.records import Flows, Sample


def work() -> CatalogWork:
    """A step that all rows take, and two filters behind it: 1 and 0.5 + 0.5 · 2 of work."""
    network = (
        Builder("n", capacity=1.0)
        .source("s", "x DOUBLE", rate=100)
        .map("m", "s", {"x": "x"}, cost=1.0)
        .filter("f", "m", "x > 50", cost=1.0, selectivity=0.5)
        .filter("g", "m", "x > 20", cost=0.5, selectivity=0.5)
        .map("h", "g", {"x": "x"}, cost=1.0)
        .output("o", "f")
        .output("p", "h")
        .build()
    )
    catalog = Catalog.of(network)
    return CatalogWork(catalog, lambda: catalog.selectivities)


def sample(flows: Flows, keep: float = 0.5) -> Sample:
    cut = max(flows.cut.values(), default=0)
    return Sample(at=1.0, started=0.0, arrived=2000, kept=2000 - cut, cut=cut, keep=keep, flows=flows)


def test_rows_that_were_cut_in_front_of_a_drop_count_by_what_it_kept_of_the_others() -> None:
    flows = Flows(
        arrived={"s": 2000},
        passed={"s->m": 2000, "m->f": 200, "m->g": 600, "g->h": 300},
        left={"m": 2000, "f": 100, "g": 300, "h": 300},
        cut={"m->f": 1000, "m->g": 1000},
    )
    # A fifth of 1 and three fifths of 1, of 2.
    assert work().wanted(sample(flows)) == pytest.approx((0.2 + 0.6) / 2)


def test_rows_that_were_cut_at_the_source_would_have_met_all_drops() -> None:
    flows = Flows(
        arrived={"s": 2000},
        passed={"s->m": 500, "m->f": 100, "m->g": 300, "g->h": 150},
        left={"m": 500, "f": 50, "g": 150, "h": 150},
        cut={"s->m": 1000},
    )
    # Of those that were looked at a half took the step; then a fifth went one way, three fifths the other.
    assert work().wanted(sample(flows)) == pytest.approx(0.5 * (1 + 0.2 + 0.6) / 3)


def test_rows_that_expired_were_not_looked_at() -> None:
    flows = Flows(
        arrived={"s": 2000}, passed={"s->m": 250}, left={"m": 50}, cut={"s->m": 1000}, expired={"s->m": 500}
    )
    # A half took the step; too few came behind it to tell, and there the plan's own share is taken.
    assert work().wanted(sample(flows, keep=0.25)) == pytest.approx(0.5 * (1 + 0.25 * 2) / 3)


def test_a_drop_that_saw_too_few_rows_counts_by_the_plan() -> None:
    flows = Flows(arrived={"s": 2000}, passed={"s->m": 10}, left={}, cut={"s->m": 1950})
    assert work().wanted(sample(flows, keep=0.3)) == pytest.approx(0.3)


@pytest.mark.parametrize("flows", [None, Flows(), Flows(cut={"elsewhere->m": 10})])
def test_nothing_that_is_known_to_be_cut_counts_whole(flows: Flows | None) -> None:
    assert work().wanted(Sample(at=1.0, started=0.0, arrived=10, flows=flows)) == 1.0
    assert RowWork().wanted(Sample(at=1.0, started=0.0, arrived=10, cut=5)) == 1.0


def test_a_cut_does_not_look_like_rows_that_pass_whatever_is_dropped() -> None:
    """Three of four rows were cut in front of a drop that keeps a third of them."""
    cut = Sample(at=1.0, started=0.0, arrived=1200, kept=100, cut=900, keep=1 / 3)
    taken_whole, by_what_passes = KeepResponse(), KeepResponse()
    for _ in range(20):
        taken_whole.learn(cut)
        by_what_passes.learn(cut, 1 / 3)
    assert by_what_passes.untouched == pytest.approx(0.0)
    assert taken_whole.untouched > 0.3  # of a drop that keeps what it should
