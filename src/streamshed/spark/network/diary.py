"""Every change of a network's plan, for whoever asks later: in the log, and in the journal."""

from __future__ import annotations

import logging

from streamshed.loop.arbiter import hopeless
from streamshed.quality import Report
from streamshed.records import Drop, Plan
from streamshed.spark.journal import Journal

log = logging.getLogger("streamshed")


class Diary:
    """What a network decided, when and why."""

    def __init__(self, name: str, journal: Journal) -> None:
        self._name = name
        self._journal = journal
        self._noted = (0, 0)

    def change(self, plan: Plan, keep: float, report: Report, bound: float, *, draining: bool) -> None:
        """A plan was put in force that leaves this share of the work. What only drains has no bound to keep."""
        # Only a person can help a bound that dropping cannot bring back.
        level = logging.WARNING if hopeless(plan) and not draining else logging.INFO
        told = (self._name, plan.version, plan.mode.value, plan.reason, _listed(plan.drops))
        log.log(level, "%s: plan %d, %s: %s%s", *told)
        self._note(plan, keep, report, bound)

    def still(self, plan: Plan, keep: float, report: Report, bound: float) -> None:
        """It is still in force: worth another line now and then, if it drops anything."""
        if plan.drops and self._journal.due:
            self._note(plan, keep, report, bound)

    def _note(self, plan: Plan, keep: float, report: Report, bound: float) -> None:
        # Counts may fall when another query comes to have seen the most of an arc.
        before, self._noted = self._noted, (report.arrived, report.shed)
        self._journal.note(
            keep=round(keep, 6),
            mode=plan.mode.value,
            version=plan.version,
            reason=plan.reason,
            drops=[{"at": drop.at, "keep": round(drop.keep, 6), "where": drop.where} for drop in plan.drops],
            arrived=max(0, report.arrived - before[0]),
            shed=max(0, report.shed - before[1]),
            latency=round(report.latency_last, 3),
            bound=bound,
        )

    def begin(self, report: Report) -> None:
        """Count from here on: what an earlier run did is in its own lines."""
        self._noted = (report.arrived, report.shed)

    def close(self) -> None:
        self._journal.write()


def _listed(drops: tuple[Drop, ...]) -> str:
    return "".join(
        f"; {drop.at} keeps {drop.keep:.3f}{f' of {drop.where}' if drop.where else ''}" for drop in drops
    )
