"""The age ladder: how old a row may be when it comes to the drop, by what it is worth.

    bound B, classes 0 … K−1 from the best to the least, R rungs in each; a row stands on rung r of class k
    x(k, r)   = (K−1−k + (r+1)/R) / K                 its height on the whole ladder, 0 … 1
    limit     = low + (high − low) · x²               low = B/4, high = 0.95·B
    a row goes if its age ≥ limit, while the queue stands: rows have been older than `low` for an interval of B/2
    without a break, and it will not be gone by itself within 10·B

Age is the signal of overload: a queue that stands makes all rows older, and rung after rung closes, the least
valued first, until what still passes is what the job can do. Nothing is predicted or steered, and nothing but
costs is ever learned.

- With one limit for all, whatever is kept is as old as the limit: a standing queue. On a ladder the queue stays as
  short as the load allows; the square keeps most rungs low. At x times the capacity a ladder of one class, on
  which rows stand at random, settles at low + (high − low)·(1 − 1/x)²: at 2x that is 0.43·B.
- A short stall, a garbage collection for instance, makes rows old as well, and is over by itself. So nothing
  goes before rows have been older than the lowest rung for a whole interval: CoDel's rule. [1] An interval is
  not enough: after a stall of S at half of the capacity, rows are old for S − low, each younger than the one
  before. So a queue that gets shorter is left alone while, at its pace since rows are old, ages will be below
  `low` before ten bounds are over:

      age − low ≤ pace · (10·B − time since rows are old)     pace: by how much ages fell, over the time it took

  A time without a row of B/8 or more is a stall: it counts as B/8 of the interval and nothing in the pace, or a
  stall alone would fill the one and hide the other. Nor does any row go before rows are older than B/2: a job near
  its capacity may have a queue that neither grows nor ends, and no row of it is late. In an overload of twice the
  capacity they are that old after one interval. A queue that stood in the last ten bounds gets neither patience.
- That a queue's age tells overload better than its length or the load of the machine, and that requests should go
  by their worth in fixed levels, is how DAGOR protects services. [2]

- **Costs.** Of rows of equal worth the dearest should go first: for the same work that is saved, fewer rows are
  lost, which is what Load-Aware Shedding does. [3] A row that costs c times as much as a usual one stands at the
  height hᶜ, where h is what it is worth, or chance. Where the share θ of usual rows is gone, θ^(1/c) of its like
  are: a dear row needs a younger age to enter, a cheap one may be older. Costs are given, or learned
  (`learned_costs`).

[1] K. Nichols, V. Jacobson: Controlling Queue Delay. ACM Queue 10(5), 2012.
[2] H. Zhou et al.: Overload Control for Scaling WeChat Microservices. SoCC 2018.
[3] N. Rivetti et al.: Load-Aware Shedding in Stream Processing Systems. DEBS 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

RUNGS = 32
"""Rungs of one class. A power of two: a row's rung is the first bits of its hash."""
LOWEST, HIGHEST = 0.25, 0.95
"""Where the ladder begins and ends, as shares of the bound. What is left above is for the work behind the drop."""
INTERVAL = 0.5
"""For how long rows must have been old before any goes, as a share of the bound."""
OTHERS = "others"
"""What rows are called that are of no named class."""


class Ladder:
    """What every ladder has that is hung up at a bound."""

    __slots__ = ()
    bound: float

    @property
    def lowest(self) -> float:
        """Seconds; no younger row ever goes."""
        return self.bound * LOWEST

    @property
    def interval(self) -> float:
        """Seconds for which rows must have been older than that."""
        return self.bound * INTERVAL


@dataclass(frozen=True, slots=True)
class AgeLadder(Ladder):
    """Age limits for one bound.

    >>> ladder = AgeLadder(bound=0.2, classes=("gold", "others"))
    >>> for number, name in enumerate(ladder.classes):
    ...     print(name, [round(ladder.limit(number, rung), 3) for rung in (0, RUNGS - 1)])
    gold [0.087, 0.19]
    others [0.05, 0.085]
    """

    bound: float
    """Seconds."""
    classes: tuple[str, ...] = (OTHERS,)
    """From the best to the least."""
    guaranteed: Mapping[str, float] = field(default_factory=dict)
    """Share of a class that passes at any age."""
    floor: float = 0.0
    """The same for classes that are not named there."""

    def limit(self, number: int, rung: int) -> float:
        """Seconds at which a row on this rung of class `number` goes."""
        count = len(self.classes)
        height = (count - 1 - number + (rung + 1) / RUNGS) / count
        return self.bound * (LOWEST + (HIGHEST - LOWEST) * height**2)

    def limits(self) -> list[float]:
        """All limits, class by class, rung by rung."""
        return [self.limit(number, rung) for number in range(len(self.classes)) for rung in range(RUNGS)]

    def share(self, number: int) -> float:
        """What is guaranteed to a class."""
        return max(self.floor, self.guaranteed.get(self.classes[number], 0.0))

    def changed(self, bound: float, floor: float) -> AgeLadder:
        """The same for another bound."""
        return replace(self, bound=bound, floor=floor)
