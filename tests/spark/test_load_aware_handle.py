"""The handle of a load-aware operator without Spark: storage that fails, files that go, threads in a hurry."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from streamshed.errors import StreamshedError
from streamshed.las.settings import LasSettings
from streamshed.records import Mode, Sample
from streamshed.sketch.cost import CostSketch
from streamshed.sketch.hashing import digests
from streamshed.spark.load_aware import load_shedder
from streamshed.spark.load_aware import mail as load_mail
from streamshed.spark.load_aware.cost_control import CostControl, Goal
from streamshed.spark.load_aware.cost_orders import ENFORCE, OFF, OrderHistory
from streamshed.spark.load_aware.cost_stage import Tally
from streamshed.spark.load_aware.load_shedder import LoadShedder, order_file
from tests.spark.helpers import wait_for

HASHES = LasSettings().hashes(seed=1)


class MemoryStore:
    """Small files in memory, on a disk that can break or stand still."""

    is_local = True

    def __init__(self, files: dict[str, bytes], folder: str) -> None:
        self.files = files
        self.folder = folder

    broken = False
    stands_still: threading.Event | None = None

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def utf8(self, text: str) -> str:
        return text

    def read(self, name: str) -> bytes | None:
        self._try()
        return self.files.get(self.path(name))

    def write(self, name: str, data: bytes) -> None:
        self._try()
        self.files[self.path(name)] = data

    def append(self, name: str, data: bytes, older: str, most: int) -> None:
        self._try()
        self.files[self.path(name)] = self.files.get(self.path(name), b"") + data

    def _try(self) -> None:
        waits = MemoryStore.stands_still
        if waits is not None:
            waits.wait(30.0)
        if MemoryStore.broken:
            raise OSError("no space left on device")


@dataclass(frozen=True)
class Watch:
    """A run of a query, as far as the handle asks."""

    id: str = "q"
    name: str = "job"
    active: bool = True

    @property
    def checkpoint(self) -> str:
        return f"state-{self.id}"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """What stands on the disk, by path."""
    stored: dict[str, bytes] = {}
    monkeypatch.setattr(load_shedder, "Store", lambda spark, folder: MemoryStore(stored, folder))
    yield stored
    if MemoryStore.stands_still is not None:
        MemoryStore.stands_still.set()
    MemoryStore.broken, MemoryStore.stands_still = False, None


_serials = iter(range(10**6, 10**7))


def new_handle(files: dict[str, bytes], folder: str = "control") -> LoadShedder:
    control = order_file(MemoryStore(files, folder), "op", HASHES)  # type: ignore[arg-type]
    rules = CostControl(HASHES, LasSettings(window=250))
    goal = Goal.parse("avg 2 seconds")
    spark: Any = None
    made = LoadShedder(next(_serials), "op", True, control, spark, goal, Mode.ENFORCE, rules)
    load_mail._RECEIVERS[made.serial] = made
    return made


@pytest.fixture
def handle(files: dict[str, bytes]) -> Iterator[LoadShedder]:
    made = new_handle(files)
    yield made
    made.close()


CONTROL, SAVED, JOURNAL = (
    "control/op.control.json",
    "state-q/streamshed/op.json",
    "state-q/streamshed/op.history.jsonl",
)


def tally(handle: LoadShedder, rows: int = 100, ms: float = 5.0, **more: Any) -> Tally:
    told = Tally.empty(HASHES)
    drawn = digests(np.arange(rows) % 10)
    CostSketch(HASHES, told.frequencies, told.durations).add_many(drawn, np.full(rows, int(ms * 1e6)))
    told.arrived = told.ran = rows
    told.version = handle.order.version if handle.order else 0
    for name, value in more.items():
        setattr(told, name, value)
    return told


def sample(batch: int, arrived: int = 100, **more: Any) -> Sample:
    now = time.time()
    return Sample(**{"at": now, "started": now, "arrived": arrived, "query": "q", "batch": batch} | more)


def run_batch(handle: LoadShedder, watch: Watch, batch: int, **more: Any) -> None:
    """One batch of one task, told and reported."""
    told = tally(handle, **more)
    handle.receive({(watch.id, batch): {0: told}})
    handle.finished(watch, sample(batch, told.arrived))  # type: ignore[arg-type]


def start(handle: LoadShedder, watch: Watch) -> None:
    handle.attach(watch, 0)  # type: ignore[arg-type]


def in_time(action: Callable[[], object]) -> bool:
    """Whether something ends although the storage stands still."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(5.0)
    return not thread.is_alive()


def mode_now(handle: LoadShedder) -> float:
    """What a batch is told to do that starts in a moment."""
    order = handle.told_at(int(time.time() * 1000) + 200).order
    return OFF if order is None else order.mode


# Spark's own threads.


def test_what_tasks_report_is_taken_although_the_storage_stands_still(
    handle: LoadShedder, files: dict[str, bytes]
) -> None:
    start(handle, Watch())
    MemoryStore.stands_still = threading.Event()
    threading.Thread(target=lambda: handle.configure(target="avg 3 seconds"), daemon=True).start()
    time.sleep(0.1)
    assert in_time(lambda: handle.receive({("q", 0): {0: tally(handle)}}))
    assert in_time(lambda: handle.told(0))
    assert handle.told(0)[0].arrived == 100
    MemoryStore.stands_still.set()
    wait_for(lambda: handle.costs["table"] == 1)


@pytest.mark.complains
def test_failing_open_needs_no_storage(handle: LoadShedder, files: dict[str, bytes]) -> None:
    start(handle, Watch())
    run_batch(handle, Watch(), 0)
    assert mode_now(handle) == ENFORCE
    MemoryStore.stands_still = threading.Event()
    threading.Thread(target=lambda: handle.configure(target="avg 3 seconds"), daemon=True).start()
    time.sleep(0.1)
    assert in_time(lambda: handle.fail_open(RuntimeError("a bug")))
    assert mode_now(handle) == OFF
    # Whatever was being stored meanwhile does not bring the orders back.
    MemoryStore.stands_still.set()
    wait_for(lambda: handle.target == "avg 3 seconds" and not handle._opened)
    assert mode_now(handle) == OFF


@pytest.mark.complains
def test_an_order_that_was_being_stored_when_something_broke_drops_nothing_even_for_a_moment(
    handle: LoadShedder, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(handle, Watch())
    run_batch(handle, Watch(), 0)
    assert mode_now(handle) == ENFORCE
    save = handle._save_all

    def breaks(history: OrderHistory) -> None:
        save(history)
        handle.fail_open(RuntimeError("a bug"))

    monkeypatch.setattr(handle, "_save_all", breaks)
    monkeypatch.setattr(handle._wake, "set", lambda: None)  # the worker is slow to hear of it
    handle.configure(target="avg 3 seconds")
    assert mode_now(handle) == OFF


@pytest.mark.complains
def test_after_a_failure_all_rows_are_kept_for_a_while_and_then_it_comes_back(
    handle: LoadShedder,
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "streamshed")
    start(handle, Watch())
    for batch in range(2):
        run_batch(handle, Watch(), batch)
    monkeypatch.setattr(load_shedder, "PAUSE", 3600.0)
    for _ in range(3):
        handle.fail_open(RuntimeError("a bug"))
    wait_for(lambda: not handle._opened)
    table = handle.costs["table"]
    run_batch(handle, Watch(), 2)
    handle.renew(time.time() + 1.0)
    assert mode_now(handle) == OFF
    assert handle.mode is Mode.ENFORCE
    # It learns all the same, and a batch that runs again in the next process finds nothing in force either.
    assert handle.costs["table"] > table
    assert json.loads(files[SAVED])["orders"][-1][4] == OFF
    monkeypatch.setattr(load_shedder, "PAUSE", 0.0)
    handle.fail_open(RuntimeError("another"))
    handle.renew(time.time())
    wait_for(lambda: mode_now(handle) == ENFORCE)
    said = [record.getMessage() for record in caplog.records]
    assert sum("all rows are kept for the next" in line for line in said) == 1
    assert sum("orders are given again" in line for line in said) == 1


@pytest.mark.complains
def test_a_disk_that_is_full_stops_neither_learning_nor_counting(
    handle: LoadShedder, files: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    start(handle, Watch())
    run_batch(handle, Watch(), 0)
    version = handle.order.version  # type: ignore[union-attr]
    MemoryStore.broken = True
    for batch in range(1, 6):
        run_batch(handle, Watch(), batch)
    assert handle.report().arrived == 600
    assert handle.costs["table"] >= 5
    # The order that was stored holds, until it runs out; each kind of trouble is told once.
    assert handle.order is not None
    assert handle.order.version == version
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len({line.split("(")[0] for line in said}) <= 4
    MemoryStore.broken = False
    handle.renew(time.time() + load_shedder.RETRY)
    wait_for(lambda: handle.order is not None and handle.order.version > version)
    assert handle.order.table == handle.costs["table"]


@pytest.mark.complains
def test_a_query_starts_although_nothing_can_be_read_or_saved(files: dict[str, bytes]) -> None:
    with new_handle(files) as handle:
        MemoryStore.broken = True
        start(handle, Watch())
        assert mode_now(handle) == OFF
        run_batch(handle, Watch(), 0)
        assert handle.report().kept == 100


# Whose say it is.


@pytest.mark.complains
def test_removing_the_control_file_is_an_off_switch(
    handle: LoadShedder, files: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    start(handle, Watch())
    run_batch(handle, Watch(), 0)
    later = int(time.time() * 1000) + 200
    assert handle.span_at(later).version == handle.order.version  # type: ignore[union-attr]
    del files[CONTROL]
    for batch in range(1, 4):
        run_batch(handle, Watch(), batch)
        handle.renew(time.time() + 100.0)
    time.sleep(0.1)
    assert mode_now(handle) == OFF
    assert handle.order is not None
    assert handle.span_at(later).version == handle.order.version
    assert CONTROL not in files
    assert sum("removed by somebody else" in record.getMessage() for record in caplog.records) == 1
    # Also for a batch that runs again, and for a query that starts meanwhile.
    assert json.loads(files[SAVED])["orders"][-1][4] == OFF
    start(handle, Watch("other"))
    assert mode_now(handle) == OFF
    assert CONTROL not in files
    # Until told otherwise.
    handle.mode = "enforce"  # type: ignore[assignment]
    assert mode_now(handle) == ENFORCE
    assert CONTROL in files


@pytest.mark.complains
def test_what_somebody_writes_into_the_control_file_holds(handle: LoadShedder, files: dict[str, bytes]) -> None:
    start(handle, Watch())
    run_batch(handle, Watch(), 0)
    edited = json.loads(files[CONTROL])
    edited["orders"][-1][6] = 7.5  # the target
    files[CONTROL] = json.dumps(edited).encode()
    for batch in range(1, 3):
        run_batch(handle, Watch(), batch)
    assert handle.told_at(int(time.time() * 1000) + 200).order.target == 7.5  # type: ignore[union-attr]
    assert json.loads(files[SAVED])["orders"][-1][6] == 7.5
    handle.target = "avg 4 seconds"
    assert handle.order is not None
    assert handle.order.target == 4.0


def test_a_name_that_is_no_setting_is_refused(handle: LoadShedder) -> None:
    for name in ("latnecy", "protect", "order", "name", "report"):
        with pytest.raises(AttributeError, match="mode, target") as caught:
            setattr(handle, name, "avg 1 second")
        assert isinstance(caught.value, StreamshedError)
        assert name in str(caught.value)
    handle.target = "avg 1 second"
    assert handle.target == "avg 1 seconds"


# How long an order holds, and how long it is kept.


def test_an_order_is_renewed_when_half_its_time_is_over(handle: LoadShedder, files: dict[str, bytes]) -> None:
    start(handle, Watch())
    first = handle.order
    assert first is not None
    lease = (first.until - first.start) / 1000.0
    for seconds in range(int(lease / 2) - 1):
        handle.renew(time.time() + seconds)
    time.sleep(0.1)
    assert handle.order is first
    handle.renew(time.time() + lease / 2)
    wait_for(lambda: handle.order is not first)
    assert handle.order is not None
    assert handle.order.until > first.until


def test_a_handle_that_nobody_speaks_to_gives_no_orders(handle: LoadShedder, files: dict[str, bytes]) -> None:
    start(handle, Watch())
    first = handle.order
    handle._heard -= 10 * 60.0  # the monitor's thread is dead
    handle.receive({("q", 0): {0: tally(handle)}})
    wait_for(lambda: handle.costs["table"] == 1)
    time.sleep(0.05)
    assert handle.order is first


def test_the_first_order_is_saved_before_the_first_batch(handle: LoadShedder, files: dict[str, bytes]) -> None:
    start(handle, Watch())
    order = handle.order
    assert order is not None
    assert json.loads(files[SAVED])["orders"] == [order.as_row()]
    # What was in force before the query came, too: its first batch may fall into it.
    start(handle, Watch("other"))
    saved = json.loads(files["state-other/streamshed/op.json"])["orders"]
    assert saved[0] == order.as_row()
    assert len(saved) == 2


def test_a_long_batch_keeps_its_order_and_its_table_whatever_others_do(
    handle: LoadShedder, files: dict[str, bytes]
) -> None:
    slow, quick = Watch("slow"), Watch("quick")
    start(handle, slow)
    start(handle, quick)
    run_batch(handle, quick, 0)
    order = handle.order
    assert order is not None
    assert order.table == 1
    assert handle.look_after() <= 1.0
    begun = order.start
    handle.running(slow, sample(0, query="slow", started=begun / 1000.0))  # type: ignore[arg-type]
    for batch in range(1, 60):
        run_batch(handle, quick, batch, ms=5.0 if batch % 2 else 50.0)
    with new_handle(files, "elsewhere") as again:
        start(again, slow)
        told = again.told_at(begun)
    assert told.order is not None
    assert (told.order.version, told.order.target) == (order.version, order.target)
    assert told.table is not None
    assert np.isclose(told.table.costs[told.table.frequencies > 0], 0.005).all()
    # When it is over, nothing is held for it any more.
    run_batch(handle, slow, 0)
    run_batch(handle, quick, 60)
    assert handle.told_at(begun).order is None


def test_what_a_stopped_query_left_is_there_until_its_first_batch_is_over(files: dict[str, bytes]) -> None:
    stopped, other = Watch("stopped"), Watch("other")
    with new_handle(files) as handle:
        start(handle, stopped)
        run_batch(handle, stopped, 0)
        order = handle.order
        assert order is not None
        handle.detach(stopped)  # type: ignore[arg-type]
        start(handle, other)
        for batch in range(60):
            run_batch(handle, other, batch)
        assert handle.told_at(order.start + 1).order is None
        # It comes back, and its unfinished batch may be of any order that it knew.
        start(handle, stopped)
        for batch in range(60, 120):
            run_batch(handle, other, batch)
        told = handle.told_at(order.start + 1)
        assert told.order is not None
        assert told.order.version == order.version
        assert told.table is not None
        run_batch(handle, stopped, 1)
        for batch in range(120, 160):
            run_batch(handle, other, batch)
        assert handle.told_at(order.start + 1).order is None
        assert len(handle._control.history.spans) <= 33


def test_many_tasks_of_one_batch_do_not_push_out_its_own_order(files: dict[str, bytes]) -> None:
    with new_handle(files) as handle:
        start(handle, Watch())
        run_batch(handle, Watch(), 0)
        order = handle.order
        assert order is not None
        for partition in range(50):
            handle.receive({("q", 1): {partition: tally(handle, version=order.version)}})
            wait_for(lambda n=partition: n in handle._learned.get(("q", 1), ()))  # type: ignore[misc]
        saved = json.loads(files[SAVED])
        assert order.version in {row[2] for row in saved["orders"]}
        assert order.table in {row[0] for row in saved["tables"]}


# What goes, and what stays.


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "streamshed op"]


def test_nothing_of_a_closed_handle_is_left(files: dict[str, bytes]) -> None:
    removed: list[Any] = []

    class Monitor:
        def add(self, stream: Any) -> None:
            pass

        def remove(self, stream: Any) -> None:
            removed.append(stream)

    before = len(threads())
    with new_handle(files) as handle:
        handle.watched_by(Monitor())  # type: ignore[arg-type]
        start(handle, Watch())
        run_batch(handle, Watch(), 0)
        assert len(threads()) == before + 1
    assert len(threads()) == before
    assert removed == [handle]
    assert mode_now(handle) == OFF
    assert handle.serial not in load_mail._RECEIVERS
    handle.close()
    assert removed == [handle]
    # The books stay readable; a query that still runs is none of its business.
    handle.receive({("q", 1): {0: tally(handle)}})
    start(handle, Watch())
    assert handle.report().arrived == 100
    assert not handle._inbox.look()
    assert len(threads()) == before


def test_what_is_kept_does_not_grow_with_the_batches(handle: LoadShedder, files: dict[str, bytes]) -> None:
    start(handle, Watch())
    for batch in range(300):
        told = {0: tally(handle)}
        handle.receive({("q", batch): told})
        if batch % 3 == 0:  # of the others no report comes
            handle.finished(Watch(), sample(batch))  # type: ignore[arg-type]
    handle.finished(Watch(), sample(300, 0))  # type: ignore[arg-type]
    assert not handle._learned
    assert not handle._inbox.look()
    assert len(handle._ledger._by_query) == len(handle._ledger._last_batch) == 1
    # Without any report, too.
    for batch in range(301, 1301):
        handle.receive({("q", batch): {0: tally(handle)}})
    assert len(handle._inbox.look()) == load_mail.KEPT_BATCHES


def test_without_a_receiver_the_driver_keeps_no_mail_and_a_worker_does() -> None:
    import pickle

    there = {("q", 1): {0: Tally.empty(HASHES)}}
    driver = load_mail._Mail(-1, on_driver=True)
    assert driver.addInPlace({}, dict(there)) == {}
    worker = pickle.loads(pickle.dumps(driver))
    assert list(worker.addInPlace({}, dict(there))) == [("q", 1)]


def test_news_of_an_earlier_run_does_not_end_the_next(handle: LoadShedder, files: dict[str, bytes]) -> None:
    first, second = Watch(name="first"), Watch(name="second")
    start(handle, first)
    start(handle, second)
    handle.detach(first)  # type: ignore[arg-type]
    run_batch(handle, second, 0)
    assert handle.report().arrived == 100
    assert handle._thread is not None
    assert handle._thread.is_alive()


def test_what_a_key_costs(handle: LoadShedder, files: dict[str, bytes]) -> None:
    assert handle.cost_of(3) is None
    start(handle, Watch())
    run_batch(handle, Watch(), 0, ms=5.0)
    assert handle.cost_of(3) == pytest.approx(0.005)
    with pytest.raises(StreamshedError, match="a null cannot be a key"):
        handle.cost_of(None)


def test_a_batch_without_rows_changes_no_queues(handle: LoadShedder, files: dict[str, bytes]) -> None:
    start(handle, Watch())
    handle.receive({("q", 0): {n: tally(handle, checked=True, waited=50.0) for n in range(4)}})
    handle.finished(Watch(), sample(0, 400))  # type: ignore[arg-type]
    handle.receive({("q", 1): {0: Tally.empty(HASHES)}})
    handle.finished(Watch(), sample(1, 0))  # type: ignore[arg-type]
    handle.finished(Watch(), sample(2, 0))  # type: ignore[arg-type]
    run_batch(handle, Watch(), 3)
    assert handle.order is not None
    assert handle.order.waited == 50.0
    assert (handle.report().batches, handle.report().unseen) == (2, 0)


# What people are told.


@pytest.mark.complains
def test_changes_are_told_and_noted(
    handle: LoadShedder,
    files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "streamshed")
    monkeypatch.setattr(load_shedder, "QUIET", 0.0)
    watch = Watch()
    start(handle, watch)
    for batch in range(8):
        lost = {"shed": 40, "would_shed": 40} if batch in (2, 3, 4) else {}
        run_batch(handle, Watch(), batch, waited=150.0, **lost)
    handle.mode = "off"  # type: ignore[assignment]
    handle.target = "max 3 seconds"
    handle.target = "max 3 seconds"  # no change
    run_batch(handle, Watch(), 8)
    handle.detach(watch)  # type: ignore[arg-type]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert [line.split(": ", 1)[1].removeprefix("query job: ") for line in said] == [
        "shedding begins: 60 of 100 rows of batch 2 kept, to hold avg 2 seconds",
        "costs are stable at 5 ms a row on average",
        "shedding ends: all rows were within avg 2 seconds for 0 s",
        "mode enforce → off, set by hand",
        "target avg 2 seconds → max 3 seconds, set by hand",
    ]
    lines = [json.loads(line) for line in files[JOURNAL].decode().splitlines()]
    assert [line["reason"] for line in lines[:-1]] == [
        s.split(": ", 1)[1].removeprefix("query job: ") for s in said
    ]
    assert lines[-1]["reason"] == "the query ended"
    began = lines[0]
    assert (began["keep"], began["arrived"], began["kept"], began["shed"]) == (0.6, 300, 260, 40)
    assert (began["latency"], began["target"], began["mode"]) == (1.5, 2.0, "enforce")
    # The lines add up to the books.
    for count in ("arrived", "kept", "shed"):
        assert sum(line[count] for line in lines) == getattr(handle.report(), count)


def test_while_rows_are_shed_there_is_a_line_a_minute(handle: LoadShedder, files: dict[str, bytes]) -> None:
    start(handle, Watch())
    journal = handle._readers["q"].journal
    clock = [1000.0]
    journal._now = lambda: clock[0]
    for batch in range(50):
        run_batch(handle, Watch(), batch, rows=20, shed=5, would_shed=5)
        clock[0] += 6.0
    lines = [json.loads(line) for line in files[JOURNAL].decode().splitlines()]
    assert [line["reason"].split(":")[0] for line in lines if "costs" not in line["reason"]] == [
        "shedding begins",
        *["shedding goes on"] * 4,
    ]
