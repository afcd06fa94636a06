"""How many rows a batch has that still runs: by the offsets of its source, or by the bytes of its files.

A batch that takes long may stand still, or may have many rows. What it was given is known as soon as it is
planned: Kafka's offsets count rows; a scan of files knows how many bytes they have, and batches that are over tell
how many bytes a row has.
"""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JError

from streamshed.spark.watch.progress import offset_numbers

_NEWER = 0.3  # share of the way to what the last batch's rows had


class SourceRows:
    """What the one source of a query gave to a batch."""

    def __init__(self) -> None:
        self._bytes_a_row = 0.0

    def learn(self, plan: Any, rows: int) -> None:
        """A batch is over, and had so many rows."""
        size = _bytes(plan)
        if size > 0 and rows > 0:
            # What a batch reads twice is counted twice, so that the larger of two answers is nearer to the truth.
            weight = _NEWER if size / rows < self._bytes_a_row else 1.0
            self._bytes_a_row += weight * (size / rows - self._bytes_a_row)

    def given(self, plan: Any) -> int:
        """Rows of a batch that may still run; 0: not known."""
        counted = _offsets(plan)
        if counted:
            return counted
        return round(_bytes(plan) / self._bytes_a_row) if self._bytes_a_row else 0


def _bytes(plan: Any) -> float:
    """Of the files that a plan scans; 0 if it scans none, or does not yet."""
    try:
        return float(_only_leaf(plan).longMetric("filesSize").value())
    except (Py4JError, AttributeError):
        return 0.0


def _offsets(plan: Any) -> int:
    """Rows between the offsets of a plan's source; 0 if it has none that count rows."""
    try:
        leaf = _only_leaf(plan)
        begin, end = (dict(offset_numbers(json.loads(each.json()))) for each in (leaf.start(), leaf.end()))
    except (Py4JError, AttributeError, ValueError, TypeError):
        return 0
    return int(sum(max(0.0, offset - begin.get(place, 0.0)) for place, offset in end.items()))


def _only_leaf(plan: Any) -> Any:
    """The one leaf of a plan, also of an adaptive one; None if there are several."""
    while True:
        name = plan.nodeName()
        if name == "AdaptiveSparkPlan":
            plan = plan.executedPlan()
        elif name.endswith("QueryStage"):
            plan = plan.plan()
        else:
            leaves = plan.collectLeaves()
            if leaves.size() != 1:
                return None
            leaf = leaves.apply(0)
            name = leaf.nodeName()
            if name != "AdaptiveSparkPlan" and not name.endswith("QueryStage"):
                return leaf
            plan = leaf
