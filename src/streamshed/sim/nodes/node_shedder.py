"""The load-shedder of a node: every 250 ms it looks whether what waits can be worked on in time (DISSP 4.3, 5.2).

    1  pause the operator runner
    2  calculate how many tuples are too many:  N_discard = IB_size − δ / C_T   (eq. 5.1 and 5.3)
    3  choose which batches to shed
    4  shed them
    5  resume the operator runner
    6  update the load metrics:  C_T = t / n over the last 40 intervals   (eq. 5.2)

While it looks, the input buffer is locked, and what arrives waits in the secondary buffer. t is the time that the
runner worked, which under overload is the whole interval: a node that had little to do does not hold its tuples
for costly because of that.

DISSP smooths all that it goes by over 40 intervals, so that a large batch that came alone is not mistaken for
overload (5.4). So IB_size too: nothing is shed while the mean of what waited fits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from streamshed.loop.batch_cost import MeanCost
from streamshed.policies.fair import Admitted
from streamshed.sim.nodes.batch import Batch
from streamshed.sim.nodes.events import Events
from streamshed.sim.nodes.input_buffer import InputBuffer
from streamshed.sim.nodes.operator_runner import OperatorRunner

INTERVAL = 0.25
"""δ, seconds (DISSP 4.3)."""
SMOOTHED = 40
"""Intervals over which costs and sizes are smoothed (DISSP 5.4)."""
DECISION = 2e-7
"""Seconds of a decision for each batch that waits, as `streamshed bench fair-decision` measures."""


class NodeShedder:
    """Runs its cycle as long as the simulation lasts.

    choose: which of some batches to keep so that so many tuples are kept
    """

    def __init__(
        self,
        events: Events,
        buffer: InputBuffer,
        runner: OperatorRunner,
        choose: Callable[[tuple[Batch, ...], float], Admitted],
        *,
        interval: float = INTERVAL,
        decision: float = DECISION,
    ) -> None:
        self._events = events
        self._buffer = buffer
        self._runner = runner
        self._choose = choose
        self._interval = interval
        self._decision = decision
        self._sizes: deque[int] = deque(maxlen=SMOOTHED)
        self.cost = MeanCost(SMOOTHED)
        self.shed = 0
        """Tuples, since the node began."""
        self.sheds = 0
        """Intervals in which something was shed."""

    def cycle(self) -> None:
        start = self._events.now
        self._runner.pause()
        waiting = self._buffer.lock()
        size = sum(batch.tuples for batch in waiting)
        self._sizes.append(size)
        usual = sum(self._sizes) / len(self._sizes)
        fitting = self.cost.fitting(size, self._interval)
        overloaded = size > fitting and usual > self.cost.fitting(usual, self._interval)
        chosen = self._choose(waiting, fitting) if overloaded else None
        took = self._decision * len(waiting)
        self._events.at(start + took, partial(self._shed_and_go_on, chosen))
        self._events.at(start + max(self._interval, took), self.cycle)

    def _shed_and_go_on(self, chosen: Admitted | None) -> None:
        if not self._buffer.locked:
            return  # the node has failed meanwhile
        if chosen is not None:
            self.shed += sum(batch.tuples for batch in self._buffer.keep(chosen))
            self.sheds += 1
        self._buffer.unlock()
        self._runner.resume()
        seconds, tuples = self._runner.measured()
        self.cost.observe(seconds, tuples, tuples)
