"""A udf box of a network that drops rows by itself: `load_aware` inside a fused query.

A fused query builds its plans anew in every batch, so the stage is made anew as well: the order in force at the
batch's own time and the cost table go to the workers with the function, and not through the rows. The rest is the
operator's: what is learned and how, the check, the books, the handle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from streamshed.las.settings import LasSettings
from streamshed.network.graph import Network, Udf
from streamshed.records import Mode, Sample
from streamshed.sketch.hashing import digest_sql
from streamshed.spark.load_aware.cost_control import CostControl, Goal
from streamshed.spark.load_aware.cost_orders import ARRIVED, DIGEST
from streamshed.spark.load_aware.cost_stage import CostStage, arrow_schema
from streamshed.spark.load_aware.load_shedder import SEED, LoadShedder, order_file
from streamshed.spark.load_aware.mail import mailbox
from streamshed.spark.network.slots import quoted
from streamshed.spark.network.sql import spark_type
from streamshed.spark.orders.store import Store
from streamshed.spark.watch.plan_counts import next_serial
from streamshed.spark.watch.query_watch import QueryWatch


@dataclass(frozen=True, slots=True)
class Adds:
    """The box's function over a row, as the stage calls it: the row, and the column that it adds."""

    function: Callable[..., Any]
    reads: tuple[str, ...]
    adds: str

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, self.adds: self.function(*(row[name] for name in self.reads))}


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows of one batch that did not come out of a box."""

    shed: int = 0
    failed: int = 0
    would_shed: int = 0
    """Rows that came out, and would not have but for dry-run."""


class LoadAwareBox:
    """The operator behind one box, for as long as its network runs."""

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        box: Udf,
        function: Callable[..., Any],
        store: Store,
        mode: Mode,
    ) -> None:
        assert box.load_aware is not None
        self.name = box.name
        above = network.schemas[box.inputs[0]]
        columns = [column.name for column in above]
        ddl = ", ".join(f"{quoted(c.name)} {spark_type(c)}" for c in network.schemas[box.name])
        output = StructType.fromDDL(ddl)
        assert isinstance(output, StructType)
        self._output = output
        asked = box.load_aware
        settings = LasSettings(
            epsilon=asked.epsilon,
            delta=asked.delta,
            window=asked.window,
            tolerance=asked.tolerance,
            floor=asked.floor,
        )
        hashes = settings.hashes(SEED)
        label = f"load-aware-{box.name}"
        self.shedder = LoadShedder(
            next_serial(),
            label,
            True,
            order_file(store, label, hashes),
            spark,
            Goal.parse(asked.latency),
            mode,
            CostControl(hashes, settings),
            settings.floor,
        )
        self._stage: Mapping[str, Any] = {
            "function": Adds(function, box.reads, box.adds.name),
            "columns": columns,
            "schema": arrow_schema(output, spark),
            "hashes": hashes,
            "caution": 1.0 + settings.epsilon,
            "by": "row",
            "check": "ahead",
            "on_error": asked.on_error,
            "synchronised": True,
            "report": mailbox(spark, self.shedder),
        }
        keys = [quoted(name) for name in asked.key]
        some = " OR ".join(f"{key} IS NOT NULL" for key in keys)
        arrived = quoted(str(network.times[box.inputs[0]]))
        self._select = (
            f"*, CASE WHEN {some} THEN {digest_sql(*keys)} END AS {DIGEST}, "
            f"unix_micros(CAST({arrived} AS TIMESTAMP)) AS {ARRIVED}"
        )

    def rows(
        self, session: SparkSession, entering: str, batch_time: int, deadline: float | None = None
    ) -> DataFrame:
        """The rows that leave the box, from the SQL of those that enter it and have their turn in time."""
        stage = CostStage(**self._stage, told=self.shedder.told_at(batch_time), deadline=deadline)
        return session.sql(f"SELECT {self._select} FROM ({entering})").mapInArrow(stage, self._output)

    def lost(self, batch: int) -> Loss:
        """What a batch whose stage has ended did not let through."""
        tallies = self.shedder.told(batch).values()
        return Loss(
            shed=sum(t.shed for t in tallies),
            failed=sum(t.failed for t in tallies),
            would_shed=sum(t.would_shed - t.shed for t in tallies),
        )

    def finished(self, watch: QueryWatch, sample: Sample, entered: int) -> None:
        """A batch was reported in which so many rows came to the box."""
        self.shedder.finished(watch, replace(sample, arrived=entered))

    def close(self) -> None:
        """Let go of the handle's thread and mailbox."""
        self.shedder.close()
