"""Targets in words, and the parameters of Load-Aware Shedding."""

from __future__ import annotations

from typing import Any

import pytest

from streamshed.errors import InvalidArgument
from streamshed.las.check import ABSOLUTE, AVERAGE, Check, absolute, average, parse
from streamshed.las.settings import LasSettings
from streamshed.sketch.count_min import Size


@pytest.mark.parametrize(
    ("words", "check"),
    [
        ("avg 2 seconds", Check(AVERAGE, 2e9, 0)),
        ("ABS 500ms", Check(ABSOLUTE, 5e8, 0)),
        (" max 500 ms ", Check(ABSOLUTE, 5e8, 0)),
        ("avg 1 s over 40 rows", Check(AVERAGE, 1e9, 40)),
    ],
)
def test_targets_in_words(words: str, check: Check) -> None:
    assert parse(words) == check


@pytest.mark.parametrize(
    "words",
    ["2 seconds", "p99 2 s", "abs 2 s over 10 rows", "max 2 s over 10 rows", "avg 2 s over 0 rows", "", None],
)
def test_unknown_targets(words: Any) -> None:
    with pytest.raises(InvalidArgument, match="a latency target"):
        parse(words)


@pytest.mark.parametrize("words", ["avg 0 seconds", "abs -1 s", "avg soon"])
def test_targets_that_are_no_time(words: str) -> None:
    with pytest.raises(InvalidArgument, match="a length of time above 0"):
        parse(words)


@pytest.mark.parametrize("threshold", [0, -1.0, float("nan"), float("inf"), True, None])
@pytest.mark.parametrize("make", [average, absolute])
def test_a_threshold_is_above_0(make: Any, threshold: Any) -> None:
    with pytest.raises(InvalidArgument, match="above 0 and finite"):
        make(threshold)


@pytest.mark.parametrize("span", [-1, 1.5, True])
def test_a_span_is_a_count(span: Any) -> None:
    with pytest.raises(InvalidArgument, match="whole number of rows"):
        average(1.0, over=span)


@pytest.mark.parametrize(
    ("name", "wrong", "problem"),
    [
        ("epsilon", (0, -0.5, 1.5, float("nan"), True), "epsilon must be above 0 and at most 1"),
        ("delta", (0, 1, float("nan"), True), "delta must be above 0 and below 1"),
        ("window", (0, -1, 1.5, True), "window must be a whole number"),
        ("tolerance", (0, 1, -1, float("nan"), True), "tolerance must be"),
        ("resync", (0, -1, 1.5, True), "resync must be"),
        ("floor", (-0.1, 1.1, float("nan"), True), "floor must be"),
    ],
)
def test_what_no_shedder_can_work_with(name: str, wrong: tuple[Any, ...], problem: str) -> None:
    for value in wrong:
        with pytest.raises(InvalidArgument, match=problem):
            LasSettings(**{name: value})


def test_epsilon_1_is_the_smallest_sketch() -> None:
    """⌈e/1⌉ columns, the end of the paper's Figure 8."""
    assert LasSettings(epsilon=1.0).size == LasSettings(epsilon=1).size == Size(rows=4, columns=3)
