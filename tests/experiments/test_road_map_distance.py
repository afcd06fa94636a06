"""The road map against the optimum: what is reported adds up."""

from __future__ import annotations

import pytest

from streamshed.lab.experiments import road_map_distance as distances
from streamshed.lab.experiments.road_map_regret import BRANCH, LONE, OWN, SHARED, kinds, regrets
from streamshed.network import Builder, Catalog
from streamshed.network.value_flow.flow_model import FlowModel
from streamshed.policies.road_map.segments import Segments


def test_distances_are_told_apart_by_sharing_and_the_worst_are_explained() -> None:
    rows = distances.measure(1, 3, lambda *step: None, networks=10, worst=2, boxes=(12, 20))
    found = {(row.series, row.algorithm, row.x): row.loss_mean for row in rows}
    assert found[distances.ALONE, distances.WITHIN, 100.0] == 100.0
    for kind in (distances.ALONE, distances.MEETING):
        far = [found[kind, distances.DISTANCE, quantile] for quantile in distances.QUANTILES]
        assert far == sorted(far)
        assert far[0] >= -1e-7
    assert {row.x for row in rows if row.series == distances.WORST_ONES} == {1, 2}
    assert distances.JOINS in {row.series for row in rows}
    assert max(row.loss_max for row in rows if row.algorithm == distances.BELOW) <= 0.005


def test_the_regrets_of_all_steps_make_up_the_distance() -> None:
    some = [case for case in distances.cases(30, 1, (12, 20)) if case.shape.shared and not case.joins]
    furthest = max((distances.compare(case) for case in some), key=lambda each: each.distance)
    assert furthest.distance > 0.02
    cost = regrets(furthest.case.catalog())
    assert sum(cost.values()) == pytest.approx(furthest.distance, abs=2e-3)


def test_arcs_are_known_by_whom_they_feed() -> None:
    network = (
        Builder("n")
        .source("a", "x INT", rate=1)
        .source("b", "x INT", rate=1)
        .source("c", "x INT", rate=1)
        .filter("split", "a", "x > 0")
        .filter("left", "split", "x > 1")
        .union("both", ["split", "b"])
        .filter("apart", "c", "x > 2")
        .output("o", "left")
        .output("p", "both")
        .output("q", "apart")
        .build()
    )
    segments = Segments.of(FlowModel(Catalog.of(network)))
    named = {segment.arc: kind for segment, kind in zip(segments.all, kinds(segments), strict=True)}
    assert named == {
        "a->split": SHARED,
        "b->both": OWN,
        "c->apart": LONE,
        "split->left": BRANCH,
        "split->both": BRANCH,
    }
