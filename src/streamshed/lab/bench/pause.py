"""`bench pause`: a sink that sleeps once in an idle job.

Settings, and what must come out, as they were written down before the first run: 200 rows a second of the light
kind, which are next to nothing; after 15 s the sink sleeps for 6 s, once; the bound is 6 s. Nothing may be shed:
the rows that came meanwhile are late whatever is done, and the job is back by itself at once. `shed` must be 0.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import DataFrame

import streamshed as ss
import streamshed.lab.bench.play as playing
from streamshed.lab.bench import jobs
from streamshed.lab.bench.feeder import Feeder, JsonRows
from streamshed.lab.bench.play import Say

RATE = 200.0  # rows a second
BEFORE, SLEEP, AFTER = 15.0, 6.0, 15.0  # seconds


def run(say: Say, bound: float = 6.0) -> dict[str, Any]:
    spark = playing.session("bench pause", **{"spark.sql.adaptive.enabled": "true"})
    with playing.Workplace() as place:
        source, state = place.fresh("in"), place.fresh("state")
        kept = ss.shed(jobs.read(spark, source), latency=bound, arrived="arrived", name="pause")
        handle = ss.shedder(kept)
        begun = time.time()
        slept: list[int] = []

        def sink(rows: DataFrame, number: int) -> None:
            rows.write.format("noop").mode("overwrite").save()
            if not slept and time.time() - begun > BEFORE:
                slept.append(number)
                say(f"batch {number} sleeps for {SLEEP:.0f} s")
                time.sleep(SLEEP)

        parsed = kept.selectExpr(f"from_json(value, '{jobs.SCHEMA}') AS r", "arrived").select("r.*", "arrived")
        query = parsed.writeStream.foreachBatch(sink).option("checkpointLocation", str(state)).start()
        feeder = Feeder(source, lambda second: RATE, BEFORE + SLEEP + AFTER, rows=JsonRows())
        playing.feed_while_running(feeder, query, BEFORE + SLEEP + AFTER, lambda *_: None, query.stop)
        handle.settle()
    report = handle.report()
    return {
        "bench": "pause",
        "bound_s": bound,
        "shed": report.shed,
        "thinned": report.thinned,
        "cut": report.cut,
        "slept_in_batch": slept[0] if slept else None,
        "arrived": report.arrived,
        "longest_batch_s": round(max(e.sample.duration for e in handle.ledger.recent), 3),
        "batches": report.batches,
    }
