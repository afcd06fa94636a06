"""SIC of a network's outputs over the last source time window, from what its batches counted.

    SIC = mean over sources of (rows that went into what the output got) / (rows that the source sent)

Batches are the slides here. A source that sent nothing in the window is not counted; an output that heard of no
row has lost none.

>>> recent = RecentInformation(seconds=30)
>>> for at in range(100):
...     recent.add("o", at, {"s": (100, 50 if at < 90 else 100)})
>>> recent.sic(at=100)["o"]
0.6666666666666666
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from streamshed.errors import InvalidArgument

Information = Mapping[str, tuple[float, float]]
"""By source: rows that it sent, and rows of them that went into what an output got."""
WINDOW = 30.0
"""Seconds. Many batches long, and far longer than rows take."""


class RecentInformation:
    def __init__(self, seconds: float = WINDOW) -> None:
        if not seconds > 0:
            raise InvalidArgument("a source time window must be longer than 0 seconds", got=seconds)
        self.seconds = seconds
        self._heard: dict[str, deque[tuple[float, Information]]] = {}

    def add(self, output: str, at: float, information: Information) -> None:
        """What a batch brought an output."""
        self._heard.setdefault(output, deque()).append((at, information))

    def sic(self, at: float) -> dict[str, float]:
        """Of the outputs that rows were on their way to."""
        found = {}
        for output, heard in self._heard.items():
            while heard and heard[0][0] < at - self.seconds:
                heard.popleft()
            totals: dict[str, list[float]] = {}
            for _, information in heard:
                for source, (sent, reached) in information.items():
                    total = totals.setdefault(source, [0.0, 0.0])
                    total[0] += sent
                    total[1] += reached
            shares = [min(1.0, reached / sent) for sent, reached in totals.values() if sent > 0]
            if shares:
                found[output] = sum(shares) / len(shares)
        return found
