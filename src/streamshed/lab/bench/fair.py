"""`bench fair`: eight queries of different weight on a network at twice what this machine can process.

Three sources send six, three and one tenth of the rows; the queries read one of them or two, keep different shares
of the rows, and run Python functions of different length. `fair`, `lsrm-random` and `input-uniform` get the same
rows at the same times (see `audience`). A query's SIC is worked out from what the batches counted after settling,
over one source time window; `delivered` beside it is what the sinks counted, of what they would have got of the
same arrivals without any loss.

What must come out, written before the first run: Jain's index of `fair` at least 0.97, those of the others clearly
lower (`lsrm-random` sheds what costs most first, `input-uniform` takes the same load from the source that has
little), and a p99 latency within the bound.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

import streamshed.lab.bench.play as playing
from streamshed.lab.bench import audience
from streamshed.lab.bench.audience import Able, Played
from streamshed.lab.bench.feeder import Lines
from streamshed.lab.bench.play import Say
from streamshed.network import Builder, Network
from streamshed.network.graph import ends
from streamshed.quality.recent_information import WINDOW, RecentInformation
from streamshed.quality.sic import information, jain

POLICIES = ("fair", "lsrm-random", "input-uniform")
FACTOR = 2.0
BOUND = 6.0
CALM = 10.0
SETTLING = WINDOW + 10.0
"""Seconds: until the first plan, and then until nothing of the time before it is in the source time window."""
COUNTED = WINDOW
CALM_LOAD = 0.4
WARM_UP = 25.0
"""Seconds of a play that does not count: the JVM compiles what drops as well."""
SHARES = {"a": 0.6, "b": 0.3, "c": 0.1}
"""Of the rows, that each source sends."""
QUERIES = (("a", 0, "short"), ("a", 0, "middle"), ("a", 50, "long"), ("ab", 20, "short"),
           ("b", 0, "middle"), ("bc", 40, "middle"), ("c", 0, "long"), ("c", 30, "short"))  # fmt: skip
"""For each its sources, the least value that it takes, and how long its function is."""
_FUNCTIONS = "streamshed.lab.bench.network"
_COSTS = {"short": 6e-5, "middle": 1.2e-4, "long": 1.8e-4}


def network() -> Network:
    builder = Builder("eight")
    for name, share in SHARES.items():
        builder.source(name, "id LONG, v DOUBLE, at TIMESTAMP", parse="json", arrived="at", rate=1000 * share,
                       values={"v": (0, 100)})  # fmt: skip
    for number, (sources, least, length) in enumerate(QUERIES):
        above = sources
        if len(sources) > 1:
            above = f"u{number}"
            builder.union(above, list(sources), cost=1e-7)
        builder.filter(f"f{number}", above, f"v >= {least}", cost=5e-8, selectivity=1 - least / 100)
        builder.udf(
            f"m{number}", f"f{number}", f"{_FUNCTIONS}:{length}", ["v"], "score DOUBLE", cost=_COSTS[length]
        )
        builder.output(f"q{number}", f"m{number}", loss=[(100, 1.0), (0, 0.0)])
    return builder.build()


def rows(count: int = 50_000, seed: int = 1) -> Lines:
    """Which source a row belongs to comes first; values are spread evenly from 0 to 100."""
    rng = np.random.default_rng(seed)
    source, values = rng.choice(list(SHARES), count, p=list(SHARES.values())), rng.uniform(0, 100, count)
    return Lines(
        json.dumps({"g": str(name), "id": at, "v": round(float(v), 3)})
        for at, (name, v) in enumerate(zip(source, values, strict=True))
    )


def sic(played: Played, after: float, until: float) -> dict[str, float]:
    """Of each query, over the batches that began in a span of time."""
    recent = RecentInformation(float("inf"))
    for sample in played.samples:
        flows = sample.flows
        if flows is None or not flows.passed or not after <= sample.started < until:
            continue
        came = {**flows.left, **flows.arrived}
        passed = {on: (max(came.get(ends(on)[0], 0), count), count) for on, count in flows.passed.items()}
        for output in played.network.outputs:
            recent.add(output.name, sample.at, information(played.network, output.name, flows.arrived, passed))
    return recent.sic(until)


def judge(played: Played, able: Able, after: float, until: float) -> dict[str, Any]:
    """What a policy made of the arrivals in a span of time; of SIC nothing can be said without a batch in it."""
    found = sic(played, after, until)
    return {
        "policy": played.policy,
        "jain": round(jain(found.values()), 4) if found else None,
        "sic_mean": round(float(np.mean(list(found.values()))), 4) if found else None,
        "by_query": {name: round(share, 3) for name, share in found.items()},
        "delivered": {
            output.name: round(played.delivered(output.name, able, after, until), 3)
            for output in played.network.outputs
        },
        "p99_s": round(played.latency(0.99, able, after, until), 2),
        "plans": len(played.plans),
    }


def told(found: Sequence[dict[str, Any]], capacity: float) -> dict[str, Any]:
    """Means over the rounds; of the latency, the worst. A figure is null if no batch told of it."""

    def mean(policy: str, key: str) -> float | None:
        values = [each[key] for each in found if each["policy"] == policy and each[key] is not None]
        return round(float(np.mean(values)), 4) if values else None

    return {
        "bench": "fair",
        "jain": mean("fair", "jain"),
        "jain_random": mean("lsrm-random", "jain"),
        "jain_uniform": mean("input-uniform", "jain"),
        "sic_mean": mean("fair", "sic_mean"),
        "sic_mean_uniform": mean("input-uniform", "sic_mean"),
        "p99_s": max(each["p99_s"] for each in found if each["policy"] == "fair"),
        "bound_s": BOUND,
        "capacity_rows_per_s": int(capacity),
        "rows": list(found),
    }


def run(
    say: Say, *, rounds: int = 1, settling: float = SETTLING, counted: float = COUNTED, most: float = 45.0
) -> dict[str, Any]:
    spark = audience.session("bench fair")
    lines = rows()
    overloaded = CALM + settling + counted
    found: list[dict[str, Any]] = []
    with playing.Workplace() as place:
        made = audience.calibrated(spark, place, network(), lines, say)

        def play(policy: str, seconds: float) -> Played:
            def rate(second: float) -> float:
                return able.rate * (CALM_LOAD if second < CALM else FACTOR)

            return audience.play(spark, place, made, policy, rate, seconds, lines=lines, latency=BOUND)

        able = audience.capacity(spark, place, made, lines, say, seconds=BOUND / 2, most=most)
        say("warming up")
        play("fair", min(WARM_UP, overloaded))
        able = audience.capacity(spark, place, made, lines, say, seconds=BOUND / 2, most=most)
        for turn in range(rounds):
            for policy in POLICIES if turn % 2 == 0 else reversed(POLICIES):
                say(f"round {turn + 1} of {rounds}, {policy}")
                # The overload goes on while what counts is still being worked on.
                played = play(policy, overloaded + BOUND)
                judged = {"round": turn + 1} | judge(played, able, CALM + settling, overloaded)
                found.append(judged)
                say(f"round {turn + 1} of {rounds}, {policy}: Jain {judged['jain']}, p99 {judged['p99_s']} s")
    return told(found, able.rate)
