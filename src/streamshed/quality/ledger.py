"""The ledger: every batch once, exactly; what arrived, what was kept, how late it was."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamshed.quality.latency_histogram import LatencyHistogram
from streamshed.quality.node_statistics import NodeStatistics
from streamshed.quality.report import Report
from streamshed.quality.saved_report import as_saved, from_saved
from streamshed.records import Mode, Plan, Sample


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch in the ledger."""

    sample: Sample
    plan: Plan

    @property
    def would_shed(self) -> int:
        """Rows that enforcing the plan would have dropped (dry-run)."""
        if self.plan.mode is not Mode.DRY_RUN:
            return 0
        return round(self.sample.kept * (1.0 - self.plan.would_keep / max(self.plan.keep, 1e-12)))


def latencies_of(sample: Sample, kept: float) -> LatencyHistogram:
    """Latencies of the rows that a batch kept.

    They arrived evenly over the time that the oldest of them waited, and are done when the batch is.
    """
    return LatencyHistogram.uniform(sample.duration, sample.latency, kept)


class Ledger:
    """Adds up batches by query. A batch that is replayed after a crash is counted once.

    >>> ledger = Ledger()
    >>> entry = Sample(at=2.0, started=1.0, arrived=10, kept=4, query="q", batch=0)
    >>> ledger.record(entry, Plan(), bound=4.0) and not ledger.record(entry, Plan(), bound=4.0)
    True
    >>> ledger.report().shed
    6
    """

    def __init__(self, recent: int = 1000) -> None:
        self._by_query: dict[str, Report] = {}
        self._last_batch: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self.recent: deque[Entry] = deque(maxlen=recent)
        """The newest batches, oldest first."""
        self.nodes: deque[NodeStatistics] = deque(maxlen=recent)
        """What nodes told of themselves, oldest first."""

    def open(self, query: str, name: str, committed: int | None = None) -> None:
        """A query begins to be counted; what it committed before anybody counted is nobody's loss.

        Where nobody knows what that was, counting begins with the first batch that is entered.
        """
        self._names[query] = name
        if committed is not None:
            self._last_batch.setdefault(query, committed)

    def record(self, sample: Sample, plan: Plan, *, bound: float, would_shed: int | None = None) -> bool:
        """Enter a finished batch of a shed stream; False if it was there already.

        In dry-run `would_shed` is what the controller says of the batch's rows (`Controller.would_shed`);
        without it, what the plan's drops would have taken.
        """
        entry = Entry(sample, plan)
        some = sample.arrived > 0
        batch = Report(
            arrived=sample.arrived,
            kept=sample.kept,
            cut=sample.cut,
            expired=sample.expired,
            would_shed=entry.would_shed if would_shed is None else would_shed,
            batches=int(some),
            over_bound=int(some and sample.latency > bound),
            latency_last=sample.latency if some else 0.0,
            latencies=latencies_of(sample, sample.kept),
        )
        if not self.enter(sample.query, sample.batch, batch):
            return False
        self.recent.append(entry)
        return True

    def enter(self, query: str, batch: int, report: Report) -> bool:
        """Enter what a batch did; False if it was there already. Batches that were left out are `unseen`."""
        last = self._last_batch.get(query)
        if last is not None and batch <= last:
            return False
        self._last_batch[query] = batch
        total = self.of(query).plus(report)
        skipped = 0 if last is None else batch - last - 1
        newest = report.latency_last if report.batches else self.of(query).latency_last
        self._by_query[query] = replace(total, unseen=total.unseen + skipped, latency_last=newest)
        return True

    def enter_node(self, statistics: NodeStatistics) -> None:
        """What a node tells of itself, once a minute."""
        self.nodes.append(statistics)

    def miss(self, query: str, batch: int) -> None:
        """A batch was done, and its counts are not known."""
        self.enter(query, batch, Report(unseen=1))

    def last_batch(self, query: str) -> int:
        return self._last_batch.get(query, -1)

    def of(self, query: str) -> Report:
        """One query's totals."""
        return self._by_query.get(query, Report())

    def report(self) -> Report:
        """Totals of the stream, and of each query by its name."""
        whole = Report.of_readers({self._name(query): report for query, report in self._by_query.items()})
        return replace(whole, by_node={each.node: each for each in self.nodes})

    def _name(self, query: str) -> str:
        name = self._names.get(query, query)
        same = [other for other in self._by_query if self._names.get(other, other) == name]
        return name if len(same) == 1 else f"{name} ({query[:8]})"

    def totals(self, query: str) -> dict[str, Any]:
        """A query's totals as JSON-able data, for the checkpoint."""
        return {"last_batch": self.last_batch(query), **as_saved(self.of(query))}

    def restore(self, query: str, totals: Mapping[str, Any]) -> None:
        """Continue a query's totals after a restart; raises one of `saved_report.BROKEN` if they are none."""
        report, last = from_saved(totals), int(totals["last_batch"])
        self._by_query[query] = report
        if last >= 0:
            self._last_batch[query] = last
