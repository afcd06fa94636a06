"""`bench realtime`: a bound of 200 ms in real-time mode, at 2, 4 and 8 times what the job can do.

From Kafka to Kafka with real work for every row; plain real-time mode and the age ladder take turns in the same
run, on the same arrivals. Half the capacity: what the ladder costs, and that it sheds nothing then. A burst of ten
times the capacity for two seconds: when shedding ends. Cold: four times the capacity from the first second on, on
a fresh Spark.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import streamshed as ss
from streamshed.lab.bench.kafka import Broker, Kafka
from streamshed.lab.bench.kafka_play import Play, capacity, play, session
from streamshed.lab.bench.play import Say
from streamshed.lab.bench.realtime_picture import draw_burst

LEAD_IN = 5.0  # seconds of a load that fits
COLD_SECONDS = 20.0


def run(
    say: Say,
    bound: float = 0.2,
    seconds: float = 60.0,
    factors: tuple[float, ...] = (2.0, 4.0, 8.0),
    out: Path | None = None,
) -> dict[str, Any]:
    """With `out`: also a picture of both modes under the same burst."""
    spark = session("bench realtime")

    def shed(events: DataFrame) -> DataFrame:
        return ss.shed(events, bound, trigger="real-time")

    def both(
        factor: float, rate: Callable[[float], float], length: float, stays: float = 3.0
    ) -> tuple[Play, Play]:
        say(f"{factor:g} times the capacity for {length:.0f} s: plain")
        plain = play(spark, broker, rate, length, stays=stays)
        say(f"{factor:g} times the capacity for {length:.0f} s: with an age ladder")
        return plain, play(spark, broker, rate, length, shed, stays=stays)

    with Broker() as broker:
        able = capacity(spark, broker, say)
        calm_plain, calm = both(0.5, lambda _: 0.5 * able, LEAD_IN + seconds)
        loads: dict[str, tuple[Play, Play]] = {}
        for factor in factors:
            loads[f"{factor:g}"] = both(factor, partial(after_lead_in, able, factor), LEAD_IN + seconds, 0.0)
        say("ten times the capacity for two seconds")
        burst = play(spark, broker, lambda s: (10.0 if 10.0 <= s < 12.0 else 0.5) * able, 25.0, shed)
        if out is not None:
            draw_burst(spark, broker, able, bound, out, say)
        cold = {kind: _cold(broker, kind, 4.0 * able, bound, say) for kind in ("plain", "shed")}
    missing = burst.missing()
    settled, end = LEAD_IN + 1.0, LEAD_IN + seconds
    return {
        "bench": "realtime",
        "bound_ms": round(bound * 1000),
        "p99_ms": {name: round(ours.latency(99, LEAD_IN), 1) for name, (_, ours) in loads.items()},
        "worst_ms": {name: round(ours.latency(100, LEAD_IN), 1) for name, (_, ours) in loads.items()},
        "plain_p99_ms": {name: round(plain.latency(99, LEAD_IN), 1) for name, (plain, _) in loads.items()},
        "goodput_ratio": {
            name: round(ours.delivered(settled, end) / max(1, plain.delivered(settled, end)), 3)
            for name, (plain, ours) in loads.items()
        },
        "idle_p99_ratio": round(calm.latency(99, LEAD_IN) / calm_plain.latency(99, LEAD_IN), 3),
        "shed_when_idle": len(calm.missing(LEAD_IN)),
        "idle_p99_ms": round(calm.latency(99, LEAD_IN), 1),
        "idle_rows_ratio": round(calm.delivered(settled, end) / max(1, calm_plain.delivered(settled, end)), 3),
        "p50_ms": {name: round(ours.latency(50, LEAD_IN), 1) for name, (_, ours) in loads.items()},
        "burst_shed": len(missing),
        "burst_over_s": round(float(missing.max()) - 12.0, 2) if len(missing) else None,
        "burst_worst_ms": round(burst.latency(100), 1),
        "cold_ratio": round(cold["shed"] / max(1, cold["plain"]), 3),
        "cold_rows": cold,
        "able_rows_per_s": round(able),
        "seconds": seconds,
    }


def after_lead_in(able: float, factor: float, second: float) -> float:
    return (factor if second >= LEAD_IN else 0.4) * able


def _cold(broker: Broker, kind: str, rate: float, bound: float, say: Say) -> int:
    """Rows that a fresh Spark delivers in its first seconds at four times the capacity."""
    say(f"four times the capacity from the first second on, on a fresh Spark: {kind}")
    command = [sys.executable, "-m", "streamshed.lab.bench.realtime", broker.address, kind, str(rate), str(bound)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise RuntimeError(told.stderr[-2000:])
    return int(json.loads(told.stdout.splitlines()[-1])["delivered"])


def _fresh(address: str, kind: str, rate: float, bound: float) -> dict[str, int]:
    broker = Kafka(address)
    spark = session("bench realtime cold", "local-cluster[2,1,1024]", **{"spark.driver.memory": "512m"})
    shed = None if kind == "plain" else lambda events: ss.shed(events, bound, trigger="real-time")
    played = play(spark, broker, lambda _: rate, COLD_SECONDS, shed, stays=0.0)
    return {"delivered": played.delivered(0.0, COLD_SECONDS)}


if __name__ == "__main__":
    address, kind, rate, bound = sys.argv[1:]
    print(json.dumps(_fresh(address, kind, float(rate), float(bound))))
