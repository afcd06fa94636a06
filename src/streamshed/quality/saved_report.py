"""Reports as they are saved beside checkpoints, in this version's form and in those of the version before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from streamshed.quality.latency_histogram import LatencyHistogram
from streamshed.quality.report import OutputCounts, Report
from streamshed.quality.row_counts import RowCounts

BROKEN = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading something else than a saved report raises."""
_COUNTS = (
    "arrived", "kept", "cut", "expired", "failed", "would_shed", "misdated", "batches", "unseen", "over_bound",
)  # fmt: skip
_TIMES = ("latency_last", "work_sum")


def as_saved(report: Report) -> dict[str, Any]:
    """JSON-able, with everything that is needed to go on counting."""
    return {
        **{name: getattr(report, name) for name in (*_COUNTS, *_TIMES)},
        "latencies": report.latencies.as_saved(),
        "queuing": report.queuing.as_saved(),
        "by_source": {name: rows.arrived for name, rows in report.by_source.items()},
        "by_arc": {name: asdict(rows) for name, rows in report.by_arc.items()},
        "by_output": {
            name: {
                "delivered": output.delivered,
                "expected": output.expected,
                "information": {source: list(rows) for source, rows in output.information.items()},
                "windowed": output.windowed,
            }
            | ({} if output.planned is None else {"planned": output.planned})
            for name, output in report.by_output.items()
        },
    }


def from_saved(saved: Mapping[str, Any]) -> Report:
    """A report that was saved; what is unknown is left aside, and what is missing is nothing.

    Raises one of `BROKEN` if it is none.
    """
    if not isinstance(saved, Mapping):
        raise ValueError("not a report")
    if isinstance(saved.get("arrived"), Mapping):
        saved = _former_network(saved)
    elif "queue_sum" in saved:
        saved = _former_load_aware(saved)
    latencies = saved.get("latencies", {"worst": saved.get("latency_max", 0.0)})
    others: dict[str, Any] = {
        **{name: _count(saved.get(name, 0)) for name in _COUNTS},
        **{name: _number(saved.get(name, 0.0)) for name in _TIMES},
        "latencies": LatencyHistogram.from_saved(latencies),
        "queuing": LatencyHistogram.from_saved(saved.get("queuing", {})),
        "by_output": {
            name: OutputCounts(
                _count(output["delivered"]),
                _number(output["expected"]),
                information={
                    source: (_number(sent), _number(reached))
                    for source, (sent, reached) in output.get("information", {}).items()
                },
                windowed=bool(output.get("windowed", False)),
                planned=_number(output["planned"]) if "planned" in output else None,
            )
            for name, output in saved.get("by_output", {}).items()
        },
    }
    sources = {name: _count(rows) for name, rows in saved.get("by_source", {}).items()}
    if not sources:
        return Report(**others)
    arcs = {
        name: RowCounts(
            arrived=_count(rows.get("arrived", 0)),
            shed=_count(rows.get("shed", 0)),
            failed=_count(rows.get("failed", 0)),
            would_shed=_number(rows.get("would_shed", 0.0)),
            cut=_count(rows.get("cut", 0)),
            expired=_count(rows.get("expired", 0)),
        )
        for name, rows in saved.get("by_arc", {}).items()
    }
    return Report.of_network(sources, arcs, **others)


def _former_network(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The books of a network's query: counts by source, by arc with a drop, and by output."""
    reached, passed = saved.get("reached", {}), saved.get("passed", {})
    expected = saved.get("expected", {})
    return {
        **{name: saved[name] for name in ("batches", "unseen", "over_bound") if name in saved},
        "latency_last": saved.get("latency_last", 0.0),
        "latency_max": saved.get("latency_max", 0.0),
        "by_source": saved["arrived"],
        "by_arc": {
            name: {"arrived": rows, "shed": rows - passed.get(name, rows)} for name, rows in reached.items()
        },
        "by_output": {
            name: {"delivered": rows, "expected": expected.get(name, 0.0)}
            for name, rows in saved.get("delivered", {}).items()
        },
    }


def _former_load_aware(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The totals of a load-aware operator, whose `would_shed` had in it what was really shed."""
    queuing = {"rows": saved.get("ran", 0), "total": saved["queue_sum"], "worst": saved.get("queue_worst", 0.0)}
    would_shed = max(0, _count(saved.get("would_shed", 0)) - _count(saved.get("shed", 0)))
    return {**saved, "would_shed": would_shed, "queuing": queuing}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number"[:80])
    return float(value)


def _count(value: Any) -> int:
    return int(_number(value))
