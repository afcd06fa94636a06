"""`run(…, trigger="real-time")`: a network in real-time queries, from Kafka to Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamshed.durations import seconds
from streamshed.errors import InvalidArgument
from streamshed.network.catalog import Catalog
from streamshed.network.graph import Aggregate, Filter, InvalidNetwork, Map, Network, Problem, Union
from streamshed.policies.contract import NetworkPolicy
from streamshed.policies.road_map.table import TablePlanner
from streamshed.quality.sic import below_a_window
from streamshed.records import Mode
from streamshed.spark.network.arc_counts import MOST_ARCS
from streamshed.spark.network.prepare import check_boxes
from streamshed.spark.network.query_layout import NetworkLayout
from streamshed.spark.network.real_time_network import RealTimeNetwork
from streamshed.spark.network.real_time_plan import steps_of
from streamshed.spark.network.real_time_windows import window_of
from streamshed.spark.orders.store import Store
from streamshed.spark.real_time.refusals import check_real_time
from streamshed.spark.real_time.road_map_ladder import RoadMapLadder

REAL_TIME = "real-time"
BATCH = "5 minutes"
"""How long a real-time batch lasts, unless told otherwise."""
_BY_AGE = '"lsrm-random" or "lsrm-semantic"'


def real_time_trigger(trigger: Any) -> dict[str, str] | None:
    """Spark's trigger for real-time mode, if that is asked for: "real-time" or {"realTime": "1 minute"}."""
    if isinstance(trigger, str) and trigger == REAL_TIME:
        return {"realTime": BATCH}
    if isinstance(trigger, Mapping) and trigger.get("realTime") is not None:
        others = [name for name, value in trigger.items() if name != "realTime" and value is not None]
        if others:
            raise InvalidArgument("not a trigger", got=repr(dict(trigger)), hint='{"realTime": "5 minutes"}')
        seconds(trigger["realTime"], 'the trigger\'s "realTime"')
        return {"realTime": str(trigger["realTime"])}
    return None


Options = Mapping[str, Mapping[str, str]]
"""Kafka's, by output."""


def check_for_real_time(network: Network, specs: Mapping[str, Any]) -> tuple[dict[str, str], Options]:
    """Refuse what cannot run in real-time mode, all at once; the topic of each output, and Kafka's options."""
    problems = [*_boxes(network), *_sources(network)]
    topics: dict[str, str] = {}
    options: dict[str, dict[str, str]] = {}
    common: dict[str, str] | None = None
    for output in network.outputs:
        path = f"outputs.{output.name}"
        spec = specs[output.name]
        if output.sic is not None:
            problems.append(Problem(path, "real-time mode adds no sic column", output.sic, "no `sic`"))
        if not isinstance(spec, Mapping) or str(spec.get("format", "")).lower() != "kafka":
            got = spec if isinstance(spec, str) else getattr(spec, "__name__", None) or str(spec)
            problems.append(
                Problem(f"{path}.write", "in real-time mode outputs are Kafka topics", got, "format: kafka")
            )
            continue
        given = {str(key): str(value) for key, value in dict(spec.get("options", {})).items()}
        topic = given.pop("topic", None)
        if topic is None:
            problems.append(Problem(f"{path}.write", "no topic", dict(given), "options: {topic: …}"))
            continue
        topics[output.name], options[output.name] = topic, given
        if below_a_window(network, output.name):
            mode = str(spec.get("mode", "update"))
            if mode != "update":
                problems.append(
                    Problem(
                        f"{path}.write",
                        "in real-time mode a window gives its result anew whenever a row changes it",
                        f"mode: {mode}",
                        "mode: update; or leave trigger out",
                    )
                )
            continue  # a query of its own, with options of its own
        if common is not None and given != common:
            problems.append(
                Problem(
                    f"{path}.write",
                    "outputs without windows are written by one query, with the same options but for the topic",
                    given,
                    str(common),
                )
            )
        common = given if common is None else common
    if problems:
        raise InvalidNetwork(problems, f"the network {network.name!r} in real-time mode")
    return topics, options


def _boxes(network: Network) -> list[Problem]:
    found = []
    for box in network.boxes:
        path = f"boxes.{box.name}"
        if not isinstance(box, Filter | Map | Union | Aggregate):
            found.append(
                Problem(
                    path,
                    "real-time mode runs filters, maps, unions and aggregates; "
                    "a network with this box runs in micro-batches",
                    box.op,
                    "filter, map, union, aggregate; or leave trigger out",
                )
            )
        if isinstance(box, Union):
            windows = [above.name for above in network.above(box.name)[1] if above.makes_rows]
            if windows:
                found.append(
                    Problem(
                        path,
                        "real-time mode unites no results of windows; a network that does runs in micro-batches",
                        ", ".join(windows),
                        "a union above the window, an output for each; or leave trigger out",
                    )
                )
    return found


def _sources(network: Network) -> list[Problem]:
    found = []
    for source in network.sources:
        path = f"sources.{source.name}"
        if source.arrived is None:
            found.append(
                Problem(path, "real-time mode sheds by the age of rows, and needs to know when each arrived", None,
                        "arrived: the name of a TIMESTAMP column")
            )  # fmt: skip
        elif network.column(source.name, source.arrived).type != "TIMESTAMP":
            kind = network.column(source.name, source.arrived).type
            found.append(Problem(f"{path}.arrived", "the arrival time is no timestamp", kind, "TIMESTAMP"))
    for query in NetworkLayout.in_real_time(network).queries:
        window = window_of(query)
        for start in query.sources if window is None else (*query.sources, window.name):
            arcs = len(steps_of(query, start))
            if arcs > MOST_ARCS:
                path = f"{'boxes' if window is not None and start == window.name else 'sources'}.{start}"
                problem = "its rows come along too many arcs, counted once for each way"
                found.append(Problem(path, problem, arcs, f"{MOST_ARCS}"))
    return found


def run_real_time(
    spark: SparkSession,
    network: Network,
    rows: Mapping[str, DataFrame],
    specs: Mapping[str, Any],
    policy: NetworkPolicy,
    bound: float,
    floor: float,
    mode: Mode,
    place: Store,
    trigger: Mapping[str, str],
) -> RealTimeNetwork:
    """Start a network that was checked in other respects; see `run`."""
    windows = any(isinstance(box, Aggregate) for box in network.boxes)
    check_real_time(spark.version, windows=windows)
    topics, options = check_for_real_time(network, specs)
    check_boxes(spark, network, rows, {})
    running = network_by_age(spark, network, policy, bound, floor, mode, place)
    try:
        running.start(rows, topics, options, trigger)
    except BaseException:
        running.close()
        raise
    return running


def network_by_age(
    spark: SparkSession,
    network: Network,
    policy: NetworkPolicy,
    bound: float,
    floor: float,
    mode: Mode,
    place: Store,
) -> RealTimeNetwork:
    """The handle of a network in real-time mode, not started."""
    layout = NetworkLayout.in_real_time(network)
    catalog = layout.physical(Catalog.of(network, capacity=float(spark.sparkContext.defaultParallelism)))
    planner = policy.planner(catalog)
    if not isinstance(planner, TablePlanner):
        raise InvalidArgument(
            "in real-time mode the rows of a road map are the rungs of the ladder, and this policy has none",
            got=repr(policy.name),
            hint=f"policy={_BY_AGE}",
        )
    if not len(planner.table):
        raise InvalidArgument("there is nothing to drop in this network", got=network.name, hint="run it plain")
    ladder = RoadMapLadder.of(planner.table, catalog, bound, floor)
    return RealTimeNetwork(spark, network, policy.name, catalog, ladder, mode, place)
