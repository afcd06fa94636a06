"""The SIC experiments, small; and what the committed tables show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamshed.errors import InvalidArgument
from streamshed.lab.experiments import sic_correlation, sic_federated, sic_heterogeneous, sic_timeline
from streamshed.lab.experiments.registry import find, perform
from streamshed.lab.experiments.sic_fairness import measure as fairness
from streamshed.lab.experiments.sic_queries import deployed, mixed, query
from streamshed.network.catalog import Catalog
from streamshed.sim.network.rows import Rows
from streamshed.sim.nodes.deployment import FederatedQuery

FOLDER = Path(__file__).parents[2] / "docs" / "experiments"


def silent(done: int, total: int, what: str) -> None:
    assert 0 <= done <= total


def committed(name: str) -> list[dict[str, float]]:
    return json.loads((FOLDER / f"{name}.json").read_text())["rows"]


def test_fairness_rows_have_what_they_must_and_draw(tmp_path):
    rows = fairness(1, 1, silent, overload=(2.0,), queries=(10,), seconds=25.0, settled=15.0)
    fields = ["x", "queries", "algorithm", "jain", "sic_mean", "sic_min", "sic_max", "throughput"]
    assert list(rows[0].__dataclass_fields__) == fields
    found = {row.algorithm: row for row in rows}
    assert found["fair"].jain > found["random"].jain > found["input-uniform"].jain
    find("sic-fairness").draw(rows, tmp_path / "fair.png")
    assert (tmp_path / "fair.png").stat().st_size > 10_000


def test_heterogeneous_rows_and_picture(tmp_path):
    rows = sic_heterogeneous.measure(1, 1, silent, factors=(10.0,), queries=10, seconds=25.0, settled=15.0)
    found = {row.algorithm: row for row in rows}
    assert found["fair"].sic_light == pytest.approx(found["fair"].sic_heavy, abs=0.06)
    assert found["input-uniform"].sic_light < 0.5 * found["input-uniform"].sic_heavy
    sic_heterogeneous.draw(rows, tmp_path / "heavy.png")


def test_federated_rows_and_picture(tmp_path):
    rows = sic_federated.measure(
        1, 1, silent, delays=(0.05, 5.0), nodes=(3,), loads=("even",), queries=4, seconds=35.0, settled=25.0
    )
    found = {(row.algorithm, row.x): row.jain for row in rows}
    assert found["fair", 0.05] > 0.97
    assert found["fair, as told", 5.0] < found["fair", 5.0]
    assert found["random", 0.05] == found["random", 5.0] < found["fair", 0.05]
    assert found["all-knowing", 0.05] == found["all-knowing", 5.0] > 0.97
    sic_federated.draw(rows, tmp_path / "federated.png")


def test_who_knows_all_loads_raises_all_queries_alike_until_a_node_of_theirs_is_full():
    """By hand: `a` has room for half of its three queries, `b` for all that comes to it."""

    def loaded(name: str, place: str, load: float) -> FederatedQuery:
        network = query("average", name, 10.0, 1.0)
        scale = load / Catalog.of(network).load
        scaled = replace(network, boxes=tuple(replace(box, cost=box.cost * scale) for box in network.boxes))
        return FederatedQuery(scaled, dict.fromkeys((box.name for box in network.boxes), place))

    queries = [loaded("p", "a", 1.2), loaded("q", "a", 0.6), loaded("r", "a", 0.2), loaded("s", "b", 0.7)]
    assert sic_federated.max_min(queries, ["a", "b"]).tolist() == pytest.approx([0.5, 0.5, 0.5, 1.0])


def test_timeline_rows_and_picture(tmp_path):
    rows = sic_timeline.measure(1, 1, silent, until=60.0)
    by_time = {(row.algorithm, row.x): row for row in rows}
    assert by_time["fair", 38.0].queries == 24
    assert by_time["fair", 58.0].queries == 36
    assert by_time["fair", 58.0].sic_mean < by_time["fair", 38.0].sic_mean
    sic_timeline.draw(rows, tmp_path / "timeline.png")


def test_correlation_rows_and_picture(tmp_path):
    rows = sic_correlation.measure(1, 1, silent, overload=(2.0,))
    errors: dict[str, list[float]] = {}
    for row in rows:
        errors.setdefault(row.algorithm, []).append(row.error_mean - (1 - row.sic_mean))
    assert set(errors) == set(sic_correlation.KINDS)
    assert np.mean(errors["count"]) == pytest.approx(0.0, abs=0.05)
    assert np.mean(errors["join"]) > 0.1
    assert np.mean(errors["average"]) < -0.15
    sic_correlation.draw(rows, tmp_path / "error.png")


def test_errors_of_results():
    def result(start: float, x: float) -> Rows:
        columns = {"window_start": np.array([start]), "x": np.array([x])}
        return Rows(columns, np.array([start]), np.zeros(1, np.uint64))

    truth = [result(20.0, 4.0), result(21.0, 10.0), result(50.0, 1.0)]  # the last is not compared
    assert sic_correlation.error_of("average", truth, [result(20.0, 5.0)]) == pytest.approx((0.25 + 1.0) / 2)
    assert sic_correlation.error_of("join", truth, [result(21.0, 10.0)]) == 0.5
    assert sic_correlation.error_of("count", [], []) == 0.0


def test_load_is_what_was_asked_for_and_evenly_placed():
    nodes = ["a", "b", "c", "d"]
    queries = mixed(40, nodes, 2.0, seed=3, spread=(1, 3))
    assert sum(Catalog.of(each.network).load for each in queries) == pytest.approx(8.0)
    load = dict.fromkeys(nodes, 0.0)
    for each in queries:
        rates = Catalog.of(each.network).arc_rates
        for box in each.network.order:
            load[each.nodes[box.name]] += box.cost * sum(rates[on] for on in each.network.arcs_into(box.name))
    assert max(load.values()) / min(load.values()) < 1.15
    assert {len(each.places) for each in queries} == {1, 2, 3}
    assert deployed([queries[0].network], [3], nodes)[0].keys() == queries[0].nodes.keys()


def test_kinds_that_do_not_exist_are_refused():
    with pytest.raises(InvalidArgument, match="no such kind"):
        query("median", "q", 1.0, 1.0)


def test_the_same_seed_gives_the_same_rows():
    experiment = find("sic-fairness")
    small = type(experiment)(
        "small", "", "", 1, lambda runs, seed, progress: fairness(runs, seed, progress, overload=(2.0,),
        queries=(5,), seconds=12.0, settled=8.0), experiment.draw,
    )  # fmt: skip
    assert perform(small, runs=1, seed=2, progress=silent) == perform(small, runs=1, seed=2, progress=silent)


# ── what the committed tables show ───────────────────────────────────────────────────────────────


def test_fair_is_fair_at_every_overload_and_random_is_not():
    rows = {(row["x"], row["queries"], row["algorithm"]): row for row in committed("sic-fairness")}
    for (load, count, name), row in rows.items():
        if name != "fair":
            continue
        random = rows[load, count, "random"]
        assert row["jain"] >= 0.99, (load, count)
        assert random["jain"] < row["jain"]
        assert row["throughput"] >= 0.98 * random["throughput"], (load, count)
        if load >= 2:
            assert random["jain"] < row["jain"] - 0.01
            assert rows[load, count, "input-uniform"]["jain"] < random["jain"]


def test_feedback_at_the_default_makes_several_nodes_fair_and_old_feedback_as_it_is_told_does_not():
    rows = {
        (row["x"], row["nodes"], row["load"], row["algorithm"]): row["jain"] for row in committed("sic-federated")
    }
    for nodes in (4, 8, 16):
        assert rows[0.05, nodes, "even", "fair"] >= 0.97
        assert rows[10.0, nodes, "even", "fair"] >= 0.95
        assert rows[10.0, nodes, "even", "fair, as told"] < rows[0.05, nodes, "even", "fair, as told"] < 0.95
