"""The input buffer of a node, with the secondary buffer that takes over while the shedder looks (DISSP 5.2,
5.3)."""

from __future__ import annotations

from collections import deque

from streamshed.policies.fair import Admitted
from streamshed.sim.nodes.batch import Batch


class InputBuffer:
    """Batches in the order of their arrival.

    While it is locked, what arrives goes to a secondary buffer: the shedder sees a set that does not change, and
    nothing is refused. Unlocking puts it behind what was kept.
    """

    def __init__(self) -> None:
        self._waiting: deque[Batch] = deque()
        self._secondary: list[Batch] = []
        self._locked = False

    def put(self, batch: Batch) -> None:
        (self._secondary if self._locked else self._waiting).append(batch)

    def next(self) -> Batch | None:
        """Take out the oldest; None when there is none."""
        return self._waiting.popleft() if self._waiting else None

    @property
    def locked(self) -> bool:
        return self._locked

    def lock(self) -> tuple[Batch, ...]:
        """What waits, and will not change until `unlock`."""
        self._locked = True
        return tuple(self._waiting)

    def keep(self, chosen: Admitted) -> list[Batch]:
        """Throw out all batches but these, and return them. One answer for each that waited at `lock`."""
        shed = [batch for batch, kept in zip(self._waiting, chosen, strict=True) if not kept]
        self._waiting = deque(batch for batch, kept in zip(self._waiting, chosen, strict=True) if kept)
        return shed

    def unlock(self) -> None:
        self._locked = False
        self._waiting.extend(self._secondary)
        self._secondary.clear()

    def clear(self) -> list[Batch]:
        """Lose everything: the node has failed."""
        self._locked = False
        lost = [*self._waiting, *self._secondary]
        self._waiting.clear()
        self._secondary.clear()
        return lost

    def __len__(self) -> int:
        return len(self._waiting) + len(self._secondary)
