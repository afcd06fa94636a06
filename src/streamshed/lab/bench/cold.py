"""`bench cold`: four times what the job can process, from the first batch of a cold JVM on.

Settings, and what must come out, as they were written down before the first run: the capacity is found in this
process, warm; then a new process with a JVM of its own starts the heavy job with `shed`, a bound of 6 s and
nothing learned, and rows come at four times that rate from the start of the query on, for 40 s. After the first
batch no row that is kept is later than the bound; in the first batch, which runs code that is being compiled, none
is later than twice the bound. Latencies are worst cases: the commit of a batch less the arrival of its oldest row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import streamshed.lab.bench.play as playing
from streamshed.lab.bench.feeder import JsonRows
from streamshed.lab.bench.jobs import heavy
from streamshed.lab.bench.play import Say
from streamshed.spark.session import leave_spark

FACTOR = 4.0
SECONDS = 40.0


def run(say: Say, bound: float = 6.0) -> dict[str, Any]:
    spark = playing.session("bench cold", **_SETTINGS)
    with playing.Workplace() as place:
        able = playing.capacity(spark, place, heavy, JsonRows(), say)
    leave_spark()
    say(f"a new JVM: {FACTOR * able:,.0f} rows/s from its first batch on, {FACTOR:.0f} times what it can process")
    command = [sys.executable, "-m", "streamshed.lab.bench.cold", str(FACTOR * able), str(bound)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"bench": "cold", "bound_s": bound, **result, "capacity_rows_per_s": round(able)}


_SETTINGS = {"spark.sql.adaptive.enabled": "true", "spark.sql.files.minPartitionNum": "32"}


def _cold(rate: float, bound: float) -> dict[str, Any]:
    spark = playing.session("bench cold", **_SETTINGS)
    with playing.Workplace() as place:
        run = playing.play(
            spark,
            place,
            heavy,
            lambda second: rate,
            SECONDS,
            rows=JsonRows(),
            latency=bound,
            settle=10.0,
            name="cold",
        )
    late = [batch.worst_latency for batch in run.batches if batch.kept]
    return {
        "first_batch_worst_s": round(late[0], 3),
        "later_worst_s": round(max(late[1:], default=0.0), 3),
        "first_within_two_bounds": late[0] <= 2.0 * bound,
        "later_within_bound": all(each <= bound for each in late[1:]),
        "worst_s": [round(each, 2) for each in late],
        "kept_share": round(run.kept / max(1, sum(batch.arrived for batch in run.batches)), 4),
        "cut": sum(batch.cut for batch in run.batches),
        "batches": len(run.batches),
    }


if __name__ == "__main__":
    print(json.dumps(_cold(float(sys.argv[1]), float(sys.argv[2]))))
    leave_spark()
