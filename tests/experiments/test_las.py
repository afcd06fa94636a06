"""The LAS experiments: what the paper says holds on a few runs, and the files have the right form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamshed.lab.experiments import las, las_distribution, las_precision, las_timeline, registry
from streamshed.lab.experiments.las import Point, QueueRow
from streamshed.sim.operator.streams import StreamShape

FIGURES = ("throughput", "threshold", "wmax", "distribution", "precision", "timeline")
FIELDS = [
    "x", "algorithm", "start", "queue_ms_mean", "queue_ms_min", "queue_ms_max", "dropped_mean", "shedding_ratio",
    "completion_ms_mean",
]  # fmt: skip


def silent(done: int, total: int, what: str) -> None:
    assert 0 <= done <= total
    assert what


def at(rows: Sequence[QueueRow], x: float, start: str = "warm") -> dict[str, QueueRow]:
    return {row.algorithm: row for row in rows if row.x == x and row.start == start}


def test_at_the_papers_defaults() -> None:
    """Issue 5, point 1, on 100 runs; the committed tables have 500."""
    rows = las.measure([Point(25)], 100, 1, silent)
    warm, cold = at(rows, 25), at(rows, 25, "cold")
    assert list(warm) == list(las.ALGORITHMS)
    truth = warm["full-knowledge"]
    assert truth.completion_ms_mean is not None
    assert 6.4 + 1.0 < truth.completion_ms_mean < 6.4 + 6.4
    assert truth.queue_ms_mean == pytest.approx(6.4, abs=0.02)
    assert truth.dropped_mean == pytest.approx(0.25, abs=0.005)
    assert warm["las"].queue_ms_mean is not None
    assert 5.5 <= warm["las"].queue_ms_mean <= 7.0
    for name in ("las", "las-letter"):
        assert warm[name].dropped_mean <= truth.dropped_mean + 0.04
    for name in ("straw-man", "base-line"):
        assert warm[name].queue_ms_mean > 60
        assert cold[name] == QueueRow(25, name, "cold", *_rest(warm[name]))
    # The paper assumes that nothing has to be shed while the first matrices are learned; here is what if it has.
    assert cold["las-letter"].queue_ms_mean > 10 * warm["las-letter"].queue_ms_mean


@pytest.mark.parametrize("row", ["las", "full-knowledge"])
def test_as_it_is_used_it_waits_between_5_5_and_7_ms(row: str) -> None:
    """Issue 5, point 1, in the committed table."""
    found = at(committed("throughput"), 25.0)
    assert found[row].queue_ms_mean is not None
    assert 5.5 <= found[row].queue_ms_mean <= 7.0
    assert found[row].dropped_mean <= found["full-knowledge"].dropped_mean + 0.04
    assert found["full-knowledge"].queue_ms_mean == pytest.approx(6.4, abs=0.02)
    assert found["full-knowledge"].dropped_mean == pytest.approx(0.25, abs=0.005)
    assert min(found[name].queue_ms_mean for name in ("straw-man", "base-line")) > 60


@pytest.mark.xfail(reason="7.07 ± 0.04 ms over 5,000 runs: the letter of the paper misses it", strict=True)
def test_las_to_the_letter_waits_between_5_5_and_7_ms() -> None:
    found = at(committed("throughput"), 25.0)["las-letter"].queue_ms_mean
    assert found is not None
    assert 5.5 <= found <= 7.0


def _rest(row: QueueRow) -> tuple[float | None, ...]:
    spread = (row.queue_ms_mean, row.queue_ms_min, row.queue_ms_max)
    return (*spread, row.dropped_mean, row.shedding_ratio, row.completion_ms_mean)


def test_synchronising_often_holds_the_target_and_drops_less() -> None:
    found = at(las.measure([Point(25)], 40, 1, silent), 25)
    plain, often = found["las-letter"], found["las"]
    assert often.queue_ms_mean is not None
    assert plain.queue_ms_max is not None
    assert often.queue_ms_max is not None
    assert 5.5 <= often.queue_ms_mean <= 7.0
    assert often.queue_ms_max < plain.queue_ms_max
    assert often.dropped_mean < plain.dropped_mean - 0.01


def test_nothing_is_shed_without_need_and_no_ratio_without_a_base() -> None:
    rows = las.measure([Point(-10, StreamShape(under_provisioning=-0.1))], 3, 1, silent)
    for row in at(rows, -10).values():
        assert row.dropped_mean < 0.02
        assert row.shedding_ratio is None


def test_coarse_sketches_drop_more_and_skew_helps() -> None:
    rows = las.measure([las_precision.POINTS[0]], 20, 1, silent)
    for name in ("las", "las-letter"):
        coarse = at(rows, 1.0)[name]
        assert coarse.queue_ms_mean is not None
        assert coarse.queue_ms_mean < 0.5
        assert coarse.dropped_mean > 0.55
    points = [point for point in las_distribution.POINTS if point.x in (0.0, 2.0)]
    rows = las.measure(points, 60, 1, silent)
    even, skewed = at(rows, 0.0)["las-letter"].queue_ms_mean, at(rows, 2.0)["las-letter"].queue_ms_mean
    assert even is not None
    assert skewed is not None
    assert skewed <= las.THRESHOLD_MS < even


def test_runs_repeat_exactly() -> None:
    point = [Point(1.0, StreamShape(rows=4_000))]
    assert las.measure(point, 2, 7, silent) == las.measure(point, 2, 7, silent)
    assert las.measure(point, 2, 7, silent) != las.measure(point, 2, 8, silent)


def test_the_timeline() -> None:
    """Issue 5, point 2, on 10 runs: who is back at the target at the end of each phase."""
    tau = las_timeline.THRESHOLD_MS
    rows = las_timeline.measure(10, 1, silent)
    ends = {phase.name: las_timeline.PHASE_ROWS * (n + 1.0) for n, phase in enumerate(las_timeline.PHASES)}
    for name, end in ends.items():
        found = at(rows, end)
        often, truth = found["las"], found["full-knowledge"]
        assert often.queue_ms_mean is not None
        assert often.queue_ms_mean <= 1.2 * tau, name
        assert often.dropped_mean <= truth.dropped_mean + 0.03, name
        if name not in "EFG":  # F takes the paper's LAS longer than the phase lasts
            assert found["las-letter"].queue_ms_mean <= 1.2 * tau, name
    assert at(rows, ends["G"])["straw-man"].queue_ms_min > 100 * tau
    assert at(rows, ends["E"])["las-letter"].dropped_mean == 0


@pytest.mark.parametrize("figure", FIGURES)
def test_files_and_pictures(figure: str, tmp_path: Path) -> None:
    experiment = registry.find(f"las-{figure}")
    rows = [
        QueueRow(x, algorithm, start, x, x / 2, 2 * x, 0.25, None if x == 1 else 0.1, x + 1)
        for x in (1.0, 2.0)
        for algorithm in las.ALGORITHMS
        for start in las.STARTS
    ]
    rows.append(QueueRow(3.0, "las", "cold", None, None, None, 1.0, None, None))
    data, picture = registry.Figure(experiment.name, 7, 3, tuple(rows)).write(tmp_path, experiment.draw)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(json.loads(data.read_text())["rows"][0]) == FIELDS


def committed(figure: str) -> list[QueueRow]:
    path = Path(__file__).parents[2] / "docs" / "experiments" / f"las-{figure}.json"
    return [QueueRow(**row) for row in json.loads(path.read_text())["rows"]]


def test_the_committed_timeline() -> None:
    """Issue 5, point 2: at the end of each phase within 20 % of τ, but for E, where nothing has to be shed."""
    tau, rows = las_timeline.THRESHOLD_MS, committed("timeline")
    for number, phase in enumerate(las_timeline.PHASES):
        found = at(rows, las_timeline.PHASE_ROWS * (number + 1.0))
        if phase.name == "E":
            assert found["las"].dropped_mean == 0
        else:
            assert found["las"].queue_ms_mean == pytest.approx(tau, rel=0.2), phase.name
    # Straw-Man has not recovered from F when it ends, nor 20,000 rows later.
    for end in (120_000.0, 140_000.0):
        assert at(rows, end)["straw-man"].queue_ms_min > 100 * tau
    # The letter of the paper holds the threshold up to E, from far below, and F takes it longer than F lasts.
    for number, name in enumerate("ABCD"):
        assert at(rows, las_timeline.PHASE_ROWS * (number + 1.0))["las-letter"].queue_ms_mean < 0.8 * tau, name
    assert at(rows, 120_000.0)["las-letter"].queue_ms_mean > 100 * tau


def test_the_committed_distribution() -> None:
    """Skewed streams are held better than uniform ones."""
    for name in ("las", "las-letter"):
        waits = [at(committed("distribution"), x)[name].queue_ms_mean for x in las_distribution.SKEW]
        assert waits[0] > las.THRESHOLD_MS > waits[3] > waits[-1]
    dropped = [at(committed("distribution"), x)["las"].dropped_mean for x in las_distribution.SKEW]
    assert dropped == sorted(dropped, reverse=True)


@pytest.mark.parametrize("figure", FIGURES)
def test_the_committed_tables(figure: str) -> None:
    """At least 500 runs a point, and the fields of the issue."""
    path = Path(__file__).parents[2] / "docs" / "experiments" / f"las-{figure}.json"
    content = json.loads(path.read_text())
    assert content["name"] == f"las-{figure}"
    assert content["runs"] >= 500
    assert list(content["rows"][0]) == FIELDS
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert {row["start"] for row in content["rows"]} == set(las.STARTS)
