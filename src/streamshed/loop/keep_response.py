"""What a keep fraction really keeps: protected rows pass anyway, and whole keys are of unequal size."""

from __future__ import annotations

from streamshed.records import Sample


class KeepResponse:
    """The share of all rows that passes at a keep fraction k: s(k) = p + (1 − p)·k.

    p is the share that passes whatever k is. Counting protected rows would cost time, so p is read
    off what past drops really kept. It is below zero when whole keys are dropped and the heavy ones
    happened to be among them.

    >>> response = KeepResponse()
    >>> for _ in range(20):    # a fifth of the rows is protected
    ...     response.learn(Sample(at=1.0, started=0.0, arrived=1000, kept=600, keep=0.5))
    >>> f"{response.untouched:.3f} {response.share(0.25):.3f} {response.keep_for(0.4):.3f}"
    '0.200 0.400 0.250'
    """

    def __init__(self) -> None:
        self.untouched = 0.0
        """p"""

    def learn(self, sample: Sample, wanted: float = 1.0) -> None:
        """See what a drop kept. Drops of next to nothing tell next to nothing.

        `wanted`: of what was cut, the share that had passed the drop, or would have.
        """
        offered, passed = sample.arrived - sample.expired, sample.kept + wanted * sample.cut
        if sample.finished and offered > 0 and passed > 0 and sample.keep < 0.99:
            seen = (passed / offered - sample.keep) / (1.0 - sample.keep)
            trust = min(1.0, 2.0 * (1.0 - sample.keep)) * sample.kept / passed
            self.untouched += 0.5 * trust * (min(0.98, max(-0.5, seen)) - self.untouched)

    def share(self, keep: float) -> float:
        """Share of the rows that passes at this keep fraction."""
        return min(1.0, max(0.0, self.untouched + (1.0 - self.untouched) * keep))

    def keep_for(self, share: float) -> float:
        """Keep fraction that lets this share of the rows pass; below 0 if even 0 lets more pass."""
        return (share - self.untouched) / (1.0 - self.untouched)
