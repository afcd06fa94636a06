"""`bench fair` reads SIC off what batches counted, and says nothing where nothing was counted."""

from __future__ import annotations

import pytest

from streamshed.lab.bench import fair
from streamshed.lab.bench.audience import Played
from streamshed.quality import Report
from streamshed.records import Flows, Sample


def played(samples: list[Sample]) -> Played:
    return Played("fair", fair.network(), None, {}, Report(), [], samples)  # type: ignore[arg-type]


def sample(started: float, keep: float) -> Sample:
    """A batch in which each arc out of a source passed a share of 1,000 rows, and filters all that came."""
    network = fair.network()
    arrived = dict.fromkeys(fair.SHARES, 1000)
    passed: dict[str, int] = {}
    left: dict[str, int] = {}
    for node in network.heads:
        for on in network.arcs_into(node.name):
            tail = on.partition("->")[0]
            passed[on] = round(1000 * keep) if tail in arrived else left[tail]
        left[node.name] = sum(passed[on] for on in network.arcs_into(node.name))
    flows = Flows(arrived=arrived, passed=passed, left=left, thinned=True)
    return Sample(at=started + 1, started=started, arrived=3000, kept=3000, flows=flows)


def test_sic_is_that_of_the_batches_that_began_in_the_span() -> None:
    found = fair.sic(
        played([sample(1.0, 1.0), sample(5.0, 0.25), sample(6.0, 0.75), sample(20.0, 1.0)]), 4.0, 10.0
    )
    assert found == pytest.approx(dict.fromkeys((f"q{n}" for n in range(8)), 0.5))


def test_without_a_batch_nothing_is_said() -> None:
    assert fair.sic(played([sample(1.0, 1.0)]), 4.0, 10.0) == {}
    rows = [
        {"policy": policy, "jain": value, "sic_mean": value, "p99_s": 3.0}
        for policy, value in (("fair", 0.99), ("fair", None), ("lsrm-random", 0.8), ("input-uniform", None))
    ]
    told = fair.told(rows, 100.0)
    assert (told["jain"], told["jain_random"], told["jain_uniform"], told["sic_mean_uniform"]) == (
        0.99,
        0.8,
        None,
        None,
    )
    keys = ["bench", "jain", "jain_random", "jain_uniform", "sic_mean", "sic_mean_uniform", "p99_s", "bound_s"]
    assert list(told)[:8] == keys


def test_sources_send_what_they_should() -> None:
    lines = fair.rows(2000).take(2000).decode().splitlines()
    shares = {name: sum(line.startswith(f'{{"g": "{name}"') for line in lines) / 2000 for name in fair.SHARES}
    assert shares == pytest.approx(fair.SHARES, abs=0.04)
