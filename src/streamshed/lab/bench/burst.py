"""`bench burst`: ten times the usual load for ten seconds, and how fast the job comes back.

"Seen" is the first batch that has rows of the burst. Counted are the batches after it until one
has all its rows inside the bound again, and the batches from the burst's end until keep is 1 again.
"""

from __future__ import annotations

from typing import Any

import streamshed.lab.bench.play as playing
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.jobs import Run, heavy
from streamshed.lab.bench.play import Say

USUAL = 0.3  # of what the job can process
FACTOR = 10.0
CALM, BURST, AFTER = 15.0, 10.0, 25.0


def run(say: Say, bound: float = 8.0) -> dict[str, Any]:
    spark = playing.session("bench burst")
    rows = JsonRows()
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, heavy, rows, say)
        usual = USUAL * able

        def rate(second: float) -> float:
            return usual * (FACTOR if CALM <= second < CALM + BURST else 1.0)

        def one(name: str, latency: float | None) -> Run:
            say(f"{name}: {usual:,.0f} rows/s, {FACTOR:.0f} times that from {CALM:.0f} s for {BURST:.0f} s")
            seconds = CALM + BURST + AFTER
            return playing.play(
                spark, place, heavy, rate, seconds, rows=rows, latency=latency, settle=5.0, name=name
            )

        shed = one("shed", bound)
        plain = one("plain", None)
    return {"bench": "burst", "bound_s": bound, **judge(shed, bound)} | {
        "worst_s": round(max(b.worst_latency for b in shed.batches if b.started >= CALM), 3),
        "plain_worst_s": round(plain.latency(1.0, CALM, with_waiting=True), 3),
        "kept_share": round(shed.kept / sum(b.arrived for b in shed.batches), 4),
        "usual_per_s": round(usual),
    }


def judge(run: Run, bound: float) -> dict[str, Any]:
    """The counts that the issue of a burst is about, from a measured run."""
    batches = run.batches
    seen = next(i for i, b in enumerate(batches) if b.arrivals.max() >= CALM)
    over = [i for i, b in enumerate(batches) if i >= seen and b.worst_latency > bound]
    ended = next((i for i, b in enumerate(batches) if b.arrivals.min() >= CALM + BURST), len(batches))
    shedding = [i for i, b in enumerate(batches) if b.kept < b.arrived]
    return {
        # 0: no batch after the one that saw it was ever late.
        "batches_to_bound": max(over) + 1 - seen if over else 0,
        "batches_to_full_keep": max(0, max(shedding) + 1 - ended) if shedding else 0,
        "shed_before_burst": sum(b.arrived - b.kept for b in batches[:seen]),
        "shed": sum(b.arrived - b.kept for b in batches),
    }
