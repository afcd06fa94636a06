import pytest

from streamshed.lab.experiments import bench_road_map


def test_the_benchmark_reports_every_size_and_the_exponent():
    told = []
    result = bench_road_map.run(lambda *step: told.append(step), sizes=(10, 40), repeats=2)
    assert [row["boxes"] for row in result["sizes"]] == [10, 40]
    assert result["sizes"][1]["rows"] > result["sizes"][0]["rows"] > 0
    assert all(len(row["build_seconds_all"]) == 2 for row in result["sizes"])
    assert all(row["optimal_milliseconds"] > 0 for row in result["sizes"])
    assert told[-1] == (4, 4, "done")


def test_the_exponent_is_the_slope_of_the_logarithms():
    rows = [{"boxes": size, "build_seconds": 3.0 * size**1.5} for size in (10, 100, 1000)]
    assert bench_road_map._exponent(rows) == pytest.approx(1.5)
