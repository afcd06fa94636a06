"""The control file: history, files, and what a running plan makes of it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from streamshed.errors import InvalidArgument
from streamshed.spark.drop_in.drop_order import ControlFile
from streamshed.spark.orders.history import KEPT_PLANS, History, Span
from streamshed.spark.orders.store import Store

spans = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(1, 5000), st.floats(0, 1)),
    max_size=30,
    unique_by=lambda t: t[0],
)


def history(entries: list[tuple[int, int, float]]) -> History:
    built = History()
    for version, (start, length, keep) in enumerate(sorted(entries), 1):
        built = built.add(Span(start, start + length, round(keep, 9), version))
    return built


@given(spans)
def test_a_history_survives_its_file(entries: list[tuple[int, int, float]]) -> None:
    built = history(entries)
    assert History.decode(built.encode()) == built


@given(spans, st.integers(0, 16_000), st.integers(10_001, 20_000))
def test_what_is_added_later_never_changes_what_an_earlier_batch_gets(
    entries: list[tuple[int, int, float]], batch_time: int, later: int
) -> None:
    built = history(entries)
    if batch_time < later:
        assert built.add(Span(later, later + 1000, 0.5, 99)).at(batch_time) == built.at(batch_time)


def test_a_full_history_still_fits_the_file() -> None:
    built = History()
    for i in range(KEPT_PLANS + 50):
        start = 1_800_000_000_000 + 1000 * i
        built = built.add(Span(start, start + 20_000, 0.123456789, 10**7 + i))
    assert len(built.spans) == KEPT_PLANS


@given(spans, st.integers(0, 30))
def test_parts_of_a_history_merge_to_the_whole(entries: list[tuple[int, int, float]], cut: int) -> None:
    whole = history(entries)
    first, second = History(whole.spans[:cut]), History(whole.spans[max(0, cut - 2) :])
    assert first.merge(second) == second.merge(first) == whole


def test_what_a_stopped_query_needs_is_not_pushed_out_by_the_plans_of_others() -> None:
    old = History().add(Span(1000, 9000, 0.5, 1))
    current = History()
    for i in range(3 * KEPT_PLANS):
        current = current.add(Span(10_000 + i, 90_000, 0.9, i))
    merged = current.merge(old)
    for i in range(2 * KEPT_PLANS):
        merged = merged.add(Span(20_000 + i, 90_000, 0.8, i))
    assert merged.at(1500).keep == 0.5
    assert len(merged.spans) == KEPT_PLANS + 1
    # It goes when every query is past it.
    fewer = merged.needed_from([20_000 + KEPT_PLANS])
    assert fewer.at(1500).keep == 1.0
    assert fewer.at(20_000 + KEPT_PLANS) == merged.at(20_000 + KEPT_PLANS)


@given(spans, st.lists(st.integers(0, 16_000), min_size=1, max_size=3), st.integers(0, 5000))
def test_what_is_forgotten_no_later_batch_can_ask_for(
    entries: list[tuple[int, int, float]], last_batches: list[int], later: int
) -> None:
    built = history(entries)
    fewer = built.needed_from(last_batches)
    assert fewer.at(min(last_batches) + later) == built.at(min(last_batches) + later)


BROKEN = [b"", b"{", b"null", b"[]", b"\x00\xff garbage", b'{"plans": 3}', b'{"plans": [[1]]}', b'{"plans": [[]]}',
          b'{"plans": [["a", "b", "c", "d"]]}', b'{"plans": [[0, 9e99, null, 1]]}', b'{"plans": null}',
          b'{"plans": [[0, 9e15, -3, 1]]}', b'{"plans": [[0, 9e15, 7, 1]]}', b"x" * 20_000,
          b'{"plans": [[1e999, 9e15, 0.5, 1]]}', b'{"plans": [[0, 9e15, NaN, 1]]}', b"[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_an_empty_history(content: bytes) -> None:
    assert not History.decode(content).drops


BROKEN_ORDERS = [None, "", " ", ";", ";;;", "1", "0 1 2", "a b c d", "0 9e15 0 1", "0 9000000000000000 -3 1",
                 "0 9000000000000000 nothing 1", "0 99999999999999999999 0 1", "0 9000000000000000 0 salt",
                 "x" * 20_000]  # fmt: skip


@pytest.mark.spark
def test_broken_orders_drop_nothing(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")
    keep = control.order(spark, None).keep

    def kept() -> float:
        return float(spark.range(1).select(keep).collect()[0][0])

    for text in BROKEN_ORDERS:
        control._orders.set("0 9000000000000000 0 1")
        assert kept() == 0.0
        control._orders.set(text)
        assert kept() == 1.0, text
    control.close()


@pytest.mark.spark
def test_a_person_who_changes_or_removes_the_file_is_heard_once(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")
    control.publish(0.5, 60.0, 1, also=lambda _: None)
    file = Path(control.path.removeprefix("file:"))
    assert control.follow() is None
    file.write_text('{"plans": [[0, 9e15, 0.25, 1]]}')
    assert control.follow() == History((Span(0, int(9e15), 0.25, 1),))
    assert control.follow() is None
    file.unlink()
    assert control.follow() == History()
    assert control.follow() is None
    control.close()


@pytest.mark.spark
def test_an_opened_row_keeps_everything_and_remembers_since_when(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")
    control.publish(0.5, 60.0, 1, also=lambda _: None)
    time.sleep(0.1)
    control.open_row(lambda start: Span(start, start + 60_000, 1.0, 2))
    assert spark.range(1).select(control.order(spark, None).keep).collect()[0][0] == 1.0
    assert control.history.at(int(time.time() * 1000)).keep == 1.0
    assert control.history.spans[0].keep == 0.5, "a batch that runs again still finds its plan"
    control.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.spark
def test_spark_reads_what_was_published_when_its_time_has_come(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")

    def keep() -> float:
        # A new DataFrame each time: a batch one keeps the time of its first execution, a micro-batch does not.
        return float(spark.range(1).select(control.order(spark, None).keep).collect()[0][0])

    assert keep() == 1.0
    span = control.publish(0.25, 60.0, 1, also=lambda _: None)
    assert span is not None
    assert span.start > time.time() * 1000 - 5000
    time.sleep(max(0.0, span.start / 1000 - time.time()) + 0.01)
    assert keep() == 0.25
    over = control.publish(0.5, 0.2, 2, also=lambda _: None)
    assert over is not None
    time.sleep(max(0.0, over.until / 1000 - time.time()) + 0.05)
    assert keep() == 1.0, "a plan that nobody renews ends"


@pytest.mark.spark
def test_the_copies_are_written_before_the_plan_can_be_used(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")
    order: list[str] = []

    def copy(new: History) -> None:
        on_disk = History.decode(Path(control.path.removeprefix("file:")).read_bytes())
        order.append("copy first" if on_disk.version < new.version else "too late")

    control.publish(0.5, 60.0, 1, also=copy)
    assert order
    assert set(order) == {"copy first"}


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.spark
def test_a_plan_that_is_stored_too_late_was_never_in_force(spark: SparkSession, tmp_path: Path) -> None:
    """The row shows it only before its start; what came too late stands nowhere."""
    clock = Clock()
    control = ControlFile(Store(spark, str(tmp_path)), "c", clock)
    stored: list[History] = []

    def slow(history: History) -> None:
        stored.append(history)
        clock.now += 0.2

    span = control.publish(0.5, 60.0, 1, also=slow)
    assert span is not None
    assert control.history.spans == (span,), "one span, although it was tried more than once"
    assert len(stored) > 1
    assert stored[-1] == control.history
    assert span.start > clock.now * 1000
    assert History.decode(Path(control.path.removeprefix("file:")).read_bytes()) == control.history


@pytest.mark.spark
@pytest.mark.complains
def test_storage_that_gets_slower_and_slower_leaves_the_plan_before_in_force(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock()
    control = ControlFile(Store(spark, str(tmp_path)), "c", clock)
    first = control.publish(0.5, 60.0, 1, also=lambda _: None)
    stored: list[History] = []
    took = 10.0

    def slower(history: History) -> None:
        nonlocal took
        stored.append(history)
        clock.now += took
        took *= 10

    assert control.publish(0.1, 60.0, 2, also=slower) is None
    assert control.history.spans == (first,)
    assert stored[-1].spans == (first,), "nor does it stand beside a checkpoint"
    assert History.decode(Path(control.path.removeprefix("file:")).read_bytes()).spans == (first,)


@pytest.mark.spark
def test_a_new_process_takes_nothing_from_the_file(spark: SparkSession, tmp_path: Path) -> None:
    """What it needs is beside the checkpoints; the file may be another application's."""
    first = ControlFile(Store(spark, str(tmp_path)), "c")
    first.publish(0.5, 60.0, 7, also=lambda _: None)
    again = ControlFile(Store(spark, str(tmp_path)), "c")
    assert again.history == History()
    assert again.path != first.path
    assert json.loads(Path(again.path.removeprefix("file:")).read_bytes())["streamshed"] == 1


@pytest.mark.spark
def test_an_unwritable_place_is_told_at_once(spark: SparkSession, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(InvalidArgument, match="control file cannot be written") as caught:
        ControlFile(Store(spark, str(blocked / "below")), "c")
    assert "state=" in str(caught.value)
