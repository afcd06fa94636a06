"""How the work of a batch is counted where rows are parsed late: a row that was parsed and dropped behind it cost
something, one that was dropped before it did not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from streamshed.loop.workload import CatalogWork
from streamshed.network.catalog import Catalog
from streamshed.network.graph import arc, ends
from streamshed.network.parse_step import parse_box, with_parse_boxes
from streamshed.records import Flows, Sample


class ParsedWork(CatalogWork):
    """The catalog's work for one query, with the parses of its sources as boxes."""

    def __init__(self, catalog: Catalog, selectivities: Callable[[], Mapping[str, float]]) -> None:
        self._parsed = [name for name, cost in catalog.parses.items() if cost > 0]
        ours = dict.fromkeys(map(parse_box, self._parsed), 1.0)
        super().__init__(with_parse_boxes(catalog), lambda: {**selectivities(), **ours})

    def of(self, sample: Sample) -> Sample:
        return super().of(replace(sample, flows=self._with_parses(sample.flows or Flows())))

    def wanted(self, sample: Sample) -> float:
        return super().wanted(replace(sample, flows=self._with_parses(sample.flows or Flows())))

    def _with_parses(self, flows: Flows) -> Flows:
        """What went where in the network that has the parses as boxes."""
        passed: dict[str, int] = {}
        for on, rows in flows.passed.items():
            tail, head = ends(on)
            passed[arc(parse_box(tail), head) if tail in self._parsed else on] = rows
        for source in self._parsed:
            if source in flows.arrived:
                passed[arc(source, parse_box(source))] = flows.parsed.get(source, flows.arrived[source])
        parsed = {parse_box(name): rows for name, rows in flows.parsed.items() if name in self._parsed}
        cut, expired = self._moved(flows.cut), self._moved(flows.expired)
        return replace(flows, passed=passed, left={**flows.left, **parsed}, cut=cut, expired=expired)

    def _moved(self, lost: Mapping[str, int]) -> dict[str, int]:
        """What was lost by arc: what all arcs of a source have lost was lost in front of its parse."""
        found = dict(lost)
        for source in self._parsed:
            box = parse_box(source)
            arcs = {arc(tail, head): arc(box, head) for tail, head in map(ends, lost) if tail == source}
            readers = self.catalog.network.arcs_out_of(box)
            before = min((lost[on] for on in arcs), default=0) if len(arcs) == len(readers) else 0
            for on, behind in arcs.items():
                found[behind] = found.pop(on) - before
            if before:
                found[arc(source, box)] = before
        return {on: rows for on, rows in found.items() if rows}
