"""What the documentation says of `bench network` is what the committed run has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamshed.lab.bench.network import FACTORS, POLICIES, summary

DOCS = Path(__file__).parents[2] / "docs"
RUN = json.loads((DOCS / "experiments" / "bench-network.json").read_text())


@pytest.mark.parametrize("factor", FACTORS)
def test_policies_are_in_order_and_inside_the_bound(factor: float) -> None:
    told = {one["policy"]: one for one in RUN["summary"] if one["factor"] == factor}
    assert list(told) == list(POLICIES)
    utilities = [told[policy]["utility"] for policy in POLICIES]
    assert utilities == sorted(utilities)
    assert all(told[policy]["latency_p99"] <= RUN["bound"] for policy in POLICIES if policy != "none")
    assert told["none"]["latency_p99"] > RUN["bound"]


def test_the_summary_is_that_of_the_rounds() -> None:
    assert summary(RUN["rows"]) == RUN["summary"]


def test_the_table_has_these_figures() -> None:
    table = (DOCS / "networks-on-spark.md").read_text()
    for one in RUN["summary"]:
        outputs = ", ".join(f"{share:.2f}" for share in one["by_output"].values())
        assert f"| {one['factor']:g} |" in table
        assert f"| {outputs} | {one['latency_median']:.1f} s | {one['latency_p99']:.1f} s |" in table
