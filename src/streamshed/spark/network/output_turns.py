"""How the outputs of a batch share what is left of its time."""

from __future__ import annotations

from collections.abc import Mapping

_LEAST = 0.5  # of an even share, that an output has however little it has to do: its job must be started, too


class OutputTurns:
    """Until when each output may take rows: as long as its work says, behind those whose turn was before it.

    Spark runs the jobs of a batch one after the other. With one deadline for all of them the first would have all
    of the time, and the others none. What one leaves of its time the next ones have.

    >>> turns = OutputTurns({"a": 3.0, "b": 1.0}, begin=10.0, end=14.0)
    >>> turns.until("b"), turns.until("a")
    (11.0, 14.0)
    """

    def __init__(self, work: Mapping[str, float], begin: float, end: float) -> None:
        even = sum(work.values()) / len(work)
        parts = {name: max(each, _LEAST * even) for name, each in work.items()}
        whole = sum(parts.values())
        self._shares = {name: part / whole if whole > 0 else 1.0 / len(work) for name, part in parts.items()}
        self._begin, self._length = begin, max(0.0, end - begin)
        self._taken = 0.0

    def until(self, output: str) -> float:
        """The deadline of the output whose turn it is."""
        self._taken += self._shares[output]
        return self._begin + self._length * min(1.0, self._taken)
