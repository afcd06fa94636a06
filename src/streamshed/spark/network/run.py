"""`run`: a network on Spark, live. What is wrong is told first; then its queries start."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, overload

from pyspark.sql import DataFrame, SparkSession

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.loop import Limits
from streamshed.network.graph import Network
from streamshed.policies.contract import NetworkPolicy
from streamshed.policies.registry import network_policy
from streamshed.records import Drop, Mode
from streamshed.renamed import renamed
from streamshed.spark import arguments
from streamshed.spark.network.prepare import (
    check_boxes,
    check_expired,
    check_formats,
    check_sinks,
    register_functions,
    streams,
    with_timestamps,
)
from streamshed.spark.network.real_time_network import RealTimeNetwork
from streamshed.spark.network.run_real_time import check_for_real_time, real_time_trigger, run_real_time
from streamshed.spark.network.running_network import NetworkFailed, RunningNetwork, drop_functions
from streamshed.spark.network.sinks import SinkSpec, sink_for
from streamshed.spark.orders.store import Store, root_cause
from streamshed.spark.session import check_spark

__all__ = ["NetworkFailed", "RealTimeNetwork", "RunningNetwork", "run"]


@overload
def run(
    spark: SparkSession,
    network: Network,
    *,
    sources: Mapping[str, DataFrame] | None = None,
    sinks: Mapping[str, SinkSpec] | None = None,
    policy: str | NetworkPolicy = ...,
    latency: str | float | timedelta = ...,
    mode: str | Mode = ...,
    floor: float | None = None,
    max_shed: float | None = None,
    budget: bool | str | float | timedelta = True,
    expired: str = "keep",
    state: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    pin: Sequence[Drop] | None = None,
) -> RunningNetwork: ...
@overload
def run(
    spark: SparkSession,
    network: Network,
    *,
    sources: Mapping[str, DataFrame] | None = None,
    sinks: Mapping[str, SinkSpec] | None = None,
    policy: str | NetworkPolicy = ...,
    latency: str | float | timedelta = ...,
    mode: str | Mode = ...,
    floor: float | None = None,
    state: str | None = None,
    trigger: Literal["real-time"],
) -> RealTimeNetwork: ...
@renamed(checkpoint="state", pinned="pin")
def run(
    spark: SparkSession,
    network: Network,
    *,
    sources: Mapping[str, DataFrame] | None = None,
    sinks: Mapping[str, SinkSpec] | None = None,
    policy: str | NetworkPolicy = "lsrm-semantic",
    latency: str | float | timedelta = "4 seconds",
    mode: str | Mode = Mode.ENFORCE,
    floor: float | None = None,
    max_shed: float | None = None,
    budget: bool | str | float | timedelta = True,
    expired: str = "keep",
    state: str | None = None,
    trigger: str | Mapping[str, Any] | None = None,
    pin: Sequence[Drop] | None = None,
) -> RunningNetwork | RealTimeNetwork:
    """Run a network as streaming queries, and keep it inside a latency bound by dropping rows.

    Parameters
    ----------
    sources
        For each source its streaming DataFrame; where none is given, the spec's `read` says what to read.
    sinks
        For each output a format, `{"format": …, "options": {…}}`, or a function of (rows, number of the batch);
        where none is given, the spec's `write`.
    policy
        Who decides what to drop: "none", "random", "input-…", "aurora-greedy", "lsrm-random", "lsrm-semantic",
        "optimal", "latency", "fair", or a policy of your own.
    latency
        The bound on a row's end-to-end latency, from its arrival to the commit of its micro-batch.
    mode
        "enforce", "dry-run" (keep all, report what would have been dropped) or "off".
    floor
        Share of the work that is always done: by plans, and of what comes when a batch's time is used up. By
        default plans keep 0.02, and a used-up time has no such share. In real-time mode: share of the rows that
        passes however late it is, nothing by default.
    max_shed
        Share of the work that may be left undone at most, strictly: rows may then be later than the bound, and no
        batch has a time budget.
    budget
        Whether batches may be given a time until which rows are let in; what comes later is dropped
        (`Report.cut`). True: as the controller finds right; a time: no more than that; False: only plans drop
        rows. See `ss.shed`.
    expired
        "drop": rows that were older than the bound when their batch began are dropped first, at their source
        (`Report.expired`); every source needs `arrived`, a TIMESTAMP. Protected rows pass. With it a network is
        back inside its bound soon after an outage. "keep": they are rows like others.
    state
        Folder for the checkpoints of the queries and for the plans. A network that is run again with the same
        folder goes on where it stopped. Default: a temporary one.
    trigger
        As for Spark's `trigger`, such as `{"processingTime": "1 second"}` or `{"availableNow": True}`. With
        "real-time", a network of filters, maps and unions from Kafka to Kafka runs in one real-time query, and
        each output below a window in another one; the bound may be 200 ms. The rows of the road map are then the
        rungs of an age ladder (docs/real-time.md), and the handle is a `RealTimeNetwork`. `{"realTime": "1
        minute"}` also says how long its batches last.
    pin
        Drops to carry out from the first batch on, whatever the load is: see `RunningNetwork.pin`.

    Example
    -------
    ::

        network = ss.load_network("triage.yaml")
        running = ss.run(spark, network, sources={"vitals": events}, policy="lsrm-semantic", latency="4 seconds")
        running.await_termination()
    """
    check_spark(spark.version)
    bound = seconds(latency, "latency")
    by_age = real_time_trigger(trigger)
    if by_age is not None:
        refused = {"max_shed": max_shed, "budget": None if budget is True else budget, "pin": pin}
        _check_unused(refused | {"expired": None if expired == "keep" else expired})
    allowed = arguments.check_budget(budget, bound)
    lowest = None if floor is None else arguments.check_floor(floor)
    limits = Limits(
        arguments.check_mode(mode),
        _FLOOR if lowest is None else lowest,
        guaranteed=lowest or 0.0,
        max_shed=arguments.check_max_shed(max_shed),
        budget=allowed != 0.0,
    )
    chosen = network_policy(policy) if isinstance(policy, str) else policy
    place: Store | None = None
    how = {} if by_age is not None else check_trigger(trigger)
    check_expired(with_timestamps(network), expired)
    rows = streams(spark, network, sources)
    network = with_timestamps(network)
    specs = check_sinks(network, sinks)
    check_formats(spark, specs)
    if by_age is not None:
        check_for_real_time(network, specs)
        place = _place(spark, state)
        try:
            return run_real_time(
                spark, network, rows, specs, chosen, bound, floor or 0.0, limits.mode, place, by_age
            )
        except BaseException:
            place.discard()
            raise
    functions = register_functions(spark, network)
    place = None
    running: RunningNetwork | None = None
    try:
        check_boxes(spark, network, rows, functions)
        made_sinks = {name: sink_for(spark, name, spec) for name, spec in specs.items()}
        place = _place(spark, state)
        running = RunningNetwork(
            spark, network, chosen, bound, limits, place, made_sinks, functions, allowed, expired
        )
        if pin is not None:
            running.pin(pin)
        running.launch(rows, how)
        return running
    except BaseException:
        if running is not None:
            running.close()
        else:
            drop_functions(spark, functions)
            if place is not None:
                place.discard()
        raise


def _place(spark: SparkSession, state: str | None) -> Store:
    folder = state or tempfile.mkdtemp(prefix="streamshed-")
    try:
        return Store(spark, folder, temporary=state is None)
    except Exception as error:
        raise InvalidArgument(
            "the folder for checkpoints and plans cannot be used",
            got=f"{state!r}: {root_cause(error)}",
            hint="is its file system known to Spark?",
        ) from error


def _check_unused(parameters: Mapping[str, object]) -> None:
    for parameter, value in parameters.items():
        if value is not None:
            raise InvalidArgument(
                f"{parameter} has no meaning in real-time mode",
                got=f"{parameter}={value!r}",
                hint=f"leave {parameter} out",
            )


_FLOOR = 0.02
_TRIGGERS = ("processingTime", "availableNow", "once")


def check_trigger(trigger: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """A trigger that runs micro-batches: drops, counts and plans are all by the batch."""
    if trigger is None:
        return {}
    hint = 'leave it out, or give {"processingTime": "1 second"}, {"availableNow": True} or "real-time"'
    if not isinstance(trigger, Mapping):
        raise InvalidArgument("trigger must be a mapping", got=repr(trigger), hint=hint)
    given = {name: value for name, value in trigger.items() if value is not None}
    if "continuous" in given:
        raise InvalidArgument(
            "a network runs in micro-batches or in real-time mode, and this trigger has neither",
            got=repr(dict(trigger)),
            hint=hint,
        )
    if set(given) - set(_TRIGGERS) or len(given) > 1:
        raise InvalidArgument("not a trigger", got=repr(dict(trigger)), hint=hint)
    for name, value in given.items():
        if name == "processingTime":
            seconds(value, 'the trigger\'s "processingTime"')
        elif value is not True:
            raise InvalidArgument(f"the trigger's {name!r} can only be True", got=repr(value), hint=hint)
    return given
