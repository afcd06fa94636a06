"""What all entries share, by the same test: mode, floor, pin, lease, failing open, books, restart.

`ss.shed`, `ss.load_aware` and `ss.run` on a real Spark, and the simulator in virtual time where it has the thing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamshed as ss
from streamshed.network import Builder, Network
from streamshed.policies.registry import network_policy
from streamshed.sim.scenario import Scenario
from streamshed.sim.simulate import simulate
from streamshed.testing import ListSink, ListSource
from tests.spark.helpers import in_force, wait_for

pytestmark = pytest.mark.spark
ROWS = 100
SCHEMA = "id LONG, user LONG, at TIMESTAMP"


def network(name: str = "every_entry") -> Network:
    return (
        Builder(name, capacity=1.0)
        .source("s", SCHEMA, rate=ROWS)
        .filter("all", "s", "id >= 0", selectivity=1.0, cost=1e-4)
        .output("rows", "all")
        .build()
    )


def same(row: dict[str, Any]) -> tuple[int]:
    return (row["id"],)


class Entry:
    """One way to shed, driven batch by batch."""

    def __init__(self, kind: str, spark: SparkSession, folder: Path) -> None:
        self.kind, self.spark, self.folder = kind, spark, folder
        self.source = ListSource(spark, SCHEMA)
        self.sink = ListSink()
        self.sent = 0
        self.handle: Any = None
        self.query: StreamingQuery | None = None

    @contextmanager
    def started(self, *, share: float | None = None, **settings: Any) -> Iterator[Any]:
        """Its query runs; `share` is pinned from the first batch on."""
        settings = {"name": f"every-{self.kind}"} | settings if self.kind != "run" else settings
        state = self.folder / "state"
        if self.kind == "run":
            pin = None if share is None else [ss.Drop("s->all", share)]
            sinks = {"rows": lambda rows, number: self.sink._take(rows, number)}
            frames = {"s": self.source.frame}
            with ss.run(
                self.spark,
                network(),
                sources=frames,
                sinks=sinks,
                latency="1 hour",
                state=str(state),
                pin=pin,
                **settings,
            ) as running:
                (self.query,) = running.queries.values()
                self.handle = running
                yield running
            return
        if self.kind == "shed":
            frame = ss.shed(self.source.frame, "1 hour", key="id", **settings)
        else:
            frame = ss.load_aware(
                self.source.frame,
                same,
                cost_key="user",
                target="avg 1 hour",
                schema="id LONG",
                arrived="at",
                **settings,
            )
        with ss.handle(frame) as handle:
            self.handle = handle
            if share is not None:
                handle.pin(share)
            with self.sink.start(frame, state) as query:
                self.query = query
                yield handle
            handle.settle()

    def pin(self, share: float | None) -> None:
        self.handle.pin([ss.Drop("s->all", share)] if self.kind == "run" and share is not None else share)
        in_force(self.handle)

    def send(self) -> int:
        """One batch of rows; how many came out."""
        now = datetime.now(timezone.utc)
        ids = range(self.sent, self.sent + ROWS)
        before = len(self.sink.rows)
        self.source.put(*({"id": i, "user": i % 7, "at": now} for i in ids))
        self.sent += ROWS
        assert self.query is not None
        self.query.processAllAvailable()
        wait_for(lambda: self.handle.report().arrived == self.sent)
        return len(self.sink.rows) - before


@pytest.fixture(params=["shed", "load_aware", "run"])
def entry(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Entry]:
    made = Entry(request.param, spark, tmp_path)
    yield made
    made.source.close()


def some(rows: int) -> bool:
    """About a quarter: drawn by a hash, or counted in each queue."""
    return 0 < rows < 0.5 * ROWS


def test_pin_books_and_mode(entry: Entry) -> None:
    with entry.started(share=0.25) as handle:
        assert some(entry.send()), "pinned before the first batch"
        entry.pin(None)
        assert entry.send() == ROWS
        entry.pin(0.25)
        assert some(entry.send())
        for mode in ("dry-run", "off"):
            handle.mode = mode
            in_force(handle)
            assert entry.send() == ROWS, mode
        handle.mode = "enforce"
        in_force(handle)
        assert some(entry.send())
        report = handle.report()
        assert report.arrived == entry.sent == report.kept + report.shed
        assert report.kept == len(entry.sink.rows)
        assert (report.batches, report.unseen) == (6, 0)
        assert 0.5 * ROWS < report.would_shed < ROWS, "of the batch in dry-run"


def test_floor_and_settings_are_checked(entry: Entry) -> None:
    with pytest.raises(ss.InvalidArgument, match="floor"), entry.started(floor=1.5):
        pass
    with entry.started(floor=0.1) as handle:
        assert handle.floor == 0.1
        handle.floor = 0.2
        assert handle.floor == 0.2
        with pytest.raises(ss.InvalidArgument, match="floor"):
            handle.floor = -1.0
        with pytest.raises(ss.InvalidArgument):
            handle.mode = "dry"
        for name in ("flor", "report", "name"):
            with pytest.raises(AttributeError, match=f"no setting '{name}'"):
                setattr(handle, name, 0.3)
        assert ss.handle(handle.name) is handle


@pytest.mark.complains
def test_failing_open_keeps_every_row_and_ends(entry: Entry) -> None:
    with entry.started(share=0.25) as handle:
        assert some(entry.send())
        handle.fail_open(RuntimeError("something of ours broke"))
        assert entry.send() == ROWS


@pytest.mark.complains
def test_removing_the_control_file_is_an_off_switch(entry: Entry, caplog: pytest.LogCaptureFixture) -> None:
    with entry.started(share=0.25) as handle:
        assert some(entry.send())
        os.remove(handle.control_path.removeprefix("file:"))
        entry.send()
        wait_for(lambda: "the control file was changed or removed" in caplog.text)  # when its end was heard of
        assert entry.send() == ROWS
        handle.mode = "enforce"
        in_force(handle)
        assert some(entry.send()), "who sets something has the say again"


def test_what_nobody_renews_ends(entry: Entry) -> None:
    """What is in force has an end: some bounds or targets later, though a bound may be an hour."""
    with entry.started(share=0.25) as handle:
        assert some(entry.send())
        until = max(span.until for span in handle._control.history.spans)
        lease = until / 1000.0 - time.time()
        assert 0 < lease <= 30 * 3600.0


def test_books_go_on_after_a_restart(entry: Entry) -> None:
    for _ in range(2):
        with entry.started(share=0.25):
            assert some(entry.send())
            assert some(entry.send())
    report = entry.handle.report()
    assert report.arrived == 4 * ROWS == report.kept + report.shed
    assert report.kept == len(entry.sink.rows)
    assert (report.batches, report.unseen) == (4, 0)


def test_closing_keeps_every_row_and_is_done_once(entry: Entry) -> None:
    with entry.started(share=0.25) as handle:
        assert some(entry.send())
        handle.close()
        handle.close()
        if entry.kind != "run":  # its queries end with it
            time.sleep(0.1)
            before = len(entry.sink.rows)
            entry.source.put(*({"id": i, "user": 0, "at": None} for i in range(ROWS)))
            entry.sink.wait()
            assert len(entry.sink.rows) - before == ROWS
        report = handle.report()
        assert report.arrived == ROWS == report.kept + report.shed
        with pytest.raises(ss.InvalidArgument, match="nobody sheds there"):
            ss.handle(handle.name)


def test_the_simulator_has_mode_floor_pin_and_books_too() -> None:
    scenario = Scenario.of(network(), seconds=20.0)
    pinned = simulate(scenario, network_policy("none"), pin=(ss.Drop("s->all", 0.25),)).report()
    assert pinned.arrived == pinned.kept + pinned.shed
    assert 0.2 < pinned.kept_share < 0.3
    for mode in (ss.Mode.DRY_RUN, ss.Mode.OFF):
        kept = simulate(scenario, network_policy("none"), pin=(ss.Drop("s->all", 0.25),), mode=mode).report()
        assert kept.kept_share == 1.0
    over = Scenario.of(
        Builder("over", capacity=1.0)
        .source("s", "id LONG", rate=1000)
        .filter("all", "s", "id >= 0", selectivity=1.0, cost=1e-2)
        .output("rows", "all")
        .build(),
        seconds=20.0,
    )
    without = simulate(over, network_policy("input-uniform"), warm_up=2.0).report()
    floored = simulate(over, network_policy("input-uniform"), warm_up=2.0, floor=0.5).report()
    assert without.kept_share < 0.2
    assert floored.kept_share >= 0.45
