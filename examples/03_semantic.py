"""Drop by value: which rows are worth least to whom. Run: .venv/bin/python examples/03_semantic.py

Sensors on trucks report their temperature. Only what is far from normal matters to the alarm desk; the archive
takes what it gets. A burst is more than this machine can process, and the rows that go are those nobody will miss.
"""

import tempfile
import time

from pyspark.sql import functions as F

import streamshed as ss
from streamshed.network import Builder
from streamshed.spark.session import local_session

spark = local_session("semantic")
trucks = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", 20_000)
    .option("rampUpTime", "15s")
    .load()
    .select(
        (F.col("value") % 1000).cast("int").alias("truck"),
        F.expr("4 + 2 * randn(1) + CASE WHEN value % 50 = 0 THEN 8 ELSE 0 END").alias("celsius"),
        F.col("timestamp").alias("at"),
    )
)
network = (
    Builder("cold-chain")
    .source("trucks", "truck INT, celsius DOUBLE, at TIMESTAMP", arrived="at", rate=20_000,
            values={"celsius": (-4, 16)})
    .map("risk", "trucks", {"truck": "truck", "celsius": "celsius", "at": "at",
                            "spoils": "exp(celsius / 5) * ln(1 + abs(celsius))"})
    .filter("warm", "risk", "celsius > 5", selectivity=0.3)
    .output("alarm", "warm", value=("celsius", [[5, 8, 0.1], [8, 20, 1.0]]))
    .output("archive", "risk", loss=[(100, 1.0), (10, 0.9), (0, 0.0)])
    .build()
)  # fmt: skip

running = ss.run(
    spark,
    network,
    sources={"trucks": trucks},
    sinks={"alarm": "memory", "archive": "noop"},
    policy="lsrm-semantic",
    latency="2 seconds",
    checkpoint=tempfile.mkdtemp(),
)
running.on_plan(
    lambda plan: print(plan.reason, *(f"\n  {d.at}: keep {d.keep:.2f} {d.where or ''}" for d in plan.drops))
)
time.sleep(40)
running.stop()
print(f"arrived {running.report().arrived}, shed {running.report().shed}")
warm = [row.celsius for row in running.rows("alarm")]
print(f"the alarm desk got {len(warm)} rows, {sum(value >= 8 for value in warm)} of them above 8 degrees")
spark.stop()
