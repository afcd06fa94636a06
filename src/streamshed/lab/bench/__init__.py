"""Benchmarks: ratios measured side by side in one run, and latencies under a known load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from streamshed.errors import InvalidArgument

BENCHES = {
    "overhead": "what shed costs a job that has nothing to shed",
    "latency": "three and six times what the job can process, for bounds of 10, 6, 4 and 2 s: latency and goodput",
    "cold": "four times what the job can process from the first batch of a cold JVM on",
    "outage": "ten minutes of arrivals piled up while the job was down: how soon it is back inside its bound",
    "pause": "a sink that sleeps once in an idle job: nothing is shed for it",
    "burst": "ten times the load for ten seconds: how fast the job is back",
    "drain": "what a dropped row still costs, against a kept one",
    "realtime": "a bound of 200 ms in real-time mode, Kafka to Kafka, at 2, 4 and 8 times the capacity",
    "ladder": "classes on an age ladder: who is lost, how old rows are, and the utility against random ages",
    "las-spark": "the load-aware operator: its cost, its target at 1.3 times capacity, costs that double",
    "network": "five queries at two and four times the capacity: utility and latency by policy",
    "fair": "eight queries of different weight at twice the capacity: SIC by query, fair against others",
    "sharing": "20 outputs behind one shared parse: one network against 20 queries",
    "compiled": "what a network with nothing to shed costs, against the same written by hand",
    "parse": "a drop before the parse against the same drop after it",
    "control": "the controller in 58 worlds of virtual time: against a clairvoyant, Spark's PID, a gradient limit",
    "road-map": "building the road map for 50, 500 and 5,000 boxes, and looking up in it",
    "fair-decision": "one decision of fair shedding, for 1,000 and 10,000 queries with up to 100,000 batches",
    "simulator": "rows per second of the 47-box network in virtual time, against SimPy",
    "las": "decisions per second of load-aware shedding, against the same loop over datasketches' Count-Min",
}

# These need no Spark: they are about networks in virtual time.
_VIRTUAL = {
    "road-map": "bench_road_map",
    "fair-decision": "bench_fair_decision",
    "simulator": "bench_simulator",
    "las": "bench_las",
}


_PICTURED = ("network", "realtime")
_BOUNDED = ("latency",)
_REPEATED = ("latency", "fair")
_PARTED = ("overhead", "realtime")
_TABLED = ("control",)


def bench(
    name: str,
    out: Path | None = None,
    bounds: Sequence[float] = (),
    rounds: int = 1,
    parts: Sequence[str] = (),
) -> Callable[..., dict[str, Any]]:
    """The function behind a benchmark's name; with `out`, it writes its numbers and a picture there.

    `bounds` and `rounds`: for those that try several bounds, in seconds, and how often. `parts`: for those that
    have parts, which of them; all, if none is named.
    """
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
    if (bounds and name not in _BOUNDED) or (rounds != 1 and name not in _REPEATED):
        raise InvalidArgument(
            "this benchmark has a bound of its own, and its own number of rounds",
            got=f"{name} --bound/--rounds",
            hint=f"those with bounds to choose: {', '.join(_BOUNDED)}; with rounds: {', '.join(_REPEATED)}",
        )
    if parts:
        known: Sequence[str] = ()
        if name in _PARTED:
            known = import_module(f"streamshed.lab.bench.{name}").PARTS
        if not {*parts} <= {*known}:
            raise InvalidArgument(
                "this benchmark has no such part",
                got=f"{name} --part {' --part '.join(parts)}",
                hint=f"choose from: {', '.join(known)}" if known else f"those with parts: {', '.join(_PARTED)}",
            )
    run: Callable[..., dict[str, Any]]
    if name in _VIRTUAL:
        run = import_module(f"streamshed.lab.experiments.{_VIRTUAL[name]}").run
        return lambda say: run(lambda done, total, what: say(f"{what} ({done} of {total})")) | {"bench": name}
    run = import_module(f"streamshed.lab.bench.{name.replace('-', '_')}").run
    if name in _REPEATED:
        return partial(run, rounds=rounds, **({"bounds": tuple(bounds)} if bounds else {}))
    chosen: dict[str, Any] = {"parts": tuple(parts)} if parts else {}
    return partial(run, **chosen) if out is None else partial(run, out=out, **chosen)


def tables(name: str) -> Callable[..., list[Any]] | None:
    """For a benchmark that has more to show to people than its numbers: what makes tables of it."""
    return import_module(f"streamshed.lab.bench.{name}").tables if name in _TABLED else None
