"""The books of a network: what came in, what was dropped where, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamshed.network.catalog import Catalog
from streamshed.network.graph import arc, ends
from streamshed.network_controller import FlowSample
from streamshed.spark.network_query import NetworkQuery


@dataclass(frozen=True)
class NetworkReport:
    """What came in, what was dropped where, and what came out, since the network was first started."""

    arrived: Mapping[str, int] = field(default_factory=dict)
    """By source."""
    reached: Mapping[str, int] = field(default_factory=dict)
    """Rows that came to each arc with a drop."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """Rows that passed each of them."""
    delivered: Mapping[str, int] = field(default_factory=dict)
    """By output."""
    batches: int = 0
    latency_mean: float = 0.0
    latency_max: float = 0.0
    over_bound: int = 0
    latency_last: float = 0.0
    expected: Mapping[str, float] = field(default_factory=dict)
    """Rows that each output would have got, by the selectivities measured while nothing was dropped."""

    @property
    def percent(self) -> dict[str, float]:
        """Of each output, the share of the expected rows that it got, in percent."""
        return {
            name: min(100.0, 100.0 * rows / self.expected[name]) if self.expected.get(name) else 100.0
            for name, rows in self.delivered.items()
        }

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"shed": self.shed, "percent": self.percent}

    @property
    def shed(self) -> dict[str, int]:
        """Rows dropped on each arc."""
        return {name: rows - self.passed[name] for name, rows in self.reached.items()}


class Books:
    """The books of one query."""

    def __init__(self, **saved: Any) -> None:
        self.last_batch: int = saved.get("last_batch", -1)
        self.batches: int = saved.get("batches", 0)
        self.arrived: dict[str, int] = saved.get("arrived", {})
        self.reached: dict[str, int] = saved.get("reached", {})
        self.passed: dict[str, int] = saved.get("passed", {})
        self.delivered: dict[str, int] = saved.get("delivered", {})
        self.latency_mean: float = saved.get("latency_mean", 0.0)
        self.latency_max: float = saved.get("latency_max", 0.0)
        self.over_bound: int = saved.get("over_bound", 0)
        self.latency_last: float = saved.get("latency_last", 0.0)
        self.expected: dict[str, float] = saved.get("expected", {})

    def add(self, sample: FlowSample, query: NetworkQuery, bound: float, catalog: Catalog) -> None:
        self.last_batch = sample.batch
        network = query.layout.network
        came = {**sample.left, **sample.arrived}
        dropping = [
            on for on in query.layout.arcs if on in query.slots.slots or ends(on)[1] in query.layout.load_aware
        ]
        for counts, new in (
            (self.arrived, sample.arrived),
            (
                self.reached,
                {on: came[on.partition("->")[0]] for on in dropping},
            ),
            (self.passed, {on: sample.passed[on] for on in dropping}),
            (
                self.delivered,
                {
                    o.name: sample.passed[arc(o.input, o.name)]
                    for o in network.outputs
                    if o.name in query.layout.outputs
                },
            ),
        ):
            for name, rows in new.items():
                counts[name] = counts.get(name, 0) + rows
        if sum(sample.arrived.values()):
            self.batches += 1
            self.latency_mean += (sample.latency - self.latency_mean) / self.batches
            self.latency_max = max(self.latency_max, sample.latency)
            self.latency_last = sample.latency
            full = catalog.measured(rates={name: float(rows) for name, rows in sample.arrived.items()}).arc_rates
            for name in query.layout.outputs:
                (on,) = network.arcs_into(name)
                # While nothing is dropped, what comes out is what was to be expected.
                wanted = full[on] if sample.dropping else float(sample.passed[on])
                self.expected[name] = self.expected.get(name, 0.0) + wanted
            self.over_bound += sample.latency > bound


def report_of(books: Iterable[Books]) -> NetworkReport:
    """The books of all queries as one report."""
    everything = list(books)

    def most(name: str) -> dict[str, int]:
        # Queries that read the same source count the same rows.
        found: dict[str, int] = {}
        for one in everything:
            for key, rows in getattr(one, name).items():
                found[key] = max(found.get(key, 0), rows)
        return found

    batches = sum(one.batches for one in everything)
    return NetworkReport(
        arrived=most("arrived"),
        reached=most("reached"),
        passed=most("passed"),
        delivered=most("delivered"),
        batches=batches,
        latency_mean=sum(one.latency_mean * one.batches for one in everything) / batches if batches else 0.0,
        latency_max=max((one.latency_max for one in everything), default=0.0),
        over_bound=sum(one.over_bound for one in everything),
        latency_last=max((one.latency_last for one in everything), default=0.0),
        expected=most("expected"),
    )
