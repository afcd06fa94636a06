"""What loss, delay and values mean to an output: piecewise linear graphs of utility.

LSRM = Tatbul et al., Load Shedding in a Data Stream Manager, VLDB 2003.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streamshed.errors import InvalidArgument
from streamshed.network.expressions.ranges import Ranges, above, number

Point = tuple[float, float]
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Piece:
    """A straight piece of a graph: from `low` to `high`, `slope` of utility per unit of x."""

    low: float
    high: float
    slope: float


@dataclass(frozen=True)
class Graph:
    """A concave, piecewise linear graph of utility, constant beyond its ends.

    >>> g = Graph.of([(100, 1.0), (50, 0.7), (0, 0.0)])
    >>> g(75), [round(piece.slope, 3) for piece in g.pieces]
    (0.85, [0.014, 0.006])
    >>> (g + g)(50)
    1.4
    >>> Graph.of([(0, 0.0), (50, 0.2), (100, 1.0)])
    Traceback (most recent call last):
    ...
    streamshed.errors.InvalidArgument: the graph is not concave: its slope rises in the piece from 50 to 100
      got:  slope 0.016 after 0.004
      hint: utility must fall ever faster, never slower, as the quality gets worse
    """

    points: tuple[Point, ...]
    """(x, utility), x ascending, no two equal."""

    @classmethod
    def of(cls, points: Iterable[Sequence[float]]) -> Graph:
        """A graph through points given in any order; checked."""
        ordered = sorted((float(x), float(u)) for x, u in points)
        if len(ordered) < 2:
            raise InvalidArgument("a graph needs at least two points", got=ordered)
        if not all(math.isfinite(value) for point in ordered for value in point):
            raise InvalidArgument("a graph's points must be finite", got=ordered)
        for (x, _), (following, _) in pairwise(ordered):
            if x == following:
                raise InvalidArgument("a graph has one utility for each x", got=f"two points at {number(x)}")
        graph = cls(tuple(ordered))
        for before, after in pairwise(graph.pieces):
            if after.slope > before.slope + _TOLERANCE:
                raise InvalidArgument(
                    f"the graph is not concave: its slope rises in the piece from {number(after.low)} to"
                    f" {number(after.high)}",
                    got=f"slope {after.slope:g} after {before.slope:g}",
                    hint="utility must fall ever faster, never slower, as the quality gets worse",
                )
        return graph

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        x, u = zip(*self.points, strict=True)
        return np.array(x), np.array(u)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """From the lowest x to the highest."""
        return tuple(
            Piece(x, following, (v - u) / (following - x)) for (x, u), (following, v) in pairwise(self.points)
        )

    @cached_property
    def xs(self) -> tuple[float, ...]:
        return tuple(x for x, _ in self.points)

    def __call__(self, x: float) -> float:
        return float(np.interp(x, *self._arrays))

    def many(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Utility of many values at once."""
        return np.interp(x, *self._arrays)

    def piece_below(self, x: float) -> Piece:
        """The piece that a cursor at `x` enters when it moves down."""
        return self.pieces[min(max(bisect.bisect_left(self.xs, x) - 1, 0), len(self.pieces) - 1)]

    def __add__(self, other: Graph) -> Graph:
        """The sum of two graphs: the cumulative QoS where one drop affects several outputs (LSRM 4.3.2)."""
        xs = sorted({*self.xs, *other.xs})
        return Graph(tuple((x, self(x) + other(x)) for x in xs))


def total(graphs: Iterable[Graph]) -> Graph:
    """The sum of graphs."""
    first, *others = graphs
    for graph in others:
        first = first + graph
    return first


@dataclass(frozen=True)
class LossGraph(Graph):
    """Percent of rows delivered ─► utility, from 0 to 100 %; never falls as more is delivered.

    >>> LossGraph.of([(100, 1.0), (50, 0.7), (0, 0.0)])(25)
    0.35
    """

    @classmethod
    def of(cls, points: Iterable[Sequence[float]]) -> LossGraph:
        graph = super().of(points)
        if (graph.xs[0], graph.xs[-1]) != (0.0, 100.0):
            raise InvalidArgument("a loss graph goes from 0 to 100 percent delivered", got=list(graph.xs))
        _check_utilities(graph)
        for piece in graph.pieces:
            if piece.slope < -_TOLERANCE:
                raise InvalidArgument(
                    "a loss graph must not fall as more is delivered",
                    got=f"slope {piece.slope:g} from {number(piece.low)} to {number(piece.high)}",
                )
        return cls(graph.points)


@dataclass(frozen=True)
class LatencyGraph(Graph):
    """Seconds ─► utility; never rises.

    >>> g = LatencyGraph.of([(0, 1.0), (2, 1.0), (10, 0.0)])
    >>> g(6), g.knee
    (0.5, 2.0)
    """

    @classmethod
    def of(cls, points: Iterable[Sequence[float]]) -> LatencyGraph:
        graph = super().of(points)
        if graph.xs[0] != 0:
            raise InvalidArgument("a latency graph begins at 0 seconds", got=number(graph.xs[0]))
        _check_utilities(graph)
        for piece in graph.pieces:
            if piece.slope > _TOLERANCE:
                raise InvalidArgument(
                    "a latency graph must not rise with the delay",
                    got=f"slope {piece.slope:g} from {number(piece.low)} to {number(piece.high)}",
                )
        return cls(graph.points)

    @property
    def knee(self) -> float:
        """The delay at which utility begins to fall: Aurora's delay threshold."""
        return next((piece.low for piece in self.pieces if piece.slope < 0), math.inf)


def _check_utilities(graph: Graph) -> None:
    for x, utility in graph.points:
        if not 0 <= utility <= 1:
            raise InvalidArgument("a utility lies between 0 and 1", got=f"{utility:g} at {number(x)}")


@dataclass(frozen=True, slots=True)
class ValueInterval:
    """Values from `low` to `high`; utility goes linearly from `utility` to `end` (equal: constant)."""

    low: float
    high: float
    utility: float
    end: float

    @property
    def mean(self) -> float:
        return (self.utility + self.end) / 2


@dataclass(frozen=True)
class Histogram:
    """How values are spread: bins between ascending edges, each with its share; even within a bin.

    >>> h = Histogram.uniform(0, 100)
    >>> h.share(Ranges.between(0, 25)), h.quantile(0, 50, 0.5)
    (0.25, 25.0)
    """

    edges: tuple[float, ...]
    shares: tuple[float, ...]

    @staticmethod
    def of(edges: Sequence[float], counts: Sequence[float]) -> Histogram:
        ordered = all(a < b for a, b in pairwise(edges))
        if len(edges) != len(counts) + 1 or len(edges) < 2 or not ordered:
            raise InvalidArgument(
                "a histogram has ascending edges, one more than shares", got=f"{list(edges)}, {list(counts)}"
            )
        if min(counts) < 0 or not 0 < math.fsum(counts) < math.inf:
            raise InvalidArgument("shares must not be negative, nor all zero", got=list(counts))
        whole = math.fsum(counts)
        return Histogram(tuple(map(float, edges)), tuple(count / whole for count in counts))

    @staticmethod
    def uniform(low: float, high: float) -> Histogram:
        return Histogram.of((low, high), (1.0,))

    def share(self, ranges: Ranges) -> float:
        """Share of the values that lie in a set; the last edge belongs to the last bin."""
        # Differences of sums: rounding may leave them a little below 0, or above 1.
        return min(1.0, max(0.0, math.fsum(self._below(high) - self._below(low) for low, high in ranges)))

    def _below(self, x: float) -> float:
        if x <= self.edges[0]:
            return 0.0
        if x >= self.edges[-1]:
            return 1.0
        at = bisect.bisect_right(self.edges, x) - 1
        low, high = self.edges[at], self.edges[at + 1]
        return math.fsum(self.shares[:at]) + self.shares[at] * (x - low) / (high - low)

    def quantile(self, low: float, high: float, fraction: float) -> float:
        """The value below which a fraction of the mass between `low` and `high` lies."""
        start, stop = self._below(low), self._below(high)
        wanted = start + (stop - start) * fraction
        reached = 0.0
        for left, right, share in zip(self.edges, self.edges[1:], self.shares, strict=False):
            if share > 0 and reached + share >= wanted - 1e-15:
                value = left + (right - left) * min(1.0, max(0.0, (wanted - reached) / share))
                return min(max(float(f"{value:.12g}"), low), high)  # a cut that reads well, not 9.999999999999998
            reached += share
        return high

    def restrict(self, ranges: Ranges) -> Histogram | None:
        """The histogram of those values that lie in a set; None if none do."""
        cuts = sorted({*self.edges, *(e for i in ranges for e in i if self.edges[0] < e < self.edges[-1])})
        counts = [self.share(Ranges.between(a, b) & ranges) for a, b in pairwise(cuts)]
        return Histogram.of(cuts, counts) if math.fsum(counts) > 0 else None

    def through(self, edges: Sequence[float]) -> Histogram:
        """The same shares between other edges (the images of these under an increasing function)."""
        return Histogram.of(edges, self.shares)

    @staticmethod
    def mixture(parts: Sequence[tuple[float, Histogram]]) -> Histogram | None:
        """The histogram of several streams together, each weighted with its rate."""
        parts = [(weight, part) for weight, part in parts if weight > 0]
        if not parts:
            return None
        cuts = sorted({edge for _, part in parts for edge in part.edges})
        counts = [
            math.fsum(weight * part.share(Ranges.between(a, b)) for weight, part in parts)
            for a, b in pairwise(cuts)
        ]
        return Histogram.of(cuts, counts)


@dataclass(frozen=True)
class ValueGraph:
    """Ranges of one output field ─► utility. Values outside every interval have utility 0.

    An interval includes its lower end; its upper end belongs to the interval that begins there, if any.
    """

    field: str
    intervals: tuple[ValueInterval, ...]
    """Ascending, not overlapping."""

    @staticmethod
    def of(field: str, intervals: Iterable[Sequence[float]]) -> ValueGraph:
        """From `[from, to, utility]`, or `[from, to, utility, utility at to]` where it is not constant."""
        made = sorted(
            (ValueInterval(float(i[0]), float(i[1]), float(i[2]), float(i[-1])) for i in intervals),
            key=lambda interval: interval.low,
        )
        if not made:
            raise InvalidArgument("a value graph needs at least one interval")
        for interval in made:
            if not interval.low < interval.high:
                raise InvalidArgument(
                    "an interval must end above its start",
                    got=f"[{number(interval.low)}, {number(interval.high)}]",
                )
            if not (0 <= interval.utility <= 1 and 0 <= interval.end <= 1):
                raise InvalidArgument(
                    "a utility lies between 0 and 1", got=f"{interval.utility:g} to {interval.end:g}"
                )
        for before, after in pairwise(made):
            if after.low < before.high:
                raise InvalidArgument(
                    "value intervals must not overlap",
                    got=f"[{number(before.low)}, {number(before.high)}]"
                    f" and [{number(after.low)}, {number(after.high)}]",
                )
        return ValueGraph(field, tuple(made))

    def __call__(self, value: float) -> float:
        return float(self.many(np.asarray([value], dtype=np.float64))[0])

    def many(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Utility of many values at once."""
        utility = np.zeros(len(values))
        for low, high, interval in self._spans():
            inside = (values >= low) & (values < high)
            if interval.end == interval.utility:
                np.putmask(utility, inside, interval.utility)
                continue
            along = (values[inside] - interval.low) / (interval.high - interval.low)
            utility[inside] = interval.utility + (interval.end - interval.utility) * along
        return utility

    def _spans(self) -> list[tuple[float, float, ValueInterval]]:
        """Each interval with its half-open ends: closed above where no other begins."""
        starts = {interval.low for interval in self.intervals}
        return [(i.low, i.high if i.high in starts else above(i.high), i) for i in self.intervals]

    def in_chunks(self, size: float | None) -> ValueGraph:
        """Intervals of non-constant utility in chunks of `size`, each with its average utility (LSRM n. 2).

        >>> g = ValueGraph.of("f", [[0, 10, 0.0, 1.0]]).in_chunks(5)
        >>> [(i.low, i.high, i.utility) for i in g.intervals]
        [(0.0, 5.0, 0.25), (5.0, 10.0, 0.75)]
        """
        made: list[ValueInterval] = []
        for interval in self.intervals:
            width = interval.high - interval.low
            if interval.utility == interval.end:
                made.append(interval)
                continue
            count = max(1, math.ceil(width / (size or width / 10) - 1e-9))
            cuts = [*(interval.low + width * k / count for k in range(count)), interval.high]
            for low, high in pairwise(cuts):
                middle = ((low + high) / 2 - interval.low) / width
                mean = interval.utility + (interval.end - interval.utility) * middle
                made.append(ValueInterval(low, high, mean, mean))
        return ValueGraph(self.field, tuple(made))

    def order(self, histogram: Histogram, chunk: float | None = None) -> SheddingOrder:
        """Which values to drop first: LSRM's interval table."""
        graph = self.in_chunks(chunk)
        spans = [(Ranges.between(low, high), i.utility) for low, high, i in graph._spans()]
        covered = Ranges.of(interval for ranges, _ in spans for interval in ranges)
        uncovered = ~covered
        if histogram.share(uncovered) > 0:
            edges = Ranges.between(histogram.edges[0], above(histogram.edges[-1]))
            spans.extend((Ranges((interval,)), 0.0) for interval in uncovered & edges)
        rows = [ValueRow(ranges.intervals[0], utility, histogram.share(ranges)) for ranges, utility in spans]
        rows.sort(key=lambda row: (row.utility, row.span))
        return SheddingOrder(self.field, tuple(row for row in rows if row.frequency > 0), histogram)

    def loss_graph(self, histogram: Histogram, chunk: float | None = None) -> LossGraph:
        """The loss-tolerance graph that dropping the least useful values first gives (LSRM 4.3.4)."""
        return self.order(histogram, chunk).loss_graph()


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A row of LSRM's Table 1: an interval, its utility u and relative frequency f."""

    span: tuple[float, float]
    utility: float
    frequency: float

    @property
    def weight(self) -> float:
        """w = u × f."""
        return self.utility * self.frequency


@dataclass(frozen=True)
class SheddingOrder:
    """Value intervals by ascending utility: what goes first (LSRM 4.3.4).

    With u and f of each interval, w = u·f and n = w/Σw; dropping the first intervals leaves 100·(1 − Σf)
    percent of the rows and a utility of 1 − Σn.

    LSRM's Table 1 and Figure 8:

    >>> graph = ValueGraph.of("value", [[0, 50, 0.2], [51, 100, 1.0]])
    >>> order = graph.order(Histogram.of([0, 50, 51, 100], [0.4, 0, 0.6]))
    >>> [(round(x, 6), round(u, 2)) for x, u in order.loss_graph().points]
    [(0.0, 0.0), (60.0, 0.88), (100.0, 1.0)]
    >>> (~order.dropped(20)).render("value", integers=True)
    'value >= 25'
    >>> (~order.dropped(70)).render("value", integers=True)
    'value > 75'
    """

    field: str
    rows: tuple[ValueRow, ...]
    histogram: Histogram

    def loss_graph(self) -> LossGraph:
        whole = math.fsum(row.weight for row in self.rows)
        delivered, utility = 100.0, 1.0
        points = [(delivered, utility)]
        for index, row in enumerate(self.rows):
            last = index == len(self.rows) - 1
            delivered = 0.0 if last else delivered - 100 * row.frequency
            # With no useful value at all, any row is worth as much as any other: nothing.
            utility = (0.0 if last else utility - row.weight / whole) if whole else 1.0
            points.append((max(0.0, delivered), max(0.0, utility)))
        return LossGraph.of(_merged(points))

    def dropped(self, percent: float) -> Ranges:
        """The values to drop so that `percent` of the rows go: whole intervals, then part of the next.

        Part of an interval is taken from its lower end, so that the predicate stays a range. Beyond the
        outermost intervals the set is open, so that a value never seen before goes with its neighbours.
        """
        left = min(percent, 100.0) / 100
        if left <= 0:
            return Ranges.nothing()
        gone: list[tuple[float, float]] = []
        lowest = min(row.span[0] for row in self.rows)
        highest = max(row.span[1] for row in self.rows)
        starts = sorted(row.span[0] for row in self.rows)
        for row in self.rows:
            low, high = row.span
            after = bisect.bisect_right(starts, low)
            stop = math.inf if high >= highest else max(high, starts[after])  # a gap goes with its lower side
            start = -math.inf if low <= lowest else low
            if row.frequency <= left + 1e-12:
                gone.append((start, stop))
                left -= row.frequency
                if left <= 1e-12:
                    break
            else:
                gone.append((start, self.histogram.quantile(low, high, left / row.frequency)))
                break
        return Ranges.of(gone)


def _merged(points: list[Point]) -> list[Point]:
    """Without points that repeat an x or lie on a straight line between their neighbours.

    Shares that were added up may miss the ends, 0 and 100 percent, by rounding; here they meet them.
    """
    kept: list[Point] = []
    for at, u in points:
        x = next((end for end in (0.0, 100.0) if abs(at - end) < 1e-9), at)
        if kept and abs(kept[-1][0] - x) < 1e-9:
            kept[-1] = (kept[-1][0], u)
            continue
        if len(kept) >= 2:
            (a, ua), (b, ub) = kept[-2], kept[-1]
            if abs((ub - ua) / (b - a) - (u - ub) / (x - b)) < 1e-12:
                kept.pop()
        kept.append((x, u))
    return kept


LINEAR = LossGraph(((0.0, 0.0), (100.0, 1.0)))
"""Utility equal to the fraction delivered: what an output that says nothing gets."""


@dataclass(frozen=True)
class QoS:
    """What an output says about loss, latency and values. All are optional."""

    loss: LossGraph | None = None
    latency: LatencyGraph | None = None
    value: ValueGraph | None = None
    histogram: Histogram | None = None
    """How the values of the value graph's field are spread at the output, if known."""

    def loss_graph(self, histogram: Histogram | None = None) -> LossGraph:
        """The loss graph given, or derived from the value graph, or `LINEAR`."""
        if self.loss is not None:
            return self.loss
        spread = self.histogram or histogram
        if self.value is not None and spread is not None:
            return self.value.loss_graph(spread)
        return LINEAR
