"""`streamshed bench control`: the real controller in worlds of virtual time, beside a clairvoyant and others.

What must come out (written before the first run):

- shed in vain is 0 in every world that need not shed;
- of what the clairvoyant keeps, at least 0.95 is kept on average over the worlds that must shed, and 0.85 in each;
- of the kept rows, at most 0.01 more than the clairvoyant's are late, in each world.

A world that need not shed is one where no row would be late if all were kept, or none that dropping could help,
or none but for a pause or a cold start that the job recovers from by itself (`worlds.clairvoyant.must_shed`).
There the ideal is to keep everything. Rows that were later than the bound before the job even started are late
for nobody.

    python -m streamshed.lab.bench.control 200 400

plays random worlds instead, by their numbers: those from 200 on were not looked at while the loop was made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import mean
from typing import TYPE_CHECKING, Any

from streamshed.lab.worlds.catalog import WORLDS
from streamshed.lab.worlds.clairvoyant import Ideal, ideal
from streamshed.lab.worlds.draw import draw
from streamshed.lab.worlds.engine import Shedder
from streamshed.lab.worlds.even import even_variation
from streamshed.lab.worlds.rivals import BudgetAlone, Gradient, KeepAll, PidRate
from streamshed.lab.worlds.world import Outcome, World

if TYPE_CHECKING:
    from rich.table import Table

Say = Callable[[str], None]

RIVALS: dict[str, Callable[[float], Shedder]] = {
    "the budget alone": BudgetAlone,
    "Spark's PID": PidRate,
    "gradient": Gradient,
    "plain Spark": KeepAll,
}


def run(say: Say) -> dict[str, Any]:
    """The controller in every world."""
    return summary([judged(world, say) for world in WORLDS.values()])


def judged(world: World, say: Say) -> tuple[Ideal, Outcome]:
    say(world.name)
    return ideal(world), world.play()


def summary(results: list[tuple[Ideal, Outcome]]) -> dict[str, Any]:
    worlds = [
        {
            "name": outcome.world.name,
            "must_shed": best.must_shed,
            "kept": round(outcome.kept, 4),
            "kept_ideal": round(best.kept, 4),
            "late": round(outcome.late(), 4),
            "late_ideal": round(best.late, 4),
            "p99_over_bound": round(outcome.p99(), 3),
        }
        for best, outcome in results
    ]
    return {"bench": "control", "worlds": worlds, **figures(results)}


def figures(results: list[tuple[Ideal, Outcome]]) -> dict[str, float]:
    """The most that was shed in vain, what was kept of the ideal on average, the most that was later than it."""
    vain = (1.0 - outcome.kept for best, outcome in results if not best.must_shed)
    kept = [outcome.kept / best.kept for best, outcome in results if best.must_shed]
    late = (outcome.late() - best.late for best, outcome in results)
    return {
        "shed_in_vain": round(max(vain, default=0.0), 4),
        "kept_of_ideal": round(mean(kept), 4) if kept else 1.0,
        "late_beyond_ideal": round(max(0.0, *late), 4),
    }


def tables(say: Say) -> list[Table]:
    """The same for people, and what others do in these worlds."""
    ours = [judged(world, say) for world in WORLDS.values()]
    return [_by_world(ours), _by_shedder(ours, say)]


def _by_world(ours: list[tuple[Ideal, Outcome]]) -> Table:
    # Only who prints needs it.
    from rich.table import Table

    worlds = Table("world", "must shed", "kept", "ideal", "late", "ideal", "p99 / bound", title="bench control")
    # How far the share that is kept goes up and down, and how far it has to.
    worlds.add_column("keep moves")
    worlds.add_column("evenly")
    for row, (_, outcome) in zip(summary(ours)["worlds"], ours, strict=True):
        shown = (row[name] for name in list(row)[2:])
        moves = (outcome.variation, even_variation(outcome.world)) if row["must_shed"] else ()
        worlds.add_row(
            row["name"],
            "yes" if row["must_shed"] else "",
            *(f"{number:.3f}" for number in shown),
            *(f"{number:.2f}" for number in moves),
        )
    return worlds


def _by_shedder(ours: list[tuple[Ideal, Outcome]], say: Say) -> Table:
    from rich.table import Table

    others = Table(
        "", "shed in vain, at most", "kept of ideal, mean", "least", "late beyond ideal, mean", "at most"
    )
    others.add_row("Streamshed", *_row(ours))
    for name, make in RIVALS.items():
        say(name)
        others.add_row(
            name, *_row([(best, outcome.world.play(make(outcome.world.bound))) for best, outcome in ours])
        )
    return others


def _row(results: list[tuple[Ideal, Outcome]]) -> list[str]:
    told = figures(results)
    kept = [outcome.kept / best.kept for best, outcome in results if best.must_shed]
    late = [max(0.0, outcome.late() - best.late) for best, outcome in results if best.must_shed]
    shown = (told["shed_in_vain"], told["kept_of_ideal"], min(kept), mean(late), told["late_beyond_ideal"])
    return [f"{number:.3f}" for number in shown]


def main() -> None:
    from rich.console import Console

    screen = Console()
    first, last = (int(number) for number in sys.argv[1:3])
    with screen.status("random worlds") as status:
        ours = [judged(draw(number), status.update) for number in range(first, last)]
        table = _by_shedder(ours, status.update)
    vain = [1.0 - outcome.kept for best, outcome in ours if not best.must_shed]
    screen.print(table)
    screen.print(
        f"{len(ours)} worlds; {len(vain)} need not shed, and in {sum(each > 0 for each in vain)} of them "
        f"something was, {mean(vain):.2%} on average"
    )


if __name__ == "__main__":
    main()
