"""What the committed tables in docs/experiments show, claim by claim (LSRM 6).

The tables are made by `streamshed experiment NAME --out docs/experiments`; a change that makes a claim untrue
shows here as soon as they are made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streamshed.lab.experiments import las_spark_mentions, lsrm, lsrm_sharing, lsrm_skew
from streamshed.lab.experiments import road_map_distance as distances
from streamshed.lab.experiments.registry import FigureRow, names
from streamshed.lab.experiments.road_map_regret import OWN

FOLDER = Path(__file__).parents[2] / "docs" / "experiments"


def table(name: str) -> list[FigureRow]:
    return [FigureRow(**row) for row in json.loads((FOLDER / f"{name}.json").read_text())["rows"]]


def by_excess(name: str) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for row in table(name):
        found.setdefault(lsrm.excess_of(row.x), {})[row.algorithm] = row.loss_mean
    assert list(found) == [22, 50, 100, 150, 200, 250, 307]
    return found


def ratios(name: str, algorithm: str) -> dict[tuple[str, float], float]:
    return {(row.series, row.x): row.loss_mean for row in table(name) if row.algorithm == algorithm}


def lines(found: dict[tuple[str, float], float], key: Callable[[tuple[str, float]], object]) -> list[list[float]]:
    """The ratios along each line of a figure, in order."""
    along: dict[object, list[float]] = {}
    for at, ratio in found.items():
        along.setdefault(key(at), []).append(ratio)
    return list(along.values())


# The table of `promise` has a row for each output under each policy, some megabytes: it is not committed.
@pytest.mark.parametrize("name", [name for name in names() if name != "promise"])
def test_every_experiment_has_its_table_and_its_picture(name: str) -> None:
    content = json.loads((FOLDER / f"{name}.json").read_text())
    assert content["name"] == name
    assert content["runs"] >= (10 if name.startswith("lsrm") else 1)
    assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    measure = {"las": "queue_ms", "sic": "sic"}.get(name.split("-")[0], "loss")
    measure = "error" if name == "sic-correlation" else measure
    for row in content["rows"]:
        least, mean, most = (row[f"{measure}_{kind}"] for kind in ("min", "mean", "max"))
        assert least <= mean + 1e-9
        assert mean <= most + 1e-9


def test_figure_9_qos_driven_shedding_loses_least_tuple_utility() -> None:
    for excess, lost in by_excess("lsrm-tuple-utility").items():
        best = min(lost[name] for name in lsrm.ADMISSION)
        assert lost["lsrm-semantic"] <= lost["lsrm-random"] <= best
        if excess >= 100:
            assert lost["lsrm-random"] < 0.9 * best


def test_figure_10_semantic_drops_lose_at_most_half_the_value_at_moderate_load() -> None:
    for excess, lost in by_excess("lsrm-value-utility").items():
        assert lost["lsrm-semantic"] == min(lost.values())
        if excess <= 100:
            assert lost["lsrm-semantic"] <= lost["lsrm-random"] / 2


def test_figure_11_the_ratio_grows_with_skew_and_shrinks_with_rate() -> None:
    found = ratios("lsrm-skew", lsrm_skew.RATIO)
    for by_skew in lines(found, lambda at: at[0]):
        assert by_skew == sorted(by_skew)
    for by_rate in lines(found, lambda at: at[1]):
        assert by_rate == sorted(by_rate, reverse=True)


def test_figure_12_the_advantage_grows_with_skew_and_fades_at_extreme_load() -> None:
    found = ratios("lsrm-sharing", lsrm_sharing.RATIO)
    for excess, by_skew in zip((22, 50, 100, 150, 200, 250, 307), lines(found, lambda at: at[1]), strict=True):
        if excess <= 200:
            assert by_skew == sorted(by_skew)
            assert by_skew[-1] > 1.3
        else:
            assert all(ratio == pytest.approx(1.0, abs=0.1) for ratio in by_skew)
    even, *skewed = lines(found, lambda at: at[0])
    assert all(ratio == pytest.approx(1.0, abs=0.02) for ratio in even)
    for by_load in skewed:
        assert by_load[:6] == sorted(by_load[:6], reverse=True)


def test_on_spark_mentions_are_held_at_the_target_where_straw_man_diverges() -> None:
    waits: dict[str, list[tuple[float, float, float]]] = {}
    for row in json.loads((FOLDER / "las-spark-mentions.json").read_text())["rows"]:
        point = (row["x"], row["queue_ms_mean"], row["arrived"] * (1 - row["dropped_mean"]))
        waits.setdefault(row["algorithm"], []).append(point)
    settled = las_spark_mentions.WARM_UP + 10
    for name in ("las", "full-knowledge"):
        points = [(wait, kept) for x, wait, kept in waits[name] if x >= settled]
        mean = sum(wait * kept for wait, kept in points) / sum(kept for _, kept in points)
        assert mean == pytest.approx(2000.0, rel=0.15), name
    straw_man = [wait for _, wait, _ in waits["straw-man"]]
    assert straw_man == sorted(straw_man)
    assert straw_man[-1] > 3 * 2000.0


def test_on_spark_las_comes_back_after_every_change_but_f_and_straw_man_after_none() -> None:
    rows = json.loads((FOLDER / "las-spark-timeline.json").read_text())["rows"]
    target = 2000.0
    last = {
        (row["algorithm"], row["phase"]): row["queue_ms_mean"] for row in rows if row["queue_ms_mean"] is not None
    }
    # In F costs have doubled; it is on its way back when the phase ends, and there in G.
    for phase in "ABCDEG":
        assert last["las", phase] < 1.2 * target, phase
    assert last["las", "F"] < 1.6 * target
    assert max(row["queue_ms_mean"] for row in rows if row["algorithm"] == "las") < 1.7 * target
    assert min(last["straw-man", phase] for phase in "CDEF") > 5 * target


def test_only_where_own_and_shared_streams_meet_is_the_road_map_far_from_the_optimum() -> None:
    found = {(row.series, row.algorithm, row.x): row.loss_mean for row in table("road-map-distance")}
    assert found[distances.ALONE, distances.WITHIN, 100.0] == 100.0
    assert found[distances.MEETING, distances.WITHIN, 100.0] >= 75.0
    cost: dict[str, float] = {}
    for (series, kind, _), lost in found.items():
        if series == distances.WORST_ONES:
            cost[kind] = cost.get(kind, 0.0) + lost
    assert cost[OWN] == max(cost.values())
