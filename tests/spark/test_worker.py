"""Python workers between short tasks."""

from __future__ import annotations

import gc
import math
import pickle
from typing import Any

from pyspark.sql import SparkSession

from streamshed.spark import worker


def test_a_shipped_function_arrives_as_itself() -> None:
    shipped = worker.Shipped(math.hypot)
    assert shipped(3.0, 4.0) == 5.0
    assert shipped.__name__ == "hypot"
    assert pickle.loads(pickle.dumps(shipped)) is math.hypot


def test_outside_of_a_task_nothing_is_set_aside() -> None:
    before = gc.get_freeze_count()
    pickle.loads(pickle.dumps(worker.Shipped(math.hypot)))
    assert gc.get_freeze_count() == before


def test_only_the_first_tasks_of_a_worker_set_aside_what_is_loaded(spark: SparkSession) -> None:
    def look(batches: Any) -> Any:
        import os

        for batch in batches:
            worker.settle()
            yield batch.from_pydict(
                {"worker": [os.getpid()], "settled": [worker._settled], "held": [gc.get_freeze_count()]}
            )

    seen: dict[int, list[tuple[int, int]]] = {}
    for _ in range(6):
        for row in spark.range(0, 2, 1, 1).mapInArrow(look, "worker LONG, settled LONG, held LONG").collect():
            seen.setdefault(row.worker, []).append((row.settled, row.held))
    settled = [one for many in seen.values() for one, _ in many]
    assert max(settled) <= worker._TASKS
    assert all(held > 1000 for many in seen.values() for one, held in many if one)
