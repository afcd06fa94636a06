"""The books of a network: what came in, what was dropped where, and what came out.

What is exact and what is not:

- Counts are SQL metrics of the plans that ran, one batch of one query after the other. They are exact, with one
  exception: Spark adds up a task's rows each time that the task runs. A stage that is run again for a lost
  executor counts its rows twice, and a speculative copy of a task may. Spark's own `numInputRows` is such a metric
  as well, and as much too large in the same cases, so comparing the two would not tell.
- A batch that fails and runs again is counted once: the run that ends well is.
- A batch whose counts did not reach the books (an error of ours, a crash right after the commit) is missing in all
  of them, and owned up to in `unseen`.
- Queries that read the same source count the same rows, each its own reading. For each source and each arc the
  report has the account of the query that has seen the most of it, so what was shed there is one query's truth.
- `expected` is an estimate while rows are dropped, and a count while none are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from streamshed.network.catalog import Catalog
from streamshed.network.graph import arc, ends
from streamshed.records import Flows, Sample
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
    unseen: int = 0
    """Batches that are not in these books, because their counts did not reach them."""

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
        self.unseen: int = saved.get("unseen", 0)

    def encode(self) -> bytes:
        return json.dumps(self.__dict__).encode()

    @staticmethod
    def decode(data: bytes) -> Books:
        """Books as they were saved; a ValueError if that is not what it is."""
        saved = json.loads(data)
        blank = Books().__dict__
        if not isinstance(saved, dict):
            raise ValueError("not the books of a query")
        for name, value in saved.items():
            values = list(value.values()) if isinstance(value, dict) else [value]
            numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
            if name not in blank or isinstance(value, dict) != isinstance(blank[name], dict) or not numbers:
                raise ValueError(f"{name} is {value!r}"[:80])
        return Books(**saved)

    def miss(self, batch: int) -> None:
        """A batch was done, and its counts are not known."""
        if batch > self.last_batch:
            # Those in between were not heard of either. Before the first there may have been others' batches.
            self.unseen += 1 if self.last_batch < 0 else batch - self.last_batch
            self.last_batch = batch

    def add(self, sample: Sample, query: NetworkQuery, bound: float, catalog: Catalog) -> None:
        flows = sample.flows or Flows()
        self.unseen += sample.batch - self.last_batch - 1 if self.last_batch >= 0 else 0
        self.last_batch = sample.batch
        network = query.layout.network
        came = {**flows.left, **flows.arrived}
        dropping = [
            on for on in query.layout.arcs if on in query.slots.slots or ends(on)[1] in query.layout.load_aware
        ]
        for counts, new in (
            (self.arrived, flows.arrived),
            (
                self.reached,
                {on: came[on.partition("->")[0]] for on in dropping},
            ),
            (self.passed, {on: flows.passed[on] for on in dropping}),
            (
                self.delivered,
                {
                    o.name: flows.passed[arc(o.input, o.name)]
                    for o in network.outputs
                    if o.name in query.layout.outputs
                },
            ),
        ):
            for name, rows in new.items():
                counts[name] = counts.get(name, 0) + rows
        if sample.arrived:
            self.batches += 1
            self.latency_mean += (sample.latency - self.latency_mean) / self.batches
            self.latency_max = max(self.latency_max, sample.latency)
            self.latency_last = sample.latency
            full = catalog.measured(rates={name: float(rows) for name, rows in flows.arrived.items()}).arc_rates
            for name in query.layout.outputs:
                (on,) = network.arcs_into(name)
                # While nothing is dropped, what comes out is what was to be expected.
                wanted = full[on] if flows.thinned else float(flows.passed[on])
                self.expected[name] = self.expected.get(name, 0.0) + wanted
            self.over_bound += sample.latency > bound


def report_of(books: Iterable[Books]) -> NetworkReport:
    """The books of all queries as one report."""
    everything = list(books)
    batches = sum(each.batches for each in everything)
    arcs = {
        on: max(everything, key=lambda each: each.reached.get(on, -1))
        for each in everything
        for on in each.reached
    }
    return NetworkReport(
        arrived=_most([each.arrived for each in everything]),
        reached={on: seen.reached[on] for on, seen in arcs.items()},
        passed={on: seen.passed.get(on, seen.reached[on]) for on, seen in arcs.items()},
        delivered=_most([each.delivered for each in everything]),
        batches=batches,
        latency_mean=sum(each.latency_mean * each.batches for each in everything) / batches if batches else 0.0,
        latency_max=max((each.latency_max for each in everything), default=0.0),
        over_bound=sum(each.over_bound for each in everything),
        latency_last=max((each.latency_last for each in everything), default=0.0),
        expected=_most([each.expected for each in everything]),
        unseen=sum(each.unseen for each in everything),
    )


Number = TypeVar("Number", int, float)


def _most(counts: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    """Of each name the largest count: queries that read the same source count the same rows."""
    found: dict[str, Number] = {}
    for each in counts:
        for name, rows in each.items():
            found[name] = max(found.get(name, rows), rows)
    return found
