"""A task with an age ladder in virtual time: one server, rows in the order of their arrival, and stalls.

A row that is kept takes some service time, one that is dropped a small part of that. A stall is a time in which
the task does nothing: a garbage collection, or a machine that has other things to do. Times are milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamshed.records import Mode
from streamshed.sketch.hashing import digest
from streamshed.spark.real_time.age_ladder import RUNGS, AgeLadder
from streamshed.spark.real_time.ladder_rule import HASH_BITS, table_of
from tests.oracles.age_ladder import LadderOracle
from tests.oracles.learned_costs import CostsOracle

_BEGIN = 1_000_000.0
_STEP = 5.0  # between two sends of a producer


@dataclass(frozen=True)
class Run:
    """What became of the rows; times since the first could have come."""

    kept: list[tuple[float, float]]
    """When each arrived, and how long it took until its work was done."""
    shed: list[float]
    """When each arrived."""
    kinds: list[tuple[float, int, int, bool]]
    """Of all rows: when each arrived, its kind, its age at the drop, and whether it was kept."""

    def lost(self, kind: int, since: float = 0.0) -> float:
        """Which share of the rows of a kind was shed."""
        kept = [passed for at, row_kind, _, passed in self.kinds if row_kind == kind and at >= since]
        return 1.0 - sum(kept) / len(kept)

    def latency(self, share: float, since: float = 0.0) -> float:
        ordered = sorted(latency for at, latency in self.kept if at >= since)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def play(
    load: Callable[[float], float],
    length: float,
    *,
    bound: float = 200.0,
    service: float = 0.5,
    drop: float = 0.01,
    stalls: Sequence[tuple[float, float]] = (),
    slowness: Callable[[float], float] = lambda at: 1.0,
    seed: int = 0,
    shedding: bool = True,
    costs: Sequence[float] = (1.0,),
    aware: bool = False,
    learns: bool = False,
    costs_at: Callable[[float], Sequence[float]] | None = None,
) -> Run:
    """`load` by time, as a multiple of what the task can do; `stalls` as (begin, how long).

    costs: of kinds of rows, as multiples of the service time; kinds are drawn evenly, and the mean is 1. costs_at:
    the same by time. aware: the ladder knows them. learns: it learns them, and a row's key is its kind.
    """
    chance = random.Random(seed)
    table = table_of(AgeLadder(bound / 1000.0), Mode.ENFORCE)
    rule = LadderOracle(*table[1:4], table[5:], table[4:5])
    learned = CostsOracle(table[1])
    keys = [digest(kind) for kind in range(len(costs))]
    arrivals: list[float] = []
    due = 0.0
    for step in range(int(length / _STEP)):
        due += load(step * _STEP) * _STEP / service
        arrivals += [step * _STEP] * int(due)
        due -= int(due)
    waiting = sorted(stalls)
    kept, shed, kinds, now = [], [], [], 0.0

    def passed(begin: float, work: float) -> float:
        """When some work is done that is begun at a time."""
        end = begin + work
        while waiting and waiting[0][0] <= end:
            at, long = waiting.pop(0)
            end += max(0.0, at + long - max(at, begin))
        return end

    for arrival in arrivals:
        now = passed(max(now, arrival), 0.0)
        row_hash = chance.getrandbits(HASH_BITS)
        kind = chance.choice(range(len(costs)))
        cost = (costs if costs_at is None else costs_at(now))[kind]
        clock, nanos, came = int(_BEGIN + now), int((_BEGIN + now) * 1e6), int(_BEGIN + arrival)
        believed = cost if aware else learned.cost(nanos, came, keys[kind]) if learns else 1.0
        height = (row_hash / (1 << HASH_BITS)) ** believed
        rung = min(RUNGS - 1, int(height * RUNGS))
        age = clock - came
        falls = shedding and rule.falls(clock, age, 0, rung, row_hash, False)
        learned.judged(clock, nanos, keys[kind], not falls)
        kinds.append((arrival, kind, age, not falls))
        if falls:
            shed.append(arrival)
            now = passed(now, drop * slowness(now))
        else:
            now = passed(now, chance.expovariate(1.0 / service) * cost * slowness(now))
            kept.append((arrival, now - arrival))
    return Run(kept, shed, kinds)


def busy_machine(length: float, seed: int, between: float = 700.0) -> list[tuple[float, float]]:
    """Stalls of all sizes at random times."""
    chance = random.Random(seed)
    found, at = [], 0.0
    while at < length:
        at += chance.expovariate(1.0 / between)
        found.append((at, chance.choice([10.0, 20.0, 50.0, 100.0, 200.0, 300.0])))
        at += found[-1][1]
    return found
