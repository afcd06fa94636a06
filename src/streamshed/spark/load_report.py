"""What a load-aware operator did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from streamshed.spark.cost_stage import Tally


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What the operator did, all told: arrived = kept + shed + failed. Times in seconds."""

    batches: int = 0
    arrived: int = 0
    kept: int = 0
    """Rows on which the function ran to its end."""
    shed: int = 0
    failed: int = 0
    """Rows on which it raised, or gave something else than a row, or whose key was null."""
    would_shed: int = 0
    """What the check wanted to drop, whether or not it was enforced."""
    misdated: int = 0
    """Rows whose arrival time cannot be true. They count as arrived with their batch; none is dropped for it."""
    ran: int = 0
    queue_sum: float = 0.0
    queue_worst: float = 0.0
    work_sum: float = 0.0
    unseen: int = 0
    """Batches whose tasks' accounts did not come, or not all."""

    @property
    def queue_mean(self) -> float:
        """Mean queuing latency of the rows that ran."""
        return self.queue_sum / self.ran if self.ran else 0.0

    @property
    def cost_mean(self) -> float:
        return self.work_sum / self.ran if self.ran else 0.0

    def plus(self, other: LoadReport) -> LoadReport:
        summed = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return LoadReport(**summed | {"queue_worst": max(self.queue_worst, other.queue_worst)})

    @staticmethod
    def of(tallies: dict[int, Tally], arrived: int) -> LoadReport:
        """One batch, of which Spark itself counted what arrived."""
        told = tallies.values()
        return LoadReport(
            batches=1,
            arrived=sum(t.arrived for t in told),
            kept=sum(t.arrived - t.shed - t.failed for t in told),
            shed=sum(t.shed for t in told),
            failed=sum(t.failed for t in told),
            would_shed=sum(t.would_shed for t in told),
            misdated=sum(t.misdated for t in told),
            ran=sum(t.ran for t in told),
            queue_sum=sum(t.waited for t in told),
            queue_worst=max((t.waited_worst for t in told), default=0.0),
            work_sum=sum(t.worked for t in told),
            unseen=int(sum(t.arrived for t in told) != arrived),
        )


@dataclass(frozen=True, slots=True)
class LoadBatch:
    """One batch, as the handle remembers it."""

    query: str
    batch: int
    started: float
    at: float
    version: int
    """The order it ran with."""
    checked: bool
    delay: float
    foreseen: float
    """What the rows that ran should have cost, by the estimates; compare with `report.work_sum`."""
    report: LoadReport

    @staticmethod
    def of(
        query: str, batch: int, started: float, at: float, tallies: dict[int, Tally], arrived: int
    ) -> LoadBatch:
        """A batch that is over, from its tasks' accounts."""
        told = tallies.values()
        delays = [t.delay for t in told if t.delay is not None]
        return LoadBatch(
            query,
            batch,
            started,
            at,
            max((t.version for t in told), default=0),
            any(t.checked for t in told),
            sum(delays) / len(delays) if delays else 0.0,
            sum(t.foreseen for t in told),
            LoadReport.of(tallies, arrived),
        )
