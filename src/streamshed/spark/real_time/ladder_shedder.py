"""The handle of a stream that is shed in real-time mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from streamshed.spark.real_time.age_ladder import AgeLadder
from streamshed.spark.real_time.aged_stream import AgedStream
from streamshed.spark.real_time.ladder_books import RungCounts


class LadderShedder(AgedStream):
    """The handle of a stream that is shed by age: what it does, and its settings.

    Settings take effect in the batch that is running, within a fraction of a second. `report()` has the batches
    that are over, exactly; `live()` has the one that is running. A batch that is stopped in the middle is done
    again by Spark, and counted then.
    """

    @property
    def ladder(self) -> AgeLadder:
        """The age limits in force."""
        return cast("AgeLadder", self._ladder)

    @property
    def queries(self) -> list[str]:
        """Ids of the running queries that read this stream."""
        return list(self._queries)

    @property
    def by_class(self) -> Mapping[str, RungCounts]:
        """Rows of each class: arrived, and shed by rung. Of the batches that are over."""
        return dict(zip(self._ladder.classes, self._by_class, strict=True))

    def __repr__(self) -> str:
        report = self.report()
        return (
            f"<LadderShedder {self.name!r}: {self.mode.value}, latency {self.latency * 1000:g} ms, "
            f"{report.kept:,} of {report.arrived:,} rows kept>"
        )
