"""The rule of the age ladder in plain Python, row by row: what the generated code must do."""

from __future__ import annotations

from dataclasses import dataclass

NEW, WARM, COLD, HOPELESS, REMEMBERED, EMPTY = 20_000, 10_000, 1_000, 2_000, 1_000, 5
STALL, PATIENCE = 0.25, 10


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
    kept: int = 0
    last: tuple[int, int] | None = None
    """When the last row with an age came, and how old it was."""
    old: int = 0
    ran: int = 0
    fell: int = 0
    standing: bool = False
    stood: int = 0

    def falls(self, clock: int, age: int | None, number: int, rung: int, row_hash: int, protected: bool) -> bool:
        self._tick(clock)
        falls = age is not None and self._late(age, number, rung, row_hash) and not protected
        self.passed = not falls
        self.kept += not falls
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
        if not self._stands(age) or age < self.limits[rung] or row_hash >= self.guaranteed[number]:
            return False
        lost = self.now - self.young
        new = self.now - self.begun < NEW and self.kept < WARM and lost > COLD and 3 * self.waste > self.work
        hopeless = lost > HOPELESS and self.waste > self.work
        return not (new or hopeless)

    def _stands(self, age: int) -> bool:
        """Whether rows have been old for an interval and the queue will not be gone by itself in time."""
        before, self.last = self.last, (self.now, age)
        if age < self.bound:
            self.young = self.now
        if age < self.lowest:
            self._ends()
            self.since = 0
            return False
        gap = self.now if before is None else self.now - before[0]
        if self.since == 0 or gap >= EMPTY * self.interval:
            self._ends()
            self.since, self.old, self.ran, self.fell = self.now, 0, 0, 0
            return False
        assert before is not None
        if self.standing:
            return True
        stall = max(1, int(STALL * self.interval))
        self.old += min(gap, stall)
        if gap < stall:
            self.ran += gap
            self.fell += before[1] - age
            if self.ran >= 2 * self.interval:
                self.ran //= 2
                self.fell //= 2
        if self.old < self.interval:
            return False
        patience = PATIENCE * self.bound
        calm = self.now - self.stood >= patience
        if calm and age < self.bound / 2:
            return False
        left = patience - (self.now - self.since) if calm else 0
        gone_in_time = (age - self.lowest) * self.ran <= self.fell * left
        self.standing = not (left > 0 and self.fell > 0 and gone_in_time)
        return self.standing

    def _ends(self) -> None:
        """The queue is gone."""
        if self.standing:
            self.stood = self.now
        self.standing = False
