"""What a load-aware operator did in a batch, in numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from streamshed.las.check import AVERAGE
from streamshed.quality.former_names import warn_of
from streamshed.quality.latency_histogram import LatencyHistogram
from streamshed.quality.report import Report
from streamshed.spark.load_aware.cost_control import Goal
from streamshed.spark.load_aware.cost_stage import Tally


def batch_report(tallies: dict[int, Tally], arrived: int, goal: Goal) -> Report:
    """One batch, of which Spark itself counted what arrived.

    Latencies are those of the rows on which the function ran: from their arrival until it was through with them.
    """
    told = tallies.values()
    counted = sum(t.arrived for t in told)
    latencies = _sum(t.latencies for t in told)
    queuing = replace(
        _sum(t.queuing for t in told),
        rows=float(sum(t.ran for t in told)),
        total=sum(t.waited for t in told),
        worst=max((t.waited_worst for t in told), default=0.0),
    )
    wait = queuing.mean if goal.kind == AVERAGE else queuing.worst
    return Report(
        arrived=counted,
        kept=sum(t.arrived - t.shed - t.failed for t in told),
        cut=sum(t.cut for t in told),
        failed=sum(t.failed for t in told),
        would_shed=sum(t.would_shed - t.shed for t in told),
        misdated=sum(t.misdated for t in told),
        batches=int(counted > 0 or arrived > 0),
        unseen=int(counted != arrived),
        over_bound=int(wait > goal.target),
        latency_last=latencies.worst,
        work_sum=sum(t.worked for t in told),
        latencies=latencies,
        queuing=queuing,
    )


def _sum(histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
    return reduce(LatencyHistogram.plus, histograms, LatencyHistogram())


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
    report: Report
    """Latencies of single batches have a mean and a worst; those of all batches have percentiles as well."""

    @staticmethod
    def of(
        query: str, batch: int, started: float, at: float, tallies: dict[int, Tally], report: Report
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
            report.without_bins(),
        )


def __getattr__(name: str) -> Any:
    if name == "LoadReport":
        warn_of("LoadReport", "streamshed.Report")
        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
