"""`shed`: the drop-in. One line in an existing job keeps it inside its latency bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.loop.arbiter import Limits
from streamshed.records import Mode
from streamshed.renamed import renamed
from streamshed.spark.arguments import (
    check_arrival,
    check_budget,
    check_choice,
    check_expired,
    check_floor,
    check_hashable,
    check_max_shed,
    check_mode,
    check_protect,
    check_rotate,
    check_stream,
)
from streamshed.spark.columns import quoted
from streamshed.spark.drop_in.connect_shed import connect_shed, is_remote
from streamshed.spark.drop_in.drop_order import HASH, ControlFile, DropOrder, unit_hash
from streamshed.spark.drop_in.identity import all_columns, counted_at_source, in_file, row_place
from streamshed.spark.drop_in.shedder import Shedder
from streamshed.spark.drop_in.unasked_place import UnaskedPlace
from streamshed.spark.native import Native
from streamshed.spark.orders.batch_clock import BatchClock
from streamshed.spark.orders.store import control_store
from streamshed.spark.real_time.ladder_shed import ladder_shed
from streamshed.spark.session import check_spark
from streamshed.spark.watch.plan_counts import ARRIVED, CHOSEN, KEPT, TIMELY, mark, next_serial
from streamshed.spark.watch.progress import oldest_observed
from streamshed.spark.watch.session_monitor import SessionMonitor

MICRO_BATCH, REAL_TIME = "micro-batch", "real-time"
"""How a query is triggered."""
FLOOR = 0.02
"""Share of the rows that micro-batches keep at least, unless told otherwise."""
# Never true, and no plan has it when it runs. But Spark refuses a continuous query that asks for the time.
_IN_BATCHES_ONLY = "false AND current_timestamp() IS NULL"


@renamed(control="state")
def shed(
    events: DataFrame,
    latency: str | float | timedelta,
    *,
    arrived: str | None = None,
    key: str | Sequence[str] | None = None,
    protect: str | Column | None = None,
    floor: float | None = None,
    max_shed: float | None = None,
    mode: str | Mode = Mode.ENFORCE,
    budget: bool | str | float | timedelta = True,
    expired: str = "keep",
    weight: str | None = None,
    sic: str | None = None,
    rotate: str | float | timedelta | None = None,
    salt: str | None = None,
    measure: bool = False,
    state: str | None = None,
    name: str | None = None,
    trigger: str = MICRO_BATCH,
    classes: Mapping[str, str | tuple[str, float]] | None = None,
    value: str | Column | None = None,
    cost: str | Column | None = None,
    cost_key: str | Sequence[str] | None = None,
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
        Column with the arrival time, for `measure` and `expired`. Otherwise how long rows waited is reckoned from
        when batches started, which is right for rows that reach the source as they arrive.
    key
        Column or columns whose values live or die together, so that joins, sessions and groups stay
        whole. Without a key each row is on its own: told from others by its place in the file or in Kafka's log
        where the source has one, else by all of its columns (equal rows then share their fate). Rows without a key
        (null) are on their own too where they have a place, and one key elsewhere.
    protect
        A condition; rows that fulfil it are never dropped.
    floor
        Share of the rows that is always kept: by plans, and of what comes when a batch's time is used up, which
        makes the batch that much longer. By default plans keep 0.02, and a used-up time has no such share. In
        real-time mode it passes however late it is, and there is none by default.
    max_shed
        The most that may be shed, as a share of the rows, strictly. Rows may then be later than the bound, and no
        batch has a time budget, which cannot know its share before the batch is over.
    mode
        "enforce", "dry-run" (keep all, report what would have been dropped) or "off".
    budget
        Whether a batch may be given a time until which rows pass the drop; what comes later is dropped, so that
        the batch ends in time whatever came (`Report.cut`). True: as the controller finds right. A time: never
        more than that from the start of a batch, and less where the controller finds so. False: only plans drop
        rows; these take the same rows when a batch runs again, and a budget need not (one run is committed).
    expired
        "drop": rows that were older than the bound when their batch began are dropped first (needs `arrived`).
        With it a job is back inside its bound soon after an outage. "keep": they are rows like others.
    weight
        Name of a column to add: 1/keep for a row that stood for others, 1 for a protected one; sums
        and counts weighted with it estimate what they would be without shedding.
    sic
        Name of a column to add: the share of the rows that was kept when this row was, 1 for a protected one. A
        result made of several rows has a SIC of `count(*) / sum(1 / sic)`: what part of the rows that should have
        gone into it did.
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
    state
        Folder for the control file, on any file system that Hadoop knows. Default: under
        `spark.sql.streaming.checkpointLocation` if set, else a temporary folder of the driver; the
        plans are kept in each query's checkpoint in any case. Delete the file, and every row is kept until the
        mode is set, or a share is pinned, through the handle.
    name
        What to call this shed stream in reports and files.
    trigger
        "real-time" if the query will be started with `.trigger(realTime=…)`: rows then go one by one, by their
        age, and the bound may be 200 ms. The default is "micro-batch". See docs/real-time.md.
    classes
        In real-time mode: conditions by name, from the most valued class to the least; rows of the least go
        first. `"silver": ("tier = 'silver'", 0.1)` has a tenth of a class pass at any age.
    value
        In real-time mode: a number between 0 and 1 that says which rows of a class go last; by default that is
        up to chance.
    cost
        In real-time mode: a number that says how dear a row is, 1 for a usual one. Of rows that are worth the
        same, dear ones go at a younger age, so that more rows come through.
    cost_key
        In real-time mode, instead of `cost`: column or columns on which a row's cost depends. What rows of a key
        cost is learned while the job runs, by each task from the time that its own rows take. For Python
        functions there is `ss.load_aware`, in micro-batches, which learns costs as well.

    Notes
    -----
    All who read the shed stream get the same rows, by the plan of the query that is worst off. A query that should
    not suffer for another is given a shed stream of its own: call `shed` once for each. Several shed streams in
    one query share its time: each is thinned as the query as a whole needs it.

    Over Spark Connect there is a fixed time budget, from the bound, and nothing else; what does not mean anything
    there is refused. See `streamshed.spark.drop_in.connect_shed`.

    Example
    -------
    ::

        kept = ss.shed(events, latency="4 seconds", arrived="timestamp", key="user_id",
                       protect="priority = 'high'", floor=0.05)
        kept.groupBy(window("timestamp", "10 seconds"), "user_id").count().writeStream...start()
    """
    if is_remote(events):
        return connect_shed(
            events,
            latency,
            arrived=arrived,
            protect=protect,
            mode=mode,
            budget=budget,
            expired=expired,
            name=name,
            key=key,
            floor=floor,
            max_shed=max_shed,
            weight=weight,
            rotate=rotate,
            salt=salt,
            measure=measure,
            state=state,
            sic=sic,
            trigger=trigger,
            classes=classes,
            value=value,
            cost=cost,
            cost_key=cost_key,
        )
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
    if trigger == REAL_TIME:
        refused = {"weight": weight, "rotate": rotate, "salt": salt, "state": state, "measure": measure or None}
        refused |= {"sic": sic, "max_shed": max_shed, "expired": None if expired == "keep" else expired}
        refused |= {"budget": None if budget is True else budget}
        _check_unused(refused, 'with trigger="real-time"')
        return ladder_shed(
            events,
            bound,
            unit_hash(identity),
            arrived=arrived,
            protect=protect,
            floor=0.0 if floor is None else check_floor(floor),
            mode=check_mode(mode),
            classes=classes,
            value=value,
            cost=cost,
            cost_key=cost_key,
            name=name,
        )
    check_choice("trigger", trigger, (MICRO_BATCH, REAL_TIME))
    _check_unused({"classes": classes, "value": value, "cost": cost}, 'without trigger="real-time"')
    if cost_key is not None:
        raise InvalidArgument(
            'cost_key has no meaning without trigger="real-time"',
            got=f"cost_key={cost_key!r}",
            hint="leave cost_key out; ss.load_aware learns what rows cost in micro-batches",
        )
    protected = check_protect(events, protect)
    allowed = check_budget(budget, bound)
    lowest = FLOOR if floor is None else check_floor(floor)
    limits = Limits(
        check_mode(mode),
        lowest,
        guaranteed=0.0 if floor is None else lowest,
        max_shed=check_max_shed(max_shed),
        budget=allowed != 0.0,
    )
    check_expired(expired, arrival is not None)
    period = check_rotate(rotate)
    for what, added in (("weight", weight), ("sic", sic)):
        if added is not None and (added in events.columns or (what == "sic" and added == weight)):
            raise InvalidArgument(f"the {what} column exists already", got=repr(added), hint="choose another name")
    serial = next_serial()
    label = name or f"shed-{serial}"
    file = ControlFile(control_store(spark, state), label)
    clock = BatchClock(spark, always=False)
    shedder = Shedder(
        serial,
        label,
        name is not None,
        file,
        spark,
        bound,
        limits,
        salt,
        clock=clock,
        budget=allowed,
        expired=expired if arrival is not None else None,
        whole=counted_at_source(events),
    )
    spared = None if protected is None else F.coalesce(protected, F.lit(False))
    drop = _DropInPlan(serial, file, clock, file.order(spark, period), spared)
    columns = {name: of for name, of in ((weight, _weight), (sic, _share)) if name is not None}
    kept = drop.put_into(events, identity, arrival, columns)
    if in_file(place):
        UnaskedPlace.of(spark).add(serial)
    if measure and arrival is not None:
        kept = oldest_observed(kept, serial, arrival)
    SessionMonitor.of(spark).add(shedder)
    return kept


@dataclass(frozen=True)
class _DropInPlan:
    """What is put into the DataFrame: arrived ─► too old? ─► taken by the order? ─► in time? ─► kept."""

    serial: int
    file: ControlFile
    clock: BatchClock
    order: DropOrder
    spared: Column | None
    """What is never dropped."""

    def put_into(
        self,
        events: DataFrame,
        identity: list[Column],
        arrival: Column | None,
        added: Mapping[str, Callable[[Column], Column]],
    ) -> DataFrame:
        """`added`: columns by name, made of the share that is kept."""
        clock = self.clock
        counts = partial(mark, self.serial, native=Native(events.sparkSession))
        gate, counted, fenced = self.file.switches(events.sparkSession)
        # The clock is a fence as well.
        counted = counted | (fenced & ~clock.limited)
        incoming = events.select("*", unit_hash(identity).alias(HASH)).where(~counted | counts(ARRIVED))
        if arrival is not None:
            fresh = self._or_spared(clock.is_fresh(arrival))
            incoming = incoming.where(~clock.expires | (fresh & counts(TIMELY)))
        # While nothing is shed, what was kept is what arrived, and need not be counted again.
        chosen = incoming.where(
            ~gate | F.expr(_IN_BATCHES_ONLY) | (self._or_spared(~self.order.takes) & counts(CHOSEN))
        )
        in_time = self._or_spared(clock.in_time()) & counts(KEPT)
        kept = chosen.where(~clock.limited | in_time)
        columns = [F.col(quoted(column)) for column in events.columns]
        for name, of in added.items():
            value = of(self.order.keep)
            if self.spared is not None:
                value = F.when(self.spared, F.lit(1.0)).otherwise(value)
            columns.append(F.when(gate, value).otherwise(F.lit(1.0)).alias(name))
        return kept.select(*columns)

    def _or_spared(self, passes: Column) -> Column:
        return passes if self.spared is None else passes | self.spared


def _weight(keep: Column) -> Column:
    """How many rows a kept one stands for."""
    return 1.0 / keep


def _share(keep: Column) -> Column:
    """What part of the rows it stands for was kept."""
    return keep


def _check_unused(parameters: Mapping[str, object], where: str) -> None:
    for parameter, given in parameters.items():
        if given is not None:
            raise InvalidArgument(
                f"{parameter} has no meaning {where}", got=f"{parameter}={given!r}", hint=f"leave {parameter} out"
            )


def _identity(events: DataFrame, key: str | Sequence[str] | None, place: list[Column]) -> list[Column]:
    """What a row is told from others by: its key, or itself."""
    if key is None:
        return place or all_columns(events)
    keys = check_hashable(events, key)
    if not place:
        return keys
    missing = F.coalesce(*(each.cast("string") for each in keys)).isNull()
    return [*keys, F.when(missing, unit_hash(place))]
