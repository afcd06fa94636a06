"""The road map on the age ladder: which rows go, in the pure part and as Spark carries it out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamshed.network import Builder, Catalog, Network
from streamshed.network.generate import NetworkShape, generate
from streamshed.policies.registry import network_policy
from streamshed.quality import Report
from streamshed.quality.row_counts import RowCounts
from streamshed.spark.network.arc_counts import ArcCounts
from streamshed.spark.network.query_layout import NetworkLayout
from streamshed.spark.network.real_time_network import slots_without_raw, with_would_shed
from streamshed.spark.network.real_time_plan import HASH, SourcePlan, steps_of
from streamshed.spark.network.slots import WHOLE, row_hash
from streamshed.spark.real_time.road_map_ladder import RoadMapLadder
from streamshed.spark.watch.plan_counts import next_serial
from tests.networks import valued_network
from tests.oracles.road_map_ladder import delivered

POLICIES = ("lsrm-random", "lsrm-semantic")


def triage(*, protect: str | None = "n > 90") -> Network:
    """One source, a map and filters below it, splits in a row, a union of two ways."""
    values = {"value": [("value", [[0, 40, 0.2], [40, 100, 1.0]])]}
    return (
        Builder("triage")
        .source("s", "n DOUBLE, at TIMESTAMP", arrived="at", rate=100, values={"n": (0, 100)}, protect=protect)
        .filter("low", "s", "n < 60", cost=0.001, selectivity=0.6)
        .map("twice", "s", {"value": "n * 1.0", "double": "n * 2"}, cost=0.002)
        .filter("high", "twice", "value > 30", cost=0.003, selectivity=0.7)
        .filter("higher", "high", "value > 50", cost=0.001, selectivity=0.7)
        .output("calm", "low", loss=[(100, 1.0), (50, 0.7), (0, 0.0)])
        .output("alarm", "high", value=values["value"][0])
        .output("alert", "higher", loss=[(100, 1.0), (0, 0.0)])
        .build()
    )


def ladder_of(network: Network, policy: str) -> RoadMapLadder:
    catalog = Catalog.of(network)
    return RoadMapLadder.of(network_policy(policy).planner(catalog).table, catalog, bound=0.2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_at_each_age_the_drops_are_those_of_one_row_of_the_road_map(policy: str, seed: int) -> None:
    network = valued_network(seed, joins=False)
    catalog = Catalog.of(network)
    table = network_policy(policy).planner(catalog).table
    ladder = RoadMapLadder.of(table, catalog, bound=0.2)
    limits = ladder.limits()
    assert list(ladder.rows) == [table[n] for n in range(len(table))]  # all of them, in order
    assert limits == sorted(limits)
    assert ladder.lowest <= limits[0]
    assert limits[-1] <= 0.95 * 0.2 + 1e-12
    assert ladder.drops(0.0) == ladder.drops(limits[0] - 1e-9) == ()
    for number, (limit, row) in enumerate(zip(limits, table, strict=True), 1):
        is_last_there = number == len(limits) or limits[number] > limit
        if is_last_there:
            assert ladder.cursor(limit) == number
            assert ladder.drops(limit) == row.drops
    assert ladder.drops(10.0) == table[len(table) - 1].drops


def test_a_long_road_map_is_thinned_evenly_and_keeps_its_end() -> None:
    network = generate(NetworkShape(queries=5, boxes=47, shared=6), seed=3)
    catalog = Catalog.of(network)
    table = network_policy("lsrm-random").planner(catalog).table
    ladder = RoadMapLadder.of(table, catalog, bound=0.2)
    assert len(table) > 256 >= len(ladder.rows) > 100
    assert ladder.rows[-1] == table[len(table) - 1]
    assert max(b - a for a, b in zip((0.0, *ladder.saved), ladder.saved, strict=False)) < 0.05


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(8))
def test_an_older_row_is_never_kept_where_a_younger_like_it_is_dropped(policy: str, seed: int) -> None:
    """Where no streams meet: `road_map_ladder` says why."""
    network = triage() if seed == 0 else _without_unions(seed)
    ladder = ladder_of(network, policy)
    chance = np.random.default_rng(seed)
    for source in network.sources:
        values = {column.name: chance.uniform(0, 100, 300) for column in source.schema}
        draws = chance.random(300)
        before = None
        for row in (None, *ladder.rows):
            came, _ = delivered(network, source.name, values, draws, row)
            now = {name: [way[0] for way in ways] for name, ways in came.items()}
            for name in now if before is not None else ():
                for younger, older in zip(before[name], now[name], strict=True):
                    assert not (older & ~younger).any(), name
            before = now


def _without_unions(seed: int) -> Network:
    for number in range(seed * 1000, seed * 1000 + 1000):
        network = valued_network(number, joins=False)
        if all(box.op != "union" for box in network.boxes) and len(ladder_of(network, POLICIES[0]).rows) > 10:
            return network
    raise AssertionError("no network")


def test_what_a_dry_run_would_have_shed_is_there_when_batches_are_added_up() -> None:
    (layout,) = NetworkLayout.in_real_time(triage()).queries
    arcs = {on: RowCounts(100) for on in layout.arcs}
    batch = Report.of_network({"s": 100}, with_would_shed(arcs, layout, 0.25))
    assert Report().plus(batch).plus(batch).would_shed == 50


@pytest.mark.spark
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", ["triage", "unions"])
def test_spark_drops_what_the_road_map_says(spark: SparkSession, policy: str, shape: str) -> None:
    """Every row with every row of the road map; the cursor is a column here."""
    network = triage() if shape == "triage" else _united()
    ladder = ladder_of(network, policy)
    (source,) = network.sources
    chance = np.random.default_rng(7)
    numbers = chance.uniform(0, 100, 150)
    cursors = sorted({0, 1, len(ladder.rows), *map(int, chance.integers(0, len(ladder.rows) + 1, 12))})
    rows = [SparkRow(n=float(n), cursor=cursor) for cursor in cursors for n in numbers]
    # The cursor travels in the arrival time.
    frame = spark.createDataFrame(rows, "n DOUBLE, cursor LONG").select(
        "n", F.timestamp_millis("cursor").alias("at")
    )
    (layout,) = NetworkLayout.in_real_time(network).queries
    plan = SourcePlan(
        layout, source, slots_without_raw(network), ladder, frame, lambda at, _: F.unix_millis(at), next_serial()
    )
    counts = ArcCounts(spark, steps_of(layout, source.name))
    topics = {output.name: f"topic-{output.name}" for output in network.outputs}
    messages = plan.outputs(topics, counts)
    assert [step.arc for step in plan.steps] == steps_of(layout, source.name)
    found = sorted((m.topic, m.value.decode()) for m in messages.collect())
    came, passed = counts.take()

    hashes = frame.selectExpr(
        "n", "unix_millis(at) AS cursor", f"{row_hash('s', ['n', 'at'])} AS {HASH}"
    ).collect()
    wanted: list[tuple[str, str]] = []
    totals = dict.fromkeys(network.arcs, (0, 0))
    for cursor in cursors:
        mine = [row for row in hashes if row.cursor == cursor]
        values = {"n": np.array([row.n for row in mine]), "at": np.full(len(mine), float(cursor))}
        draws = np.array([row[HASH] / WHOLE for row in mine])
        out, counted = delivered(network, "s", values, draws, ladder.rows[cursor - 1] if cursor else None)
        for on, (c, p) in counted.items():
            totals[on] = (totals[on][0] + c, totals[on][1] + p)
        for output in network.outputs:
            names = [column.name for column in network.schemas[output.name]]
            for there, _, fields in out[output.name]:
                wanted += [
                    (topics[output.name], _text(names, fields, place, cursor)) for place in np.flatnonzero(there)
                ]
    assert len(wanted) > 500
    assert [(topic, json.loads(text)) for topic, text in found] == [
        (topic, json.loads(text)) for topic, text in sorted(wanted)
    ]
    assert {on: (came[on], passed[on]) for on in network.arcs} == totals
    assert any(c > p > 0 for c, p in totals.values())


def _text(names: list[str], fields: dict[str, np.ndarray], place: int, cursor: int) -> str:
    """A message as Spark writes it."""
    pairs = []
    for name in names:
        if name == "at":
            pairs.append(f'"at":"1970-01-01T00:00:00.{cursor:03d}Z"')
        else:
            pairs.append(f'"{name}":{_number(float(fields[name][place]))}')
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    return repr(value)


def _united() -> Network:
    """A row that comes to a union on two ways is two rows there."""
    return (
        Builder("united")
        .source("s", "n DOUBLE, at TIMESTAMP", arrived="at", rate=100, values={"n": (0, 100)})
        .filter("a", "s", "n < 70", cost=0.001, selectivity=0.7)
        .filter("b", "s", "n > 20", cost=0.001, selectivity=0.8)
        .union("u", ["a", "b"], cost=0.001)
        .filter("c", "u", "n > 10", cost=0.002, selectivity=0.95)
        .output("p", "u", loss=[(100, 1.0), (0, 0.0)])
        .output("q", "c", loss=[(100, 1.0), (30, 0.8), (0, 0.0)])
        .build()
    )
