"""The demo, shortened: that its pieces fit. What it shows is a matter of time, and not tested here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamshed.lab.bench import shop
from streamshed.network.catalog import Catalog
from streamshed.policies.registry import network_policy
from tests.policies.test_parse_planner import truly

SHORT = """
import sys
from pathlib import Path
from rich.console import Console
from streamshed.lab import demo
console = Console(width=120)
times = demo.Times(calm=1.0, burst=2.0, after=0.5, settle=2.0, calibrate=1.0)
console.print(demo.summary_table(demo.run(console, Path(sys.argv[1]), 4.0, times)))
"""


@pytest.mark.cluster
def test_a_short_demo_tells_of_all_policies_on_the_same_arrivals(tmp_path: Path) -> None:
    # In a process of its own: the demo sets up Spark to its liking.
    command = [sys.executable, "-c", SHORT, str(tmp_path / "demo.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads((tmp_path / "demo.json").read_text())
    assert [row["policy"] for row in told["rows"]] == ["none", "input-uniform", "lsrm-semantic"]
    assert len({row["rows_arrived"] for row in told["rows"]}) == 1
    for row in told["rows"]:
        assert set(row["utility_by_output"]) == {"fraud", "offers", "suggestions", "trends"}
        assert all(0 <= share <= 1.05 for share in row["utility_by_output"].values())
        assert row["policy"] in done.stdout or "plain Spark" in done.stdout
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_shop_is_a_network_that_both_policies_can_shed_from() -> None:
    network = shop.network()
    assert len(network.outputs) >= 4
    assert {"value", "loss"} <= {
        kind for o in network.outputs for kind in ("value", "loss") if getattr(o.qos, kind)
    }
    catalog = Catalog.of(network, capacity=2.0)
    catalog = catalog.scaled(3 * catalog.limit / catalog.load)
    assert catalog.parses["events"] > 0
    found = {}
    for name in ("input-uniform", "lsrm-semantic"):
        decision = network_policy(name).planner(catalog).decide()
        assert decision.row is not None
        found[name], load = truly(catalog, decision)
        assert load <= 1.001 * catalog.limit
    # By what rows are worth: 2.49 and 2.83 of 4.
    assert found["lsrm-semantic"] > found["input-uniform"] + 0.2


def test_events_are_the_same_each_time_and_of_one_width() -> None:
    lines = shop.events(1000)
    first = lines.take(1500)
    lines.rewind()
    assert lines.take(1500) == first == shop.events(1000).take(1500)
    rows = [json.loads(line) for line in first.decode().splitlines()]
    assert len(first) == 1500 * lines.width
    assert {"visitor", "cart", "items", "seconds"} == set(rows[0])
