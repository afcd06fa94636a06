"""What a task of an age ladder learns of its rows' costs, in plain Python: what the generated code must do."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamshed.sketch.hashing import PRIME, CarterWegman
from streamshed.spark.real_time.learned_costs import cost_hashes

CAP, PRIOR, FIRST, FULL, SPAN = 4.0, 4.0, 64.0, 4096.0, 1024.0


@dataclass
class CostsOracle:
    """One task. Arrivals in milliseconds, the rest in nanoseconds."""

    lowest: int
    """Age of the lowest rung, in milliseconds."""
    hashes: CarterWegman = field(default_factory=cost_hashes)
    often: dict[tuple[int, int], float] = field(default_factory=dict)
    """F by row and column."""
    took: dict[tuple[int, int], float] = field(default_factory=dict)
    rows: float = 0.0
    time: float = 0.0
    usual: float = 0.0
    full: float = FIRST
    before: tuple[int, int, int] | None = None
    """Of the row before, if it passed: its digest, and when it came, in milliseconds and nanoseconds."""
    samples: int = 0

    def cost(self, nanos: int, arrived: int | None, digest: int) -> float:
        """A row comes; the row before is done. How many times as dear as a usual one it will be."""
        before = self.before
        if before is not None and arrived is not None and arrived <= before[1] - self.lowest // 2:
            self._add(before[0], nanos - before[2])
        if self.full == FIRST or digest == PRIME:
            return 1.0
        expected = self._estimate(digest)
        self.usual += (expected - self.usual) / SPAN
        return expected / self.usual if self.usual > 0.0 else 1.0

    def judged(self, clock: int, nanos: int, digest: int, passed: bool) -> None:
        self.before = (digest, clock, nanos) if passed else None

    def _add(self, digest: int, sample: int) -> None:
        if digest == PRIME:
            return
        expected = self._estimate(digest)
        counted = min(float(sample), CAP * expected) if expected > 0.0 else float(sample)
        for cell in enumerate(self.hashes.cells_of(digest)):
            self.often[cell] = self.often.get(cell, 0.0) + 1.0
            self.took[cell] = self.took.get(cell, 0.0) + counted
        self.samples += 1
        self.rows += 1.0
        self.time += counted
        if self.rows >= self.full:
            self._halve()

    def _estimate(self, digest: int) -> float:
        mean = self.time / self.rows if self.rows else 0.0
        least = min(enumerate(self.hashes.cells_of(digest)), key=lambda cell: self.often.get(cell, 0.0))
        return (self.took.get(least, 0.0) + PRIOR * mean) / (self.often.get(least, 0.0) + PRIOR)

    def _halve(self) -> None:
        self.often = {cell: value / 2.0 for cell, value in self.often.items()}
        self.took = {cell: value / 2.0 for cell, value in self.took.items()}
        self.rows /= 2.0
        self.time /= 2.0
        if self.full == FIRST:
            self.usual = self.time / self.rows
        self.full = min(FULL, 2.0 * self.full)
