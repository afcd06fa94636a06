"""`load_aware`: an expensive Python function, kept at its queuing latency by what each row costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.las.settings import LasSettings
from streamshed.records import LAS_DELTA, LAS_EPSILON, LAS_TOLERANCE, LAS_WINDOW, Mode
from streamshed.renamed import renamed
from streamshed.spark import arguments
from streamshed.spark.load_aware.cost_control import CostControl, Goal
from streamshed.spark.load_aware.cost_orders import with_orders
from streamshed.spark.load_aware.cost_stage import CostStage, arrow_schema
from streamshed.spark.load_aware.load_shedder import SEED, LoadShedder, order_file
from streamshed.spark.load_aware.mail import mailbox
from streamshed.spark.orders.store import control_store
from streamshed.spark.session import check_spark
from streamshed.spark.watch.plan_counts import ARRIVED, CHOSEN, mark, next_serial
from streamshed.spark.watch.session_monitor import SessionMonitor


@renamed(key="cost_key", latency="target", control="state")
def load_aware(
    events: DataFrame,
    function: Callable[[Any], Any],
    *,
    cost_key: str | Sequence[str],
    target: str,
    schema: str | StructType,
    arrived: str,
    by: str = "row",
    check: str = "ahead",
    cost: str | Column | None = None,
    on_error: str = "fail",
    epsilon: float = LAS_EPSILON,
    delta: float = LAS_DELTA,
    window: int = LAS_WINDOW,
    tolerance: float = LAS_TOLERANCE,
    floor: float = 0.0,
    budget: str | float | timedelta | None = None,
    mode: str | Mode = Mode.ENFORCE,
    state: str | None = None,
    name: str | None = None,
    _synchronised: bool = True,
) -> DataFrame:
    """Run a Python function over a stream, dropping the rows for which there is no time.

    Rows may cost very different times: how long each key takes is learned while the job runs, in two Count-Min
    sketches of constant size (Load-Aware Shedding), and used to foresee each row's wait. A row is dropped, before
    the function sees it, when the target would be missed with it. `ss.load_shedder(out)` gives the handle: counts,
    latencies, costs learned, and the mode, to be changed while it runs.

    Parameters
    ----------
    events
        A streaming DataFrame; give it as many partitions as there are cores. Each partition is a queue.
    function
        Takes a row as a dict and returns one of `schema`, as a dict or a tuple; None gives no row.
    cost_key
        Column or columns on which a row's cost depends.
    target
        For the queuing latency, from `arrived` to the moment the function starts on the row:
        "avg 2 seconds" over the whole stream, "avg 2 seconds over 4000 rows", or "max 2 seconds" for each row.
    schema
        Of the rows that the function returns.
    arrived
        Column with the arrival time.
    by
        "row", or "key": the function takes a `pyarrow.RecordBatch` with all rows of one key in a part of the
        micro-batch, and returns one of `schema`.
    check
        "ahead": by the costs learned, before anything runs; a batch that runs again keeps the same rows.
        "clock": by the clock, at the row's turn, without estimates; what is kept depends on the machine's mood.
    cost
        An expression for the seconds that a row takes, if you know; nothing is estimated then.
    on_error
        What to do with a row on which the function raises: "fail" the query, or "skip" and count it.
    epsilon, delta
        Precision and certainty of the sketches: ⌈e/ε⌉ columns, ⌈log₂ 1/δ⌉ rows. Estimates count 1 + ε times.
    window, tolerance
        Costs learned are put to use when the cells' means moved by less than `tolerance` in `window` rows.
    floor
        Share of the rows that is let in whatever the target says, counted in each partition of a batch. Their
        waits count, so the others make room for them as far as they can; beyond that the target is missed.
    budget
        Seconds from the start of a batch until which rows have their turn; those that come later are dropped,
        whatever was foreseen (`Report.cut`), but for the floor. Unlike the check ahead, that need not take the
        same rows when a batch runs again. None: as long as it takes.
    mode
        "enforce", "dry-run" (drop nothing, report what would be) or "off".
    state
        Folder for the control file, as for `shed`.
    name
        What to call this operator in reports and files.

    Example
    -------
    ::

        out = ss.load_aware(mentions, decorate, cost_key="mention", target="avg 2 seconds",
                            schema="mention STRING, info STRING", arrived="timestamp")
    """
    arguments.check_stream(events, "load_aware")
    spark = events.sparkSession
    check_spark(spark.version)
    if not callable(function):
        raise InvalidArgument(
            "load_aware takes the function to run", got=repr(function), hint="load_aware(events, function, …)"
        )
    arguments.check_arrival(events, arrived)
    when = arguments.check_column(events, arrived, "arrived")
    keys = arguments.check_hashable(events, cost_key)
    goal = Goal.parse(target)
    output = arguments.check_schema(schema)
    arguments.check_choice("by", by, ("row", "key"))
    arguments.check_choice("check", check, ("ahead", "clock"))
    arguments.check_choice("on_error", on_error, ("fail", "skip"))
    if by == "key" and check == "clock":
        raise InvalidArgument('check="clock" looks at each row', got='by="key"', hint='use by="row" with it')
    known = arguments.check_cost(events, cost)
    settings = LasSettings(
        epsilon=epsilon, delta=delta, window=window, tolerance=tolerance, floor=arguments.check_floor(floor)
    )
    hashes = settings.hashes(SEED)
    rules = CostControl(hashes, settings, synchronised=_synchronised)
    wanted = arguments.check_mode(mode)
    serial = next_serial()
    label = name or f"load-aware-{serial}"
    file = order_file(control_store(spark, state), label, hashes)
    shedder = LoadShedder(serial, label, name is not None, file, spark, goal, wanted, rules, settings.floor)
    carried = [f"_streamshed_{at}" for at in range(len(events.columns))]
    stage = CostStage(
        function,
        columns=events.columns,
        carried=carried,
        schema=arrow_schema(output, spark),
        hashes=hashes,
        caution=1.0 if known is not None else 1.0 + epsilon,
        by=by,
        check=check,
        on_error=on_error,
        synchronised=_synchronised,
        report=mailbox(spark, shedder),
        budget=None if budget is None else seconds(budget, "budget"),
    )
    marked = events.where(mark(serial, ARRIVED))
    incoming = with_orders(marked, keys, when, known, hashes, file.text(spark))
    # `mapInArrow` looks its columns up by name, and takes a dot in one for a field.
    incoming = incoming.toDF(*carried, *incoming.columns[len(carried) :])
    out = incoming.mapInArrow(stage, output).where(mark(serial, CHOSEN))
    shedder.watched_by(SessionMonitor.of(spark))
    return out
