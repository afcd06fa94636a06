"""`random`: the simplest shedding policy (DISSP 5.2): every row is as good as any other."""

from __future__ import annotations

from streamshed.records import Drop, Overload


class RandomShedding:
    """One drop at one place, keeping just the share of the arriving rows that fits.

    The runtime draws the rows by a stable hash, so that a lower keep always keeps a subset of what a
    higher one does and a batch that runs again loses the same rows.

    >>> RandomShedding("clicks").drops(Overload(arriving=300, fitting=100, rate=300, predicted=3, allowed=1))
    (Drop(at='clicks', keep=0.3333333333333333, where=None),)
    """

    name = "random"

    def __init__(self, at: str = "source") -> None:
        self._at = at

    def drops(self, overload: Overload) -> tuple[Drop, ...]:
        return (Drop(self._at, overload.share),)
