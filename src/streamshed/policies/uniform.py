"""`random`: the simplest shedding policy (DISSP 5.2): every row is as good as any other."""

from __future__ import annotations

from streamshed.records import Choice, Drop, Sample


class RandomShedding:
    """One drop at one place, keeping just the share that fits.

    The runtime draws the rows by a stable hash, so that a lower keep always keeps a subset of what a
    higher one does and a batch that runs again loses the same rows.

    >>> RandomShedding("clicks").choose(0.25).drops
    (Drop(at='clicks', keep=0.25, where=None),)
    """

    name = "random"
    steady = True

    def __init__(self, at: str = "source") -> None:
        self._at = at

    def learn(self, sample: Sample) -> None:
        """A share is all it needs."""

    def choose(self, share: float) -> Choice:
        return Choice((Drop(self._at, share),), share)
