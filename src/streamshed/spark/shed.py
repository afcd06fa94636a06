"""`shed`: the drop-in. One line in an existing job keeps it inside its latency bound."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.loop.arbiter import Limits
from streamshed.records import Mode
from streamshed.spark.arguments import (
    check_arrival,
    check_floor,
    check_hashable,
    check_mode,
    check_protect,
    check_rotate,
    check_stream,
)
from streamshed.spark.counts import arrived_mark, kept_mark, next_serial
from streamshed.spark.monitor import SessionMonitor
from streamshed.spark.orders.drop_order import HASH, KEEP, ZERO, ControlFile, falls, meets, unit_hash
from streamshed.spark.orders.identity import all_columns, quoted, row_place, zero_of
from streamshed.spark.orders.store import control_store
from streamshed.spark.progress import oldest_observed
from streamshed.spark.session import check_spark
from streamshed.spark.shedder import Shedder


def shed(
    events: DataFrame,
    latency: str | float | timedelta,
    *,
    arrived: str | None = None,
    key: str | Sequence[str] | None = None,
    protect: str | Column | None = None,
    floor: float = 0.02,
    mode: str | Mode = Mode.ENFORCE,
    weight: str | None = None,
    rotate: str | float | timedelta | None = None,
    salt: str | None = None,
    measure: bool = False,
    control: str | None = None,
    name: str | None = None,
) -> DataFrame:
    """Keep the queries behind a streaming DataFrame inside a latency bound, by dropping rows.

    Returns a DataFrame of the same schema, to be used in place of `events`; what follows may be
    anything that Structured Streaming can do. While the load fits, every row passes. When the next
    micro-batch would make rows later than the bound, just so many rows are dropped, before any work
    that comes after this call, that it does not. `ss.shedder(kept)` gives the handle: the plan in
    force, its reason, the ledger of what was dropped, and the settings, to be changed while it runs.

    Parameters
    ----------
    events
        A streaming DataFrame. Shed as early as you can: what is dropped before the parse is not parsed.
    latency
        The bound on a row's end-to-end latency, from its arrival to the commit of its micro-batch.
    arrived
        Column with the arrival time, for `measure`. Otherwise how long rows waited is reckoned from when
        batches started, which is right for rows that reach the source as they arrive.
    key
        Column or columns whose values live or die together, so that joins, sessions and groups stay
        whole. Without a key each row is on its own: told from others by its place in the file or in Kafka's log
        where the source has one, else by all of its columns (equal rows then share their fate). Rows without a key
        (null) are on their own too where they have a place, and one key elsewhere.
    protect
        A condition; rows that fulfil it are never dropped.
    floor
        Share of the rows that is always kept.
    mode
        "enforce", "dry-run" (keep all, report what would have been dropped) or "off".
    weight
        Name of a column to add: 1/keep for a row that stood for others, 1 for a protected one; sums
        and counts weighted with it estimate what they would be without shedding.
    rotate
        How often another set of keys is chosen, so that the loss is shared among keys.
    salt
        Which rows a keep fraction means. Every shed stream draws its own, so that one behind another, on the same
        key, takes other rows. Two streams that are joined on their key should be given the same salt: they then
        keep the same keys.
    measure
        Measure the wait of each batch's oldest kept row from its `arrived` column. That is an observed
        metric in the plan: some 5 % of a light job. Use it where rows may be old before the source has
        them. One query can use such a stream once only (Spark's rule for observed metrics).
    control
        Folder for the control file, on any file system that Hadoop knows. Default: under
        `spark.sql.streaming.checkpointLocation` if set, else a temporary folder of the driver; the
        plans are kept in each query's checkpoint in any case. Delete the file, and every row is kept until the
        mode is set, or a share is pinned, through the handle.
    name
        What to call this shed stream in reports and files.

    Notes
    -----
    All who read the shed stream get the same rows, by the plan of the query that is worst off. A query that should
    not suffer for another is given a shed stream of its own: call `shed` once for each. Several shed streams in
    one query share its time: each is thinned as the query as a whole needs it.

    Example
    -------
    ::

        kept = ss.shed(events, latency="4 seconds", arrived="timestamp", key="user_id",
                       protect="priority = 'high'", floor=0.05)
        kept.groupBy(window("timestamp", "10 seconds"), "user_id").count().writeStream...start()
    """
    check_stream(events)
    spark = events.sparkSession
    check_spark(spark.version)
    bound = seconds(latency, "latency")
    arrival = None if arrived is None else check_arrival(events, arrived)
    if arrival is None and measure:
        raise InvalidArgument(
            "measure needs the arrival column", got="measure=True without arrived", hint='give arrived="…" as well'
        )
    place = row_place(events)
    identity = _identity(events, key, place)
    protected = check_protect(events, protect)
    limits = Limits(check_mode(mode), check_floor(floor))
    period = check_rotate(rotate)
    if weight is not None and weight in events.columns:
        raise InvalidArgument("the weight column exists already", got=repr(weight), hint="choose another name")
    serial = next_serial()
    label = name or f"shed-{serial}"
    file = ControlFile(control_store(spark, control), label)
    shedder = Shedder(serial, label, name is not None, file, spark, bound, limits, salt)
    gate = file.gate(spark)
    orders = F.broadcast(file.relation(spark, gate, period))
    taken = falls() if protected is None else falls() & ~F.coalesce(protected, F.lit(False))
    marks = [unit_hash(identity).alias(HASH), zero_of(place).alias(ZERO)]
    incoming = events.select("*", *marks).where(arrived_mark(serial, F.col(ZERO)))
    # While nothing is shed, what was kept is what arrived, and need not be counted again.
    kept = incoming.join(orders, meets(), "left").where(~gate | (~taken & kept_mark(serial)))
    columns = [F.col(quoted(column)) for column in events.columns]
    if weight is not None:
        value = F.coalesce(1.0 / F.col(KEEP), F.lit(1.0))
        if protected is not None:
            value = F.when(F.coalesce(protected, F.lit(False)), F.lit(1.0)).otherwise(value)
        columns.append(F.when(gate, value).otherwise(F.lit(1.0)).alias(weight))
    kept = kept.select(*columns)
    if measure and arrival is not None:
        kept = oldest_observed(kept, serial, arrival)
    SessionMonitor.of(spark).add(shedder)
    return kept


def _identity(events: DataFrame, key: str | Sequence[str] | None, place: list[Column]) -> list[Column]:
    """What a row is told from others by: its key, or itself."""
    if key is None:
        return place or all_columns(events)
    keys = check_hashable(events, key)
    if not place:
        return keys
    missing = F.coalesce(*(each.cast("string") for each in keys)).isNull()
    return [*keys, F.when(missing, unit_hash(place))]


def shedder(kept: DataFrame) -> Shedder:
    """The handle of a DataFrame that `shed` returned, or that was made from one."""
    streams = SessionMonitor.streams_behind(kept) if isinstance(kept, DataFrame) else []
    handles = [stream for stream in streams if isinstance(stream, Shedder)]
    if len(handles) == 1:
        return handles[0]
    if handles:
        raise InvalidArgument(
            "this DataFrame is made of several shed streams",
            got=", ".join(handle.name for handle in handles),
            hint="give the DataFrame that one call of shed() returned",
        )
    raise InvalidArgument(
        "this is not a shed stream",
        got=type(kept).__name__,
        hint="give the DataFrame that shed() returned, or one made from it",
    )
