"""The rule of the age ladder in plain Python, row by row: what the generated code must do."""

from __future__ import annotations

from dataclasses import dataclass

NEW, HOPELESS, REMEMBERED, EMPTY = 20_000, 2_000, 1_000, 5


@dataclass
class LadderOracle:
    """One task. All times in milliseconds."""

    lowest: int
    interval: int
    bound: int
    limits: list[int]
    """By rung, over all classes."""
    guaranteed: list[int]
    """By class: the least hash that passes at any age."""
    now: int = 0
    before: int = 0
    since: int = 0
    work: int = 0
    waste: int = 0
    passed: bool = True
    begun: int = 0
    young: int = 0

    def falls(self, clock: int, age: int | None, number: int, rung: int, row_hash: int, protected: bool) -> bool:
        self._tick(clock)
        falls = age is not None and self._late(age, number, rung, row_hash) and not protected
        self.passed = not falls
        return falls

    def _tick(self, clock: int) -> None:
        if self.now == 0:
            self.now = self.before = self.begun = self.young = clock
            return
        self.before, self.now = self.now, clock
        if self.passed:
            self.work += self.now - self.before
        else:
            self.waste += self.now - self.before
        if self.work + self.waste >= REMEMBERED:
            self.work //= 2
            self.waste //= 2

    def _late(self, age: int, number: int, rung: int, row_hash: int) -> bool:
        if age < self.bound:
            self.young = self.now
        if age < self.lowest:
            self.since = 0
            return False
        if self.since == 0 or self.now - self.before >= EMPTY * self.interval:
            self.since = self.now
            return False
        if self.now - self.since < self.interval or age < self.limits[rung]:
            return False
        if row_hash >= self.guaranteed[number]:
            return False
        new = self.now - self.begun < NEW and 3 * self.waste > self.work
        hopeless = self.now - self.young > HOPELESS and self.waste > self.work
        return not (new or hopeless)
