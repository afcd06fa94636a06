"""What a batch of a network did: what came in, what was dropped where, and what came out.

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
- An output's SIC is worked out batch by batch from these counts, by source. Rows that went into an open window
  count as having reached the output with the batch that read them, and what is dropped behind a window as lost
  in the batch that dropped it.
- `expected` is an estimate while rows are dropped, and a count while none are.
- `planned` is what the drops in force were to leave of `expected`, by the model that plans are made with.
- `would_shed` is an estimate: what the drops that a dry-run wants would take of the rows counted, by the keep of
  each drop, by the values' spread where it drops by value, and as if boxes passed rows on in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamshed.network.catalog import Catalog
from streamshed.network.graph import ends
from streamshed.quality.former_names import warn_of
from streamshed.quality.ledger import latencies_of
from streamshed.quality.report import OutputCounts, Report
from streamshed.quality.row_counts import RowCounts, would_drop
from streamshed.quality.sic import below_a_window, information
from streamshed.records import Flows, Mode, Plan, Sample
from streamshed.spark.network.query_layout import QueryLayout
from streamshed.spark.network.slots import Slots


def batch_report(
    sample: Sample, layout: QueryLayout, slots: Slots, plan: Plan, *, bound: float, catalog: Catalog
) -> Report:
    """What one batch of a query did, under this plan; `catalog` has the selectivities measured so far."""
    flows = sample.flows or Flows()
    arcs = _arcs(flows, layout)
    keeps = slots.keeps(plan.wanted, catalog) if plan.mode is Mode.DRY_RUN else {}
    for on, rows in flows.would_shed.items():
        keeps[on] = keeps.get(on, 1.0) * (1.0 - rows / max(1, arcs[on].passed))
    for on, rows_less in would_drop(flows.arrived, arcs, keeps).items():
        arcs[on] = replace(arcs[on], would_shed=rows_less)
    report = Report.of_network(flows.arrived, arcs)
    some = sample.arrived > 0
    return replace(
        report,
        batches=int(some),
        over_bound=int(some and sample.latency > bound),
        latency_last=sample.latency if some else 0.0,
        latencies=latencies_of(sample, report.kept),
        by_output=_outputs(flows, layout, slots.shares(plan.drops, catalog), catalog, arcs, some=some),
    )


def _arcs(flows: Flows, layout: QueryLayout) -> dict[str, RowCounts]:
    came = {**flows.left, **flows.arrived}
    found = {}
    for on in layout.arcs:
        start, end = ends(on)
        passed = flows.passed[on]
        arrived = max(came.get(start, 0), passed)
        failed = passed - flows.left[end] if end in layout.load_aware else 0
        shed = arrived - passed
        expired = min(flows.expired.get(on, 0), shed)
        cut = min(flows.cut.get(on, 0), shed - expired)
        found[on] = RowCounts(arrived, shed, failed, cut=cut, expired=expired)
    return found


def _outputs(
    flows: Flows,
    layout: QueryLayout,
    shares: Mapping[str, float],
    catalog: Catalog,
    arcs: Mapping[str, RowCounts],
    *,
    some: bool,
) -> dict[str, OutputCounts]:
    passed = {on: (rows.arrived, rows.kept) for on, rows in arcs.items()}
    rates = {name: float(rows) for name, rows in flows.arrived.items()}
    full = catalog.measured(rates=rates).arc_rates if flows.thinned else {}
    found = {}
    for name in layout.outputs:
        (on,) = layout.network.arcs_into(name)
        # While nothing is dropped, what comes out is what was to be expected.
        expected = full[on] if flows.thinned else float(flows.passed[on])
        whole = expected if some else 0.0
        share = shares.get(name, 1.0) if flows.thinned else 1.0
        found[name] = OutputCounts(
            flows.passed[on],
            whole,
            planned=share * whole,
            information=information(layout.network, name, rates, passed),
            windowed=below_a_window(layout.network, name),
        )
    return found


def __getattr__(name: str) -> Any:
    if name == "NetworkReport":
        warn_of("NetworkReport", "streamshed.Report")
        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
