"""Benchmarks: ratios measured side by side in one run, and latencies under a known load."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from streamshed.errors import InvalidArgument

BENCHES = {
    "overhead": "what shed costs a job that has nothing to shed",
    "latency": "three times what the job can process: latency and goodput, against plain and capped Spark",
    "burst": "ten times the load for ten seconds: how fast the job is back",
    "drain": "what a dropped row still costs, against a kept one",
    "las-spark": "the load-aware operator: its cost, its target at 1.3 times capacity, costs that double",
    "network": "five queries at two and four times the capacity: utility and latency by policy",
    "sharing": "20 outputs behind one shared parse: one network against 20 queries",
    "compiled": "what a network with nothing to shed costs, against the same written by hand",
    "parse": "a drop before the parse against the same drop after it",
    "road-map": "building the road map for 50, 500 and 5,000 boxes, and looking up in it",
    "simulator": "rows per second of the 47-box network in virtual time, against SimPy",
    "las": "decisions per second of load-aware shedding, against the same loop over datasketches' Count-Min",
}

# These need no Spark: they are about networks in virtual time.
_VIRTUAL = {"road-map": "bench_road_map", "simulator": "bench_simulator", "las": "bench_las"}


_PICTURED = ("network",)


def bench(name: str, out: Path | None = None) -> Callable[..., dict[str, Any]]:
    """The function behind a benchmark's name; with `out`, it writes its numbers and a picture there."""
    if name not in BENCHES:
        raise InvalidArgument(
            "there is no such benchmark", got=repr(name), hint=f"choose from: {', '.join(BENCHES)}"
        )
    if out is not None and name not in _PICTURED:
        raise InvalidArgument(
            "this benchmark has no picture",
            got=f"{name} --out {out}",
            hint=f"those with one: {', '.join(_PICTURED)}",
        )
    run: Callable[..., dict[str, Any]]
    if name in _VIRTUAL:
        run = import_module(f"streamshed.experiments.{_VIRTUAL[name]}").run
        return lambda say: run(lambda done, total, what: say(f"{what} ({done} of {total})")) | {"bench": name}
    run = import_module(f"streamshed.bench.{name.replace('-', '_')}").run
    return run if out is None else partial(run, out=out)
