"""What shedding cost: one report for a shed stream, a load-aware operator, a network and a simulation.

    handle.report()             # ss.shed, ss.load_aware, ss.run
    simulate(…).report()        # a simulation

Every word means the same everywhere:

- arrived = kept + shed + failed, and shed = thinned + cut + expired, in rows. Plans thin, the same when a batch
  runs again; what comes after its batch's time was used up is cut, which need not be the same; what was older than
  the bound when its batch began had expired. Of a network they are rows of its sources: one that goes two ways and
  is dropped on one of them counts as half (`quality.row_counts.by_source`); `by_arc` has the rows themselves.
- Queries that read one stream read the same rows, each for itself. The rows of the whole are therefore those of
  the query that has read most; in a network, of the one that has seen most of a source or an arc. Batches, what is
  told of them, and latencies are those of all queries. `by_query` has each for itself.
- latency is the time from a row's arrival until its processing is over, over the rows that were kept. On Spark
  that is the end of its micro-batch: rows waited between nothing and `Sample.waited` seconds for it to start,
  spread evenly, and then for its duration. A load-aware operator and the simulator know when each row was done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from streamshed.quality.former_names import FormerNames
from streamshed.quality.latency_histogram import LatencyHistogram
from streamshed.quality.node_statistics import NodeStatistics
from streamshed.quality.report_table import as_html, as_rich
from streamshed.quality.row_counts import RowCounts, by_source

if TYPE_CHECKING:
    from rich.console import Group

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class OutputCounts:
    """What one output of a network got."""

    delivered: int = 0
    expected: float = 0.0
    """Rows that it would have got: an estimate while rows are dropped, and a count while none are."""
    utility: float | None = None
    """What it has of them, between 0 and 1, by its QoS graphs; None where nobody worked it out."""
    planned: float | None = None
    """Rows of those expected that it was to get by the plans in force; None where nobody worked it out."""
    information: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By source: rows that it sent, and rows of them that went into what the output got (`quality.sic`)."""
    windowed: bool = False
    """Whether its rows are results of windows: a result made of half its rows is still one row."""

    @property
    def sic(self) -> float | None:
        """Share of its sources' information that went into what it got; None where nobody worked it out."""
        shares = [min(1.0, reached / sent) for sent, reached in self.information.values() if sent > 0]
        if not shares:
            return 1.0 if self.information else None
        return sum(shares) / len(shares)

    @property
    def planned_percent(self) -> float | None:
        """Share of the expected rows that the plans said it would get, in percent: to hold `percent` against."""
        if self.planned is None:
            return None
        return min(100.0, 100.0 * self.planned / self.expected) if self.expected else 100.0

    @property
    def percent(self) -> float:
        """Share of what it was to get that it got, in percent: of the rows, below a window of the information."""
        sic = self.sic
        if self.windowed and sic is not None:
            return 100.0 * sic
        return min(100.0, 100.0 * self.delivered / self.expected) if self.expected else 100.0

    def plus(self, other: OutputCounts) -> OutputCounts:
        """Rows of both; utilities do not add up."""
        planned = None
        if self.planned is not None or other.planned is not None:
            # Where nobody planned, all was to be delivered.
            planned = sum(each.expected if each.planned is None else each.planned for each in (self, other))
        return OutputCounts(
            self.delivered + other.delivered,
            self.expected + other.expected,
            planned=planned,
            information=_merged([self.information, other.information], _both),
            windowed=self.windowed or other.windowed,
        )


@dataclass(frozen=True, slots=True, repr=False)
class Report(FormerNames):
    """What arrived, what was kept, what was shed, and how late it was. Times in seconds.

    >>> day, night = Report(arrived=100, kept=60, batches=9), Report(arrived=10, kept=10, batches=1)
    >>> day.plus(night).shed, day.plus(night).kept_share
    (40, 0.6363636363636364)
    """

    arrived: int = 0
    kept: int = 0
    cut: int = 0
    """Of `shed`: rows that came after their batch's time was used up, and were dropped for that alone."""
    expired: int = 0
    """Of `shed`: rows that were older than the bound when their batch began, and were dropped for that alone."""
    failed: int = 0
    """Rows on which the function of a load-aware operator failed, or whose key was null."""
    would_shed: int = 0
    """In dry-run: rows that enforcing would have dropped.

    Exact for a load-aware operator. Else an estimate: what drops and budget would have taken of the rows that
    were counted, in batches as enforcing would have had them; of a network as if each box gave out rows in
    proportion to those that come in."""
    misdated: int = 0
    """Rows whose arrival time cannot be true. They count as arrived with their batch; none is dropped for it."""
    batches: int = 0
    """Batches with rows; of a simulation, the monitor's intervals."""
    unseen: int = 0
    """Batches that were done without their counts reaching the books, or not all of them."""
    over_bound: int = 0
    """Batches whose worst row was later than the bound in force. Of a load-aware operator: batches whose rows
    waited longer than its target, on average or the worst of them, as the target says."""
    latency_last: float = 0.0
    """Worst latency of the newest batch."""
    work_sum: float = 0.0
    """Seconds that the function of a load-aware operator took."""
    latencies: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Of the rows that were kept."""
    queuing: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Of a load-aware operator: how long rows waited for their turn, from their arrival on."""
    by_source: Mapping[str, RowCounts] = field(default_factory=dict)
    """Of a network: what each source gave, and what was lost of it anywhere."""
    by_arc: Mapping[str, RowCounts] = field(default_factory=dict)
    """Of a network: rows that came along each arc, and that were dropped on it."""
    by_output: Mapping[str, OutputCounts] = field(default_factory=dict)
    """Of a network: what each output got."""
    by_node: Mapping[str, NodeStatistics] = field(default_factory=dict)
    """Of a federation: what each node told of itself last."""
    by_query: Mapping[str, Report] = field(default_factory=dict)
    """The same for each query, by its name, or by the beginning of its id if it has none."""

    @property
    def shed(self) -> int:
        """All rows that were dropped, for whatever reason."""
        return self.arrived - self.kept - self.failed

    @property
    def thinned(self) -> int:
        """Of `shed`: rows that plans took, or a load-aware operator."""
        return self.shed - self.cut - self.expired

    @property
    def kept_share(self) -> float:
        return 1.0 if self.arrived == 0 else self.kept / self.arrived

    @property
    def latency_mean(self) -> float:
        """Over rows."""
        return self.latencies.mean

    @property
    def latency_p50(self) -> float:
        return self.latencies.percentile(50.0)

    @property
    def latency_p99(self) -> float:
        return self.latencies.percentile(99.0)

    @property
    def latency_worst(self) -> float:
        return self.latencies.worst

    @property
    def queue_mean(self) -> float:
        """Mean queuing latency of the rows that ran."""
        return self.queuing.mean

    @property
    def queue_p50(self) -> float:
        return self.queuing.percentile(50.0)

    @property
    def queue_p99(self) -> float:
        return self.queuing.percentile(99.0)

    @property
    def queue_worst(self) -> float:
        return self.queuing.worst

    @property
    def ran(self) -> int:
        """Rows on which the function of a load-aware operator was called."""
        return round(self.queuing.rows)

    @property
    def cost_mean(self) -> float:
        """Seconds that it took for a row."""
        return self.work_sum / self.queuing.rows if self.queuing.rows else 0.0

    # How reports become one.

    def plus(self, other: Report) -> Report:
        """Both together, of different rows: two batches, or two runs of a query."""
        summed = Report(
            arrived=self.arrived + other.arrived,
            kept=self.kept + other.kept,
            cut=self.cut + other.cut,
            expired=self.expired + other.expired,
            failed=self.failed + other.failed,
            would_shed=self.would_shed + other.would_shed,
            misdated=self.misdated + other.misdated,
            by_source=_merged([self.by_source, other.by_source], RowCounts.plus),
            by_arc=_merged([self.by_arc, other.by_arc], RowCounts.plus),
            by_output=_merged([self.by_output, other.by_output], OutputCounts.plus),
            by_node={**self.by_node, **other.by_node},
            by_query=_merged([self.by_query, other.by_query], Report.plus),
        )
        return summed._told_by([self, other])._in_rows_of_sources()

    @staticmethod
    def of_readers(by_query: Mapping[str, Report]) -> Report:
        """The report of queries that read the same rows, each for itself."""
        parts = list(by_query.values())
        most = max(parts, key=lambda part: part.arrived, default=Report())
        whole = replace(
            most,
            by_source=_merged([part.by_source for part in parts], _of_the_one_that_saw_more),
            by_arc=_merged([part.by_arc for part in parts], _of_the_one_that_saw_more),
            by_output=_merged([part.by_output for part in parts], _of_the_one_that_got_more),
            by_query=dict(by_query),
        )
        return whole._told_by(parts)._in_rows_of_sources()

    def _told_by(self, parts: Iterable[Report]) -> Report:
        """With what adds up over batches, whoever read their rows."""
        parts = list(parts)
        return replace(
            self,
            batches=sum(part.batches for part in parts),
            unseen=sum(part.unseen for part in parts),
            over_bound=sum(part.over_bound for part in parts),
            latency_last=max((part.latency_last for part in parts), default=0.0),
            work_sum=sum(part.work_sum for part in parts),
            latencies=reduce(LatencyHistogram.plus, (part.latencies for part in parts), LatencyHistogram()),
            queuing=reduce(LatencyHistogram.plus, (part.queuing for part in parts), LatencyHistogram()),
        )

    def _in_rows_of_sources(self) -> Report:
        """Of a network: with totals from what was counted at its sources and on its arcs."""
        if not self.by_source:
            return self
        sources = by_source({name: rows.arrived for name, rows in self.by_source.items()}, self.by_arc)
        return replace(
            self,
            arrived=sum(rows.arrived for rows in sources.values()),
            kept=sum(rows.kept for rows in sources.values()),
            cut=sum(rows.cut for rows in sources.values()),
            expired=sum(rows.expired for rows in sources.values()),
            failed=sum(rows.failed for rows in sources.values()),
            would_shed=round(sum(rows.would_shed for rows in sources.values())),
            by_source=sources,
        )

    @staticmethod
    def of_network(arrived: Mapping[str, int], by_arc: Mapping[str, RowCounts], /, **others: Any) -> Report:
        """From what each source gave and what was counted on arcs."""
        sources = {name: RowCounts(rows) for name, rows in arrived.items()}
        return Report(by_source=sources, by_arc=by_arc, **others)._in_rows_of_sources()

    def without_bins(self) -> Report:
        """The same with the means and the worst of latencies alone."""
        return replace(self, latencies=self.latencies.without_bins(), queuing=self.queuing.without_bins())

    # How it is shown.

    def as_dict(self) -> dict[str, Any]:
        """Plain data for people and programs, with the same keys for all entries."""
        counts = (
            "arrived", "kept", "shed", "thinned", "cut", "expired", "failed", "would_shed", "misdated", "batches",
            "unseen", "over_bound",
        )  # fmt: skip
        times = (
            "latency_mean", "latency_p50", "latency_p99", "latency_worst", "latency_last",
            "queue_mean", "queue_p50", "queue_p99", "queue_worst", "cost_mean",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in (*counts, *times)},
            "by_source": {name: _with_shares(rows) for name, rows in self.by_source.items()},
            "by_arc": {name: _with_shares(rows) for name, rows in self.by_arc.items()},
            "by_output": {
                name: {
                    **asdict(out),
                    "percent": out.percent,
                    "planned_percent": out.planned_percent,
                    "sic": out.sic,
                }
                for name, out in self.by_output.items()
            },
            "by_node": {name: asdict(statistics) for name, statistics in self.by_node.items()},
            "by_query": {name: report.as_dict() for name, report in self.by_query.items()},
        }

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.as_dict(), separators=(",", ":"))

    def __repr__(self) -> str:
        """What is not zero, without the breakdowns."""
        told = {name: value for name, value in self.as_dict().items() if value and not name.startswith("by_")}
        parts = (
            f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in told.items()
        )
        return f"Report({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return as_html(self)

    def __rich__(self) -> Group:
        return as_rich(self)


def _merged(maps: Iterable[Mapping[str, Part]], join: Callable[[Part, Part], Part]) -> dict[str, Part]:
    found: dict[str, Part] = {}
    for each in maps:
        for name, part in each.items():
            found[name] = join(found[name], part) if name in found else part
    return found


def _with_shares(rows: RowCounts) -> dict[str, Any]:
    """The counts, and what follows from them."""
    return {**asdict(rows), "kept": rows.kept, "thinned": rows.thinned}


def _both(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


def _of_the_one_that_saw_more(one: RowCounts, other: RowCounts) -> RowCounts:
    return other if other.arrived > one.arrived else one


def _of_the_one_that_got_more(one: OutputCounts, other: OutputCounts) -> OutputCounts:
    return other if (other.delivered, other.expected) > (one.delivered, one.expected) else one
