"""The driver's side of the load-aware operator: from what the tasks report to the next order. No Spark in here."""

from __future__ import annotations

from dataclasses import dataclass

from streamshed.errors import InvalidArgument
from streamshed.las.check import AVERAGE, NANOSECONDS, parse
from streamshed.las.learn import Operator
from streamshed.las.settings import LasSettings
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import CarterWegman
from streamshed.spark.load_aware.cost_orders import CostTable, Order
from streamshed.spark.load_aware.cost_stage import Tally

_DELAYS = 5
"""Batches of which the usual delay is the (lower) median. The one that starts Python workers and compiles is slow
by many targets; a mean with it in would have the next ones keep nothing."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a latency asks for, in the numbers of an order.

    >>> Goal.parse("avg 2 seconds"), Goal.parse("max 500 ms"), Goal.parse("avg 2 s over 4000 rows").window
    (Goal(kind=0.0, target=2.0, window=0), Goal(kind=1.0, target=0.5, window=0), 4000)
    """

    kind: float
    target: float
    """Seconds."""
    window: int
    """Rows; 0 means all."""

    @staticmethod
    def parse(latency: object) -> Goal:
        if not isinstance(latency, str):
            raise InvalidArgument(
                "a latency says how waits are judged, and the limit",
                got=repr(latency),
                hint='write "avg 2 seconds", "max 2 seconds" or "avg 2 seconds over 4000 rows"',
            )
        check = parse(latency)
        return Goal(check.kind, check.threshold / NANOSECONDS, check.span)

    def __str__(self) -> str:
        over = f" over {self.window} rows" if self.window else ""
        return f"{'avg' if self.kind == AVERAGE else 'max'} {self.target:g} seconds{over}"


class CostControl:
    """Learns from finished tasks; makes orders."""

    def __init__(self, hashes: CarterWegman, settings: LasSettings, *, synchronised: bool = True) -> None:
        self.hashes = hashes
        self.operator = Operator(hashes, settings)
        self.synchronised = synchronised
        self.table: CostTable | None = None
        self.stable = False
        """Whether the table has been found stable; until one has, the newest that is known is used."""
        self.waited = 0.0
        self.rows = 0.0
        # Before anything is known, none: so that the first batch of all does not speak alone.
        self._delays: dict[object, list[float]] = {None: [0.0]}
        self.queues = 1
        self.numbered = 0
        """The highest number that a table has had: no two tables may share one."""
        self._free: dict[int, float] = {}

    def resume(self, order: Order, table: CostTable | None, queues: int) -> None:
        """Go on where an earlier run stopped; only what was being learned is lost."""
        self.table, self.stable = table, table is not None
        self.numbered = max(self.numbered, table.number if table is not None else 0)
        self.queues = max(1, queues)
        self.waited, self.rows = order.waited * self.queues, order.rows * self.queues
        self._delays = {None: [order.delay]}

    @property
    def delay(self) -> float:
        """How long after a batch's timestamp its first row usually starts."""
        means = sorted(sum(delays) / len(delays) for delays in self._delays.values())
        return means[(len(means) - 1) // 2]

    def learn(self, tallies: dict[int, Tally], window: int, batch: object) -> None:
        """Tasks of one batch have ended, all or some of them: learn costs, and where the queues are now.

        Δ, the difference between the queues as foreseen and as they are, is applied here once a micro-batch: the
        next order goes by what the rows have really waited, and the next batch begins at its own, real, time.
        """
        for partition, tally in tallies.items():
            self._take_in(partition, tally)
        if not self.stable and self.operator.sketch.seen:
            # The paper sheds nothing before the first stable matrices, and assumes that it need not. A job may
            # start with a backlog; its first batch tells the mean cost, if not yet the differences.
            self._use(self.operator.sketch)
        delays = [tally.delay for tally in tallies.values() if tally.delay is not None]
        if delays:
            self._delays.setdefault(batch, []).extend(delays)
            while len(self._delays) > _DELAYS:
                del self._delays[next(iter(self._delays))]
        if window and self.rows > window:
            self.waited *= window / self.rows
            self.rows = float(window)

    def _take_in(self, partition: int, tally: Tally) -> None:
        stable = self.operator.absorb(CostSketch(self.hashes, tally.frequencies, tally.durations))
        if stable is not None:
            self.stable = True
            self._use(stable)
        if not tally.checked:
            return
        if self.synchronised and tally.shed == tally.would_shed:
            self.waited += tally.waited
            self.rows += tally.ran
        else:
            # Nothing is enforced, or the clock is not looked at: by what was foreseen.
            self.waited += tally.planned
            self.rows += tally.arrived - tally.would_shed
        self._free[partition] = tally.free

    def _use(self, sketch: CostSketch) -> None:
        self.numbered += 1
        self.table = CostTable.of(self.numbered, sketch)

    def order(self, start: int, lease: float, version: int, mode: float, goal: Goal, floor: float = 0.0) -> Order:
        free: tuple[float, ...] = ()
        if not self.synchronised:
            free = tuple(self._free.get(partition, 0.0) for partition in range(max(self._free, default=-1) + 1))
        order = Order(
            start=start,
            until=start + int(lease * 1000),
            version=version,
            table=self.table.number if self.table is not None else 0,
            mode=mode,
            kind=goal.kind,
            target=goal.target,
            window=goal.window / self.queues,
            delay=self.delay,
            waited=self.waited / self.queues,
            rows=self.rows / self.queues,
            free=free,
            floor=floor,
        )
        # As it will be read: a box is told this one, and the saved one when its batch runs again.
        return Order.from_row(order.as_row())
