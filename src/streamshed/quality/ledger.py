"""The ledger: every batch once, exactly; what arrived, what was kept, how late it was."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamshed.records import Plan, QualityReport, Sample


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch in the ledger."""

    sample: Sample
    plan: Plan

    @property
    def would_shed(self) -> int:
        """Rows that enforcing the plan would have dropped (dry-run)."""
        return round(self.sample.kept * (1.0 - self.plan.would_keep / max(self.plan.keep, 1e-12)))


class Ledger:
    """Adds up batches by query. A batch that is replayed after a crash is counted once.

    arrived = kept + shed holds for every entry and for every total by construction: what is stored
    are the two counts Spark made itself, and shed is their difference.

    >>> ledger = Ledger()
    >>> entry = Sample(at=2.0, started=1.0, arrived=10, kept=4, query="q", batch=0)
    >>> ledger.record(entry, Plan(), bound=4.0) and not ledger.record(entry, Plan(), bound=4.0)
    True
    >>> ledger.report().shed
    6
    """

    def __init__(self, recent: int = 1000) -> None:
        self._by_query: dict[str, QualityReport] = {}
        self._last_batch: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self.recent: deque[Entry] = deque(maxlen=recent)
        """The newest batches, oldest first."""

    def open(self, query: str, name: str, committed: int = -1) -> None:
        """A query begins to be counted; what it committed before anybody counted is nobody's loss."""
        self._names[query] = name
        self._last_batch.setdefault(query, committed)

    def record(self, sample: Sample, plan: Plan, *, bound: float) -> bool:
        """Enter a finished batch; False if it was there already."""
        last = self._last_batch.get(sample.query, -1)
        if sample.batch <= last:
            return False
        entry = Entry(sample, plan)
        self.recent.append(entry)
        self._last_batch[sample.query] = sample.batch
        old = self.of(sample.query)
        counted = sample.arrived > 0
        seen = old.batches + counted
        mean = old.latency_mean + (sample.latency - old.latency_mean) / seen if counted else old.latency_mean
        self._by_query[sample.query] = QualityReport(
            arrived=old.arrived + sample.arrived,
            kept=old.kept + sample.kept,
            would_shed=old.would_shed + entry.would_shed,
            batches=seen,
            unseen=old.unseen + (sample.batch - last - 1),
            latency_mean=mean,
            latency_max=max(old.latency_max, sample.latency) if counted else old.latency_max,
            over_bound=old.over_bound + (counted and sample.latency > bound),
        )
        return True

    def last_batch(self, query: str) -> int:
        return self._last_batch.get(query, -1)

    def of(self, query: str) -> QualityReport:
        """One query's totals."""
        return self._by_query.get(query, QualityReport())

    def report(self) -> QualityReport:
        """Totals of the stream, and of each query by its name."""
        reports = self._by_query
        batches = sum(r.batches for r in reports.values())
        most = max(reports.values(), key=lambda r: r.arrived, default=QualityReport())
        return QualityReport(
            arrived=most.arrived,
            kept=most.kept,
            would_shed=most.would_shed,
            batches=batches,
            unseen=sum(r.unseen for r in reports.values()),
            latency_mean=sum(r.latency_mean * r.batches for r in reports.values()) / batches if batches else 0.0,
            latency_max=max((r.latency_max for r in reports.values()), default=0.0),
            over_bound=sum(r.over_bound for r in reports.values()),
            by_query={self._name(query): report for query, report in reports.items()},
        )

    def _name(self, query: str) -> str:
        name = self._names.get(query, query)
        same = [other for other in self._by_query if self._names.get(other, other) == name]
        return name if len(same) == 1 else f"{name} ({query[:8]})"

    def totals(self, query: str) -> dict[str, Any]:
        """A query's totals as JSON-able data, for the checkpoint."""
        report = self.of(query)
        fields = (
            "arrived",
            "kept",
            "would_shed",
            "batches",
            "unseen",
            "latency_mean",
            "latency_max",
            "over_bound",
        )
        return {"last_batch": self.last_batch(query)} | {name: getattr(report, name) for name in fields}

    def restore(self, query: str, totals: Mapping[str, Any]) -> None:
        """Continue a query's totals after a restart."""
        fields = {name: value for name, value in totals.items() if name != "last_batch"}
        self._by_query[query] = replace(QualityReport(), **fields)
        self._last_batch[query] = int(totals["last_batch"])
