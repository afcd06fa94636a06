"""`bench latency`: three times what the job can process, for a minute.

Three jobs get the same arrivals one after the other: plain Spark, Spark with a capped source
(`maxFilesPerTrigger`), and Spark with `shed`. Latency is measured for every row, from the arrival of
its file to the commit of its batch.
"""

from __future__ import annotations

from typing import Any

import streamshed.bench.play as playing
from streamshed.bench.feeder import Rows
from streamshed.bench.jobs import Run, heavy
from streamshed.bench.play import Say

FACTOR = 3.0
SETTLED = 10.0  # seconds after the start from which the bound is judged


def run(say: Say, bound: float = 6.0, seconds: float = 70.0) -> dict[str, Any]:
    spark = playing.session("bench latency")
    rows = Rows()
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, heavy, rows, say)
        rate = FACTOR * able

        def one(name: str, latency: float | None = None, files: int | None = None) -> Run:
            say(f"{name}: {rate:,.0f} rows/s for {seconds:.0f} s, {FACTOR:.0f} times the {able:,.0f} it can process")
            return playing.play(
                spark,
                place,
                heavy,
                lambda _: rate,
                seconds,
                rows=rows,
                latency=latency,
                files_per_batch=files,
                name=name,
            )

        # A file is a tenth of a second: the cap lets half a bound's worth of the capacity through.
        cap = max(1, int(bound / 2 * able / (rate * 0.1)))
        plain = one("plain")
        capped = one("capped", files=cap)
        shed = one("shed", latency=bound)
    plain_rate = plain.goodput(SETTLED, seconds)
    good = shed.goodput(SETTLED, seconds)
    return {
        "bench": "latency",
        "bound_s": bound,
        "p99_s": round(shed.latency(0.99, SETTLED), 3),
        "plain_p99_s": round(plain.latency(0.99, SETTLED, with_waiting=True), 3),
        "capped_p99_s": round(capped.latency(0.99, SETTLED, with_waiting=True), 3),
        "goodput_ratio": round(good / plain_rate, 3) if plain_rate else None,
        "p50_s": round(shed.latency(0.5, SETTLED), 3),
        "kept_share": round(shed.kept / max(1, sum(b.arrived for b in shed.batches)), 4),
        "arrivals_per_s": round(rate),
        "plain_rows_per_s": round(plain_rate),
        "shed_rows_per_s": round(good),
        "batches": len(shed.batches),
        "cap_files": cap,
    }
