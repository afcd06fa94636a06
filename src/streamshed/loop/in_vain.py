"""Where dropping would be in vain: what breaks the bound is not the rows."""

from __future__ import annotations

from collections import deque

from streamshed.loop.batch_cost import CostModel
from streamshed.loop.overload import longest
from streamshed.records import Sample

_REMEMBERED = 20  # intervals whose durations are compared with the fixed cost
_FEW = 4  # so many must have been seen
_STEADY = 1.3  # two intervals in a row that differ by less do not grow
_LONGER = 1.5  # an interval that took so many times the fixed cost has rows that cost
_CLEARLY = 1.05  # of the allowed length: what is said to be too long must be
_SHORT = 0.85  # of the allowed length: who took less shows that there is room


def came_late(sample: Sample, budget: float | None) -> bool:
    """Whether it was not for their number that rows came to the drop after the budget was over.

    An interval that is cut takes as long as its budget lets it, and tells nothing else of its length.
    """
    return budget is not None and sample.duration - sample.tail > _LONGER * budget


class InVain:
    """Says why dropping every row would not bring the bound back; nothing if it would.

    The trigger interval may leave nothing of the bound, or what an interval costs whatever is in it; and a query
    that only drains what was there has no bound to keep. The fixed cost is believed only if no interval took
    less and the last two were about equal: in an overload they grow, and a fit to growing ones takes a cold
    start for a fixed cost. Intervals all of one size do not tell it from the cost of rows; what was known before
    them then lasts until one is far longer or shorter.
    """

    def __init__(self, cost: CostModel, latency: float) -> None:
        self.latency = latency
        self.fixed = 0.0
        """What an interval costs whatever is in it, if that is too long."""
        self._cost = cost
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)

    def why(self, sample: Sample, budget: float | None = None) -> str:
        """`budget` is what the sample's interval had."""
        if sample.draining:
            return "the query ends when it has read what was there (availableNow), so there is no bound to keep"
        cut_short = sample.cut > 0 and not came_late(sample, budget)
        if sample.finished and sample.arrived > 0 and not cut_short:
            self._durations.append(sample.duration)
        most = longest(self.latency, sample.interval)
        self.fixed = self._too_long(most)
        if most > 0 and self.fixed == 0:
            return ""
        bound = f"the bound of {self.latency:.1f} s; dropping rows cannot help"
        if sample.interval > self.latency:
            return f"the trigger interval of {sample.interval:.1f} s alone is longer than {bound}"
        if self.fixed == 0:
            return f"the trigger interval of {sample.interval:.1f} s leaves no time of {bound}"
        before = "the one before" if self.fixed > sample.interval else f"its trigger ({sample.interval:.1f} s)"
        return (
            f"a batch takes {self.fixed:.1f} s whatever is in it, and its rows wait for {before}, which leaves "
            f"no time of {bound}"
        )

    def _too_long(self, most: float) -> float:
        """The fixed cost if it is more than an interval may take, else 0."""
        if len(self._durations) < _FEW:
            return 0.0
        shortest = min(self._durations)
        if self.fixed > 0 and shortest > _SHORT * most and self._durations[-1] < _LONGER * self.fixed:
            return self.fixed
        before, last = list(self._durations)[-2:]
        if not max(before, last) < _STEADY * min(before, last):
            return 0.0
        fixed = min(self._cost.predict(0.0, 0.0), shortest)
        # What is far longer is so for its rows.
        return fixed if _CLEARLY * most < fixed and last < _LONGER * fixed else 0.0
