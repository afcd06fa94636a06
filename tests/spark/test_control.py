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
from streamshed.spark.control import KEEP, KEPT_PLANS, ControlFile, History, Span, Store

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


BROKEN = [b"", b"{", b"null", b"[]", b"\x00\xff garbage", b'{"plans": 3}', b'{"plans": [[1]]}', b'{"plans": [[]]}',
          b'{"plans": [["a", "b", "c", "d"]]}', b'{"plans": [[0, 9e99, null, 1]]}', b'{"plans": null}',
          b'{"plans": [[0, 9e15, -3, 1]]}', b'{"plans": [[0, 9e15, 7, 1]]}', b"x" * 20_000]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_orders_no_drop(spark: SparkSession, tmp_path: Path, content: bytes) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")
    control.publish(0.5, 60.0, 1, also=lambda _: None)
    relation = control.relation(spark, None)
    Path(control.path.removeprefix("file:")).write_bytes(content)
    assert not control.follow()
    assert relation.collect() == []
    assert control.follow(), "told once"


@pytest.mark.spark
def test_a_missing_file_orders_no_drop(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")
    relation = control.relation(spark, None)
    control.publish(0.5, 60.0, 1, also=lambda _: None)
    time.sleep(0.1)
    Path(control.path.removeprefix("file:")).unlink()
    assert not control.follow()
    assert relation.collect() == []


@pytest.mark.spark
def test_spark_reads_what_was_published_when_its_time_has_come(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")

    def orders() -> list[float]:
        # A new DataFrame each time: a batch one keeps the time of its first execution, a micro-batch does not.
        return [row[KEEP] for row in control.relation(spark, None).collect()]

    assert orders() == []
    span = control.publish(0.25, 60.0, 1, also=lambda _: None)
    assert span.start > time.time() * 1000 - 5
    time.sleep(max(0.0, span.start / 1000 - time.time()) + 0.01)
    assert orders() == [0.25]
    over = control.publish(0.5, 0.2, 2, also=lambda _: None)
    time.sleep(max(0.0, over.until / 1000 - time.time()) + 0.05)
    assert orders() == [], "a plan that nobody renews ends"


@pytest.mark.spark
def test_the_copies_are_written_before_the_plan_can_be_used(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")
    order: list[str] = []

    def copy(new: History) -> None:
        on_disk = History.decode(Path(control.path.removeprefix("file:")).read_bytes())
        order.append("copy first" if on_disk.version < new.version else "too late")

    control.publish(0.5, 60.0, 1, also=copy)
    assert order == ["copy first"]


@pytest.mark.spark
def test_a_slow_store_gets_a_longer_head_start(spark: SparkSession, tmp_path: Path) -> None:
    control = ControlFile(Store(spark, str(tmp_path)), "c")
    span = control.publish(0.5, 60.0, 1, also=lambda _: time.sleep(0.2))
    # Published again, later: in force only after it stood in the file.
    assert [s.keep for s in control.history.spans] == [0.5] * len(control.history.spans)
    assert control.history.at(span.start) == span
    assert len(control.history.spans) >= 2


@pytest.mark.spark
def test_versions_go_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    first = ControlFile(Store(spark, str(tmp_path)), "c")
    first.publish(0.5, 60.0, 7, also=lambda _: None)
    again = ControlFile(Store(spark, str(tmp_path)), "c")
    assert again.history == first.history
    assert json.loads(Path(again.path.removeprefix("file:")).read_bytes())["streamshed"] == 1


@pytest.mark.spark
def test_an_unwritable_place_is_told_at_once(spark: SparkSession, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(InvalidArgument, match="control file cannot be written") as caught:
        ControlFile(Store(spark, str(blocked / "below")), "c")
    assert "control=" in str(caught.value)
