"""Names that a report had before there was one for all entries. They work for one version more, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from streamshed.quality.report import Report


def warn_of(before: str, now: str) -> None:
    """Say what a name that is used is called now."""
    warnings.warn(f"{before} is called {now} now, and will be gone in the next version", DeprecationWarning, 3)


class FormerNames:
    """What a `Report` was also asked for."""

    __slots__ = ()

    @property
    def latency_max(self) -> float:
        warn_of("latency_max", "latency_worst")
        return self._report.latency_worst

    @property
    def queue_sum(self) -> float:
        warn_of("queue_sum", "queuing.total")
        return self._report.queuing.total

    @property
    def reached(self) -> Mapping[str, int]:
        warn_of("reached[arc]", "by_arc[arc].arrived")
        return {name: rows.arrived for name, rows in self._report.by_arc.items()}

    @property
    def passed(self) -> Mapping[str, int]:
        warn_of("passed[arc]", "by_arc[arc].passed")
        return {name: rows.passed for name, rows in self._report.by_arc.items()}

    @property
    def delivered(self) -> Mapping[str, int]:
        warn_of("delivered[output]", "by_output[output].delivered")
        return {name: output.delivered for name, output in self._report.by_output.items()}

    @property
    def expected(self) -> Mapping[str, float]:
        warn_of("expected[output]", "by_output[output].expected")
        return {name: output.expected for name, output in self._report.by_output.items()}

    @property
    def percent(self) -> Mapping[str, float]:
        warn_of("percent[output]", "by_output[output].percent")
        return {name: output.percent for name, output in self._report.by_output.items()}

    def as_json(self) -> dict[str, Any]:
        warn_of("as_json()", "as_dict()")
        return self._report.as_dict()

    @property
    def _report(self) -> Report:
        return cast("Report", self)
