"""`bench latency`: three times what the job can process, for seventy seconds after ten quiet ones.

Three jobs get the same arrivals one after the other: plain Spark, Spark with `shed`, and Spark with a
capped source (`maxFilesPerTrigger`); then plain Spark again, because the machine's speed drifts, and what
the plain job can process is the mean of before and after. Latency is measured for every row, from the
arrival of its file to the commit of its batch.
"""

from __future__ import annotations

import statistics
from typing import Any

from pyspark.sql import SparkSession

import streamshed.bench.play as playing
from streamshed.bench.feeder import Rows
from streamshed.bench.jobs import Batch, Run, heavy
from streamshed.bench.play import Say
from streamshed.bench.standing import StandingJob, stock

FACTOR = 3.0
LEAD_IN = 10.0  # seconds of a load that fits
SETTLED = LEAD_IN + 10.0  # from which second on the bound is judged


def run(say: Say, bound: float = 10.0, seconds: float = 80.0) -> dict[str, Any]:
    spark = playing.session("bench latency")
    # Files of a tenth of a second go to a task each: few tasks of many files leave a core idle at the end.
    spark.conf.set("spark.sql.files.minPartitionNum", "32")
    rows = Rows()
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, heavy, rows, say)
        rate = FACTOR * able

        def one(name: str, latency: float | None = None, files: int | None = None) -> Run:
            say(f"{name}: {rate:,.0f} rows/s from second {LEAD_IN:.0f} on, {FACTOR:.0f} times what it can process")
            return playing.play(
                spark,
                place,
                heavy,
                lambda second: rate if second >= LEAD_IN else 0.4 * able,
                seconds,
                rows=rows,
                latency=latency,
                files_per_batch=files,
                name=name,
            )

        # A file is a tenth of a second: the cap lets half a bound's worth of the capacity through.
        cap = max(1, int(bound / 2 * able / (rate * 0.1)))
        plain = one("plain")
        shed = one("shed", latency=bound)
        capped = one("capped", files=cap)
        again = one("plain again")
        say("what dropping and an empty batch cost")
        fixed, per_dropped = _costs(spark, place, rows, per_batch=int(rate * bound / 2))
    plain_rates = [run.goodput(SETTLED, seconds) for run in (plain, again)]
    plain_rate = statistics.mean(plain_rates)
    good = shed.goodput(SETTLED, seconds)
    return {
        "bench": "latency",
        "bound_s": bound,
        "p99_s": round(shed.latency(0.99, SETTLED), 3),
        "plain_p99_s": round(plain.latency(0.99, SETTLED, with_waiting=True), 3),
        "capped_p99_s": round(capped.latency(0.99, SETTLED, with_waiting=True), 3),
        "goodput_ratio": round(good / plain_rate, 3) if plain_rate else None,
        # Where the rest of the time went: shares of the batches' time.
        "fixed_cost_share": round(fixed / took, 3) if (took := _batch_seconds(shed, seconds)) else None,
        "drop_cost_share": round(per_dropped * _dropped_per_batch(shed, seconds) / took, 3) if took else None,
        "p50_s": round(shed.latency(0.5, SETTLED), 3),
        "kept_share": round(shed.kept / max(1, sum(b.arrived for b in shed.batches)), 4),
        "arrivals_per_s": round(rate),
        "plain_rows_per_s": [round(rate) for rate in plain_rates],
        "shed_rows_per_s": round(good),
        "batches": len(shed.batches),
        "cap_files": cap,
    }


def _settled(run: Run, seconds: float) -> list[Batch]:
    return [b for b in run.batches if b.started >= SETTLED and b.committed <= seconds]


def _batch_seconds(run: Run, seconds: float) -> float:
    settled = _settled(run, seconds)
    return sum(b.committed - b.started for b in settled) / len(settled) if settled else 0.0


def _dropped_per_batch(run: Run, seconds: float) -> float:
    settled = _settled(run, seconds)
    return sum(b.arrived - b.kept for b in settled) / len(settled) if settled else 0.0


def _costs(spark: SparkSession, place: playing.Workplace, rows: Rows, per_batch: int) -> tuple[float, float]:
    """Seconds for a batch of next to nothing, and for reading and dropping one row."""
    batches = 3
    full, empty = stock(place, rows, per_batch), stock(place, rows, 10)
    query = StandingJob(spark, place, heavy)
    query.keep(0.0)
    turns = [(query.take(empty, batches) / batches, query.take(full, batches) / batches) for _ in range(7)]
    query.stop()
    fixed, dropped = (statistics.median(times) for times in zip(*turns[1:], strict=True))
    return fixed, max(0.0, dropped - fixed) / per_batch
