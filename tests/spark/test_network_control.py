"""The plans of a network: which are kept, for whom, and what a broken file means."""

from __future__ import annotations

import json

import pytest

import streamshed as ss
from streamshed.spark.network.network_control import NetworkControl, PlanHistory, PlanSpan


class Memory:
    """A store without a disk, and a clock that stands still."""

    is_local = True

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.now = 1000.0

    def path(self, name: str) -> str:
        return name

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def utf8(self, text: str) -> str:
        return text


def control(store: Memory, *queries: str) -> NetworkControl:
    return NetworkControl(store, 1, lambda: store.now, queries)  # type: ignore[arg-type]


def publish(control: NetworkControl, store: Memory, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.now += 1.0
        control.publish((float(number),), 0.5, 20.0)


def test_the_plan_of_an_unfinished_batch_stays_whatever_the_others_ask_for() -> None:
    store = Memory()
    plans = control(store, "slow", "quick")
    plans.finished("slow", -1)
    plans.finished("quick", -1)
    publish(plans, store, 1)
    time = int(store.now * 1000) + 500
    plans.begun("slow", 7, time)
    publish(plans, store, 200, first=1)
    assert plans.history.at(time).numbers == (0.0,)
    # After a crash: another process, which does not know yet what the queries have left undone.
    again = control(store, "slow", "quick")
    publish(again, store, 100, first=300)
    assert again.history.at(time).numbers == (0.0,)
    again.begun("slow", 7, time)
    again.finished("quick", 500)
    publish(again, store, 100, first=500)
    assert again.history.at(time).numbers == (0.0,)
    # And once the batch is done, nobody asks again.
    again.finished("slow", 7)
    publish(again, store, 2, first=700)
    assert again.history.at(time).version == 0
    assert len(again.history.spans) < 70


def test_what_is_between_two_kept_plans_does_not_fall_to_the_first() -> None:
    history = PlanHistory((PlanSpan(10, 1000, 1, 0.1, (1.0,)), PlanSpan(20, 1000, 2, 0.2, (2.0,))))
    for number in range(3, 100):
        history = history.add(PlanSpan(10 * number, 2000, number, 0.5, (float(number),)))
    assert history.only([15]).at(15).numbers == (1.0,)
    assert history.only([15]).at(25).numbers == ()


def test_a_plan_that_is_renewed_is_one_plan() -> None:
    store = Memory()
    plans = control(store)
    for _ in range(300):
        store.now += 10.0
        plans.publish((3.0,), 0.5, 20.0)
    assert len(plans.history.spans) == 1
    assert plans.history.at(int(store.now * 1000) + 15_000).numbers == (3.0,)
    assert plans.history.at(int(store.now * 1000) + 25_000).numbers == ()
    # One that would end sooner is another: a pin of a day does not outlive its hand.
    plans.publish((3.0,), 0.5, 5.0)
    assert plans.history.at(int(store.now * 1000) + 15_000).numbers == ()


@pytest.mark.parametrize("number", ["'x'", "NaN", "true", "[1]", "1e999"])
def test_a_file_with_something_else_than_numbers_is_no_plan(number: str) -> None:
    """They become part of a query's SQL, and what does not parse there would end it."""
    text = f'{{"plans":[[0,99,1,0.5,{number}]]}}'
    assert PlanHistory.decode(text.encode(), 1) == PlanHistory()
    good = json.dumps({"plans": [[0, 99, 1, 0.5, 4]]})
    assert PlanHistory.decode(good.encode(), 1).at(5).numbers == (4.0,)
    for broken in ('{"plans":[[0,99,1,1' + "0" * 400 + ",4]]}", "[" * 100_000, ""):
        assert PlanHistory.decode(broken.encode(), 1) == PlanHistory()


def test_to_fail_open_needs_no_storage() -> None:
    store = Memory()
    plans = control(store)
    publish(plans, store, 1)
    time = int(store.now * 1000) + 500
    assert plans.history.at(time).numbers

    def broken(name: str, data: bytes | None = None) -> bytes | None:
        raise OSError("the disk is gone")

    store.write = store.read = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(OSError, match="the disk is gone"):
        plans.keep_all()
    assert plans.history.at(time).numbers == (None,)


def test_former_names_of_reports_work_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"NetworkReport is called streamshed\.Report"):
        from streamshed.spark.network.books import NetworkReport
    with pytest.warns(DeprecationWarning, match=r"LoadReport is called streamshed\.Report"):
        from streamshed.spark.load_aware.load_report import LoadReport
    assert NetworkReport is LoadReport is ss.Report
